"""The site of the documents, built from a tree."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def build(tree: Path, target: Path, config: str = "mkdocs.yml") -> subprocess.CompletedProcess[str]:
    """Build the site of a tree, as `make site` does."""
    argv = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(target)]
    return subprocess.run(
        [*argv, "--config-file", str(tree / "packaging" / "site" / config)],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def built(target: Path, config: str) -> Path:
    done = build(ROOT, target, config)
    assert done.returncode == 0, done.stderr
    return target
