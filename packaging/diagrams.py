"""Makes the diagrams of the documents from their texts, as a part of `make docs`.

Each SVG has the digest of its text, so a test sees without graphviz whether it is current. Only a
diagram that is not current needs graphviz.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "developers" / "diagrams"
MISSING = "is not current, and making it needs graphviz: packaging/install-missing.sh graphviz"


def texts() -> list[Path]:
    """Return the text of every diagram."""
    return sorted(FOLDER.glob("*.dot"))


def digest(text: Path) -> str:
    """Return the comment that the SVG of this text contains."""
    return f"<!-- {text.name} has the SHA-256 {hashlib.sha256(text.read_bytes()).hexdigest()} -->"


def is_current(text: Path) -> bool:
    """Tell whether the SVG beside the text was made from it."""
    svg = text.with_suffix(".svg")
    return svg.exists() and digest(text) in svg.read_text(encoding="utf-8")


def make(text: Path) -> None:
    """Write the SVG. Raises CalledProcessError if graphviz refuses the text."""
    argv = ["dot", "-Tsvg", str(text)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    text.with_suffix(".svg").write_text(f"{done.stdout}{digest(text)}\n", encoding="utf-8")


def main() -> int:
    for text in texts():
        if is_current(text):
            continue
        if shutil.which("dot"):
            make(text)
            print(text.with_suffix(".svg"))
        else:
            print(text.with_suffix(".svg"), MISSING)
    return 0


if __name__ == "__main__":
    sys.exit(main())
