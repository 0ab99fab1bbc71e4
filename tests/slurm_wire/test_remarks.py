"""A job's remarks are read as text that any user could have written."""

from __future__ import annotations

import pytest

from slurm_hooks.protocol.comment import REMARK_WIDTH
from slurm_hooks.slurm.remarks import COUNT, parse_remarks, remarks_command


def test_a_job_has_a_single_question() -> None:
    command = remarks_command(7)
    assert "--jobs=7" in command.argv
    assert command.rpcs == 1


@pytest.mark.parametrize(
    ("text", "remarks"),
    [
        ("", ()),
        ("(null)\nmine; really\nprogress{samples=1}\n", ()),
        ("mine;remark{a b};progress{samples=1}   \n", ("a b",)),
        ("remark{a}\nremark{b}\nremark{a}", ("a", "b")),
        ("remark{}remark{ }remark{a{b}", ()),
        ("remark{\x1b[2J\n\u00e4}", ("?[2J??",)),
    ],
)
def test_remarks_in_comments(text: str, remarks: tuple[str, ...]) -> None:
    assert parse_remarks(text) == remarks


def test_remarks_are_bounded() -> None:
    assert parse_remarks("remark{" + "x" * 999 + "}") == ("x" * REMARK_WIDTH,)
    assert len(parse_remarks("".join(f"remark{{{n}}}" for n in range(99)))) == COUNT
