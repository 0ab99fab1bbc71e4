"""The facts about Slurm: each topic is in the index, and each fact has a release and a source."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "developers" / "slurm-facts"
TOPICS = sorted(set(FOLDER.glob("*.md")) - {FOLDER / "index.md"})


def facts(topic: Path) -> list[list[str]]:
    """The cells of each row below the head of the table."""
    rows = [line for line in topic.read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    assert rows[0] == "| fact | release | how seen |"
    return [row.strip("| ").rsplit(" | ", 2) for row in rows[2:]]


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.stem)
def test_fact_has_a_release_and_a_source(topic: Path) -> None:
    assert facts(topic)
    assert [row for row in facts(topic) if len(row) != 3 or not all(row)] == []


def test_index_counts_the_facts_of_every_topic() -> None:
    index = (FOLDER / "index.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"\| \[.+\]\((.+\.md)\) \| (\d+) \|", index))
    assert listed == {topic.name: str(len(facts(topic))) for topic in TOPICS}
