"""Actions as commands: what is said, in which order, and what shares a process."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from build import NOW, after, make_mark, make_request, span
from slurm_hooks.model import (
    Action,
    Cancel,
    FragmentId,
    Grow,
    Hold,
    Notice,
    PutBack,
    Renew,
    SetMark,
    Why,
)
from slurm_hooks.slurm.actions import commands, ranges
from slurm_hooks.slurm.mark import format_mark

MARK = make_mark(make_request(), noticed=NOW)
TEXT = format_mark(MARK)
EPOCH = int(NOW.timestamp())


def ids(*indexes: int, job: int = 7) -> list[FragmentId]:
    return [FragmentId(job, index) for index in indexes]


A, B, C = ids(0, 1, 2)


def lines(*actions: Action, notes: dict[FragmentId, str] | None = None) -> list[str]:
    """Each line for scontrol, and each other command, in order."""
    said = []
    for command in commands(actions, notes or {}):
        said += command.stdin.splitlines() or [" ".join(command.argv)]
    return said


def test_nothing_to_do_runs_nothing() -> None:
    assert commands([], {}) == []


def test_holds_come_first_and_grows_last() -> None:
    said = lines(
        Grow(A, frozenset({"n3", "n4"}), span(300), MARK),
        Cancel((FragmentId(9, 0), FragmentId(9, 1)), Why.FINISHED),
        Hold(B, Why.NOT_STARTED),
        PutBack(C, Why.NOTICE_OVER),
        Notice(FragmentId(8, 0), MARK, Why.HOLE_CLOSES),
        SetMark(FragmentId(8, 0), MARK, Why.HOLE_CLOSES),
        Renew(FragmentId(8, 1), after(900)),
    )
    assert said == [
        "uhold 7_1",
        f"update jobid=8_1 EndTime=uts{EPOCH + 900}",
        f"update jobid=8_0 AdminComment={TEXT}",
        "scancel --quiet --signal=URG --full 8_0",
        "requeue 7_2",
        "scancel --quiet 9_[0-1]",
        "update jobid=7_0 ReqNodeList=n[3-4] NumNodes=2 TimeLimit=5 StartTime=now "
        f"AdminComment={TEXT}",
        "release 7_0",
    ]


def test_an_ended_fragment_is_put_back_before_it_is_marked() -> None:
    """Slurm (22.05) refuses to update a job that has finished."""
    said = lines(PutBack(A, Why.DIED, MARK, is_ended=True))
    assert said == ["requeue 7_0", "uhold 7_0", f"update jobid=7_0 AdminComment={TEXT}"]


def test_equal_renewals_share_a_line() -> None:
    renewals = [Renew(f, after(900)) for f in (*ids(0, 1, 2, 5), *ids(4, job=8))]
    assert lines(*renewals, Renew(FragmentId(7, 3), after(600))) == [
        f"update jobid=7_3 EndTime=uts{EPOCH + 600}",
        f"update jobid=7_[0-2,5] EndTime=uts{EPOCH + 900}",
        f"update jobid=8_4 EndTime=uts{EPOCH + 900}",
    ]


def test_all_holds_of_a_job_are_one_line() -> None:
    assert lines(*(Hold(f, Why.SECURED) for f in (*ids(0, 1, 2), *ids(4, job=8)))) == [
        "uhold 7_[0-2]",
        "uhold 8_4",
    ]


def test_fragments_of_a_job_are_put_back_and_marked_together() -> None:
    other = make_mark(make_request(), noticed=after(-9))
    assert lines(
        PutBack(A, Why.DIED, MARK, is_ended=True),
        PutBack(B, Why.NOTICE_OVER, other),
        PutBack(C, Why.DIED, MARK, is_ended=True, is_paused=True),
        PutBack(FragmentId(8, 0), Why.NOTICE_OVER),
    ) == [
        "requeue 7_[0-2]",
        "requeue 8_0",
        "uhold 7_0",
        f"update jobid=7_[0,2] AdminComment={TEXT}",
        f"update jobid=7_1 AdminComment={format_mark(other)}",
    ]


def test_plain_lines_share_a_process() -> None:
    some = [FragmentId(job, 0) for job in (7, 8, 9)]
    said = commands([PutBack(f, Why.NOTICE_OVER) for f in some], {})
    assert [c.argv for c in said] == [("scontrol",)]
    assert said[0].rpcs == 3


def test_a_word_that_is_not_plain_gets_its_own_process() -> None:
    notes = {B: 'it\'s "ours"; \0 | $(reboot)\nrelease 1', C: "site"}
    said = commands([SetMark(f, MARK, Why.NOTED) for f in (A, B, C)], notes)
    assert [len(c.argv) for c in said] == [1, 4, 1]
    comment = said[1].argv[-1]
    assert comment.startswith('AdminComment=it\'s "ours"; malleable{')
    assert comment.endswith("\nrelease 1")
    assert said[1].stdin == ""


def test_notices_to_many_share_one_signal() -> None:
    said = commands([Notice(f, MARK, Why.HOLE_CLOSES) for f in (A, B)], {})
    assert said[-1].argv == ("scancel", "--quiet", "--signal=URG", "--full", "7_[0-1]")
    assert said[-1].rpcs == 2


def test_the_site_s_note_is_kept() -> None:
    mark = make_mark(released=after(0))
    (line, _) = lines(Grow(A, frozenset({"n1"}), span(60), mark), notes={A: "site;\0"})
    assert f"AdminComment=site;{format_mark(mark)}" in line


@given(st.sets(st.tuples(st.integers(1, 3), st.integers(0, 40)), min_size=1))
def test_ranges_name_every_fragment_once(pairs: set[tuple[int, int]]) -> None:
    named = set()
    for word in ranges(FragmentId(*pair) for pair in pairs):
        job, _, rest = word.partition("_")
        assert re.fullmatch(r"\d+|\[[\d,-]+\]", rest)
        for part in rest.strip("[]").split(","):
            first, _, last = part.partition("-")
            named |= {(int(job), i) for i in range(int(first), int(last or first) + 1)}
    assert named == pairs
