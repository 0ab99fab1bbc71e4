"""A short course of every target. `make fuzz` runs the long course."""

from __future__ import annotations

import pytest

from fuzz.course import Count, known, run, try_one
from fuzz.target import Target
from fuzz.targets import TARGETS

INPUTS = 150


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_texts_are_read_or_refused(name: str) -> None:
    count = run(name, 1, INPUTS)
    assert not count.failures, [(why, text[:300]) for why, text in count.failures]
    assert count.accepted + count.refused == INPUTS + len(known(name))


@pytest.mark.parametrize("name", TARGETS)
def test_sound_texts_are_read(name: str) -> None:
    target = TARGETS[name]
    for text in target.sound if name != "plugin" else target.sound[:6]:
        target.read(text)


def test_a_parser_that_breaks_is_found() -> None:
    count = Count()
    try_one(Target(("1",), int), "x", count)
    assert [why.partition(":")[0] for why, _ in count.failures] == ["ValueError"]
