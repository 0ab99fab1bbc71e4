"""The files that the developers' pages show."""

from __future__ import annotations

import re
from pathlib import Path

PAGES = Path(__file__).resolve().parents[1] / "docs" / "developers"


def files_shown(page: str) -> dict[str, str]:
    """The files that a page shows, by name. The first line of each is a comment with its name."""
    text = (PAGES / page).read_text(encoding="utf-8")
    return dict(re.findall(r"```(?:python|toml)\n# ([\w.]+)\n(.*?)```", text, re.S))
