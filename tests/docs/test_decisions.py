"""The records of decisions: complete, numbered without holes, and all in the index."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "developers" / "decisions"
RECORDS = sorted(FOLDER.glob("[0-9]*.md"))
ROW = re.compile(r"\| (\d{4}) \| \[(.+)\]\((.+\.md)\) \| (\d{4}-\d\d-\d\d) \| (.+) \|")
HEAD = re.compile(
    r"# (?P<number>\d{4})\. (?P<title>.+)\n\nDate: (?P<date>2\d{3}-\d\d-\d\d)\n\n"
    r"Status: (?P<status>accepted|superseded by \[\d{4}\]\((?P<successor>.+)\))\n\n"
    r"## Context\n(?P<text>.+\n\n## Decision\n.+\n\n## Consequences\n.+)",
    re.S,
)


def parts(record: Path) -> re.Match[str]:
    match = HEAD.fullmatch(record.read_text(encoding="utf-8"))
    assert match, f"{record.name} lacks a title, a date, a status or one of its three parts"
    return match


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name[:4])
def test_record_has_all_parts_and_is_short(record: Path) -> None:
    match = parts(record)
    assert record.name.startswith(match["number"] + "-")
    assert 55 <= len(match["text"].split()) <= 210
    if match["successor"]:
        successor = FOLDER / match["successor"]
        assert successor.name > record.name
        assert parts(successor)["status"] == "accepted"


def test_numbers_have_no_holes() -> None:
    assert [int(record.name[:4]) for record in RECORDS] == list(range(1, len(RECORDS) + 1))


def test_the_index_lists_every_record_with_its_status() -> None:
    topics = (FOLDER / "index.md").read_text(encoding="utf-8").split("\n## ")[1:]
    by_topic = [ROW.findall(topic) for topic in topics]
    assert all(rows and rows == sorted(rows) for rows in by_topic)
    rows = sorted(row for rows in by_topic for row in rows)
    expected = []
    for record in RECORDS:
        match = parts(record)
        row = (match["number"], match["title"], record.name, match["date"], match["status"])
        expected.append(row)
    assert rows == expected
