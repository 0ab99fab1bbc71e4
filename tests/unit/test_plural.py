"""Numbers are written with their nouns, and never as `node(s)`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from slurm_hooks.model.moments import plural

PACKAGE = Path(__file__).parents[2] / "slurm_hooks"


@pytest.mark.parametrize(
    ("number", "noun", "wanted"),
    [
        (0, "node", "0 nodes"),
        (1, "node", "1 node"),
        (2, "other node", "2 other nodes"),
        (2, "class", "2 classes"),
        (-1, "node", "-1 nodes"),
    ],
)
def test_a_number_with_its_noun(number: int, noun: str, wanted: str) -> None:
    assert plural(number, noun) == wanted


def test_no_text_leaves_the_plural_open() -> None:
    open_plurals = [
        f"{path.relative_to(PACKAGE)}: {line.strip()}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line in path.read_text().splitlines()
        if re.search(r"[\"'].*[a-zA-Z]\(s\)[^(]*[\"']", re.sub(r"(\w+)\(s\)(?=[^\"']*$)", "", line))
        and not re.search(r"\b(float|moment|look|hole)\(s\)", line)
    ]
    assert open_plurals == []
