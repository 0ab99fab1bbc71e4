"""The addresses of the documents' pages on this host."""

from __future__ import annotations

from pathlib import Path

INSTALLED = Path("/usr/share/doc/slurm-malleable")
TREE = Path(__file__).resolve().parents[2]


def address(page: str) -> str:
    """Return the place of a page such as users/checkpoints: the address for a browser, or a file.

    Without documents on this host it is the place in the source.
    """
    source = f"docs/{page}.md"
    for_browser = INSTALLED / "html" / f"{page}.html"
    if for_browser.exists():
        return for_browser.as_uri()
    files = (INSTALLED / f"{page}.md", TREE / source)
    return next((str(file) for file in files if file.exists()), source)
