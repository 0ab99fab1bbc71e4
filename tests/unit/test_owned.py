"""The users who could write to a directory, or replace it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from slurm_hooks.owned import is_open, open_above

ME = os.geteuid()


@pytest.mark.parametrize(
    ("mode", "trusted", "expected"),
    [
        (0o755, (ME,), False),
        (0o775, (ME,), True),
        (0o757, (ME,), True),
        (0o1777, (ME,), True),
        (0o755, (ME + 1,), True),
    ],
)
def test_a_directory_is_open(
    tmp_path: Path, mode: int, trusted: tuple[int, ...], expected: bool
) -> None:
    tmp_path.chmod(mode)
    assert is_open(tmp_path.stat(), trusted) is expected


@pytest.mark.parametrize(
    ("mode", "rights", "expected"),
    [
        (0o755, stat.S_IWOTH, False),
        (0o775, stat.S_IWOTH, False),
        (0o775, stat.S_IWGRP, True),
        (0o777, stat.S_IWOTH, True),
        (0o1777, stat.S_IWOTH, False),
    ],
)
def test_a_directory_can_be_replaced(
    tmp_path: Path, mode: int, rights: int, expected: bool
) -> None:
    above = tmp_path / "above"
    above.mkdir()
    above.chmod(mode)
    assert open_above(above / "place", rights=rights) == (above if expected else None)


def test_the_parent_s_owner_may_replace_a_directory(tmp_path: Path) -> None:
    assert open_above(tmp_path / "place", (0, ME)) is None
    assert open_above(tmp_path / "place", (ME + 1,)) == tmp_path
