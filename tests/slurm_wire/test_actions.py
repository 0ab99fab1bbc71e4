"""Intents as commands: their words, their order, and the commands that share a process."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from build import NOW, after, make_mark, make_node, make_request, span
from slurm_hooks.model import FragmentId, Intent, Mark, Slot, Verb, Why
from slurm_hooks.slurm.actions import commands, ranges
from slurm_hooks.slurm.mark import format_mark

MARK = make_mark(make_request(), noticed=NOW)
TEXT = format_mark(MARK)
EPOCH = int(NOW.timestamp())


def ids(*indexes: int, job: int = 7) -> list[FragmentId]:
    return [FragmentId(job, index) for index in indexes]


A, B, C = ids(0, 1, 2)


def grow(fragment: FragmentId, *nodes: str, limit_s: float, mark: Mark) -> Intent:
    limit = span(limit_s)
    return Intent(
        fragment, Why.HOLE_OPEN, Verb.GROW, mark=mark, nodes=frozenset(nodes), limit=limit
    )


def back(fragment: FragmentId, mark: Mark, is_held: bool = True) -> Intent:
    """Put back a fragment that has ended."""
    return Intent(fragment, Why.DIED, Verb.PUT_BACK, mark=mark, is_held=is_held, is_ended=True)


def lines(*intents: Intent, notes: dict[FragmentId, str] | None = None) -> list[str]:
    """Each line for scontrol, and each other command, in order."""
    said = []
    for command in commands(intents, notes or {}):
        said += command.stdin.splitlines() or [" ".join(command.argv)]
    return said


def test_an_empty_plan_runs_no_command() -> None:
    assert commands([], {}) == []


def test_holds_come_first_and_signals_last() -> None:
    said = lines(
        grow(A, "n3", "n4", limit_s=300, mark=MARK),
        *(Intent(f, Why.FINISHED, Verb.CANCEL) for f in ids(0, 1, job=9)),
        Intent(B, Why.NOT_STARTED, is_held=True),
        Intent(C, Why.NOTICE_OVER, Verb.PUT_BACK),
        Intent(FragmentId(8, 0), Why.HOLE_CLOSES, Verb.NOTICE, mark=MARK),
        Intent(FragmentId(8, 1), Why.HOLE_OPEN, end=after(900)),
    )
    assert said == [
        "uhold 7_1",
        f"update jobid=8_1 EndTime=uts{EPOCH + 900}",
        f"update jobid=8_0 AdminComment={TEXT}",
        "requeue 7_2",
        "scancel --quiet 9_[0-1]",
        "update jobid=7_0 ReqNodeList=n[3-4] NumNodes=2 TimeLimit=5 StartTime=now "
        f"AdminComment={TEXT}",
        "release 7_0",
        "scancel --quiet --signal=URG --full 8_0",
    ]


def test_an_ended_fragment_is_put_back_before_it_is_marked() -> None:
    """Slurm (22.05) refuses to update a job that has finished."""
    said = lines(back(A, MARK))
    assert said == ["requeue 7_0", "uhold 7_0", f"update jobid=7_0 AdminComment={TEXT}"]


def test_equal_renewals_share_a_line() -> None:
    renewals = [
        Intent(f, Why.HOLE_OPEN, end=after(900)) for f in (*ids(0, 1, 2, 5), *ids(4, job=8))
    ]
    assert lines(*renewals, Intent(FragmentId(7, 3), Why.HOLE_OPEN, end=after(600))) == [
        f"update jobid=7_3 EndTime=uts{EPOCH + 600}",
        f"update jobid=7_[0-2,5] EndTime=uts{EPOCH + 900}",
        f"update jobid=8_4 EndTime=uts{EPOCH + 900}",
    ]


def test_all_holds_of_a_job_share_a_line() -> None:
    assert lines(
        *(Intent(f, Why.SECURED, is_held=True) for f in (*ids(0, 1, 2), *ids(4, job=8)))
    ) == [
        "uhold 7_[0-2]",
        "uhold 8_4",
    ]


def test_fragments_of_a_job_are_put_back_and_marked_together() -> None:
    other = make_mark(make_request(), noticed=after(-9))
    assert lines(
        back(A, MARK),
        Intent(B, Why.NOTICE_OVER, Verb.PUT_BACK, mark=other),
        back(C, MARK, is_held=False),
        Intent(FragmentId(8, 0), Why.NOTICE_OVER, Verb.PUT_BACK),
    ) == [
        f"update jobid=7_1 AdminComment={format_mark(other)}",
        "requeue 7_[0-2]",
        "requeue 8_0",
        "uhold 7_0",
        f"update jobid=7_[0,2] AdminComment={TEXT}",
    ]


def test_plain_lines_share_a_process() -> None:
    some = [FragmentId(job, 0) for job in (7, 8, 9)]
    said = commands([Intent(f, Why.NOTICE_OVER, Verb.PUT_BACK) for f in some], {})
    assert [c.argv for c in said] == [("scontrol",)]
    assert said[0].rpcs == 3


def test_a_word_that_is_not_plain_gets_its_own_process() -> None:
    notes = {B: 'it\'s "ours"; \0 | $(reboot)\nrelease 1', C: "site"}
    said = commands([Intent(f, Why.NOTED, mark=MARK) for f in (A, B, C)], notes)
    assert [len(c.argv) for c in said] == [1, 4, 1]
    comment = said[1].argv[-1]
    assert comment.startswith('AdminComment=it\'s "ours"; malleable{')
    assert comment.endswith("\nrelease 1")
    assert said[1].stdin == ""


def test_notices_to_many_share_a_signal() -> None:
    said = commands([Intent(f, Why.HOLE_CLOSES, Verb.NOTICE, mark=MARK) for f in (A, B)], {})
    assert said[-1].argv == ("scancel", "--quiet", "--signal=URG", "--full", "7_[0-1]")
    assert said[-1].rpcs == 2


def test_the_site_s_note_is_kept() -> None:
    mark = make_mark(released=after(0))
    (line, _) = lines(grow(A, "n1", limit_s=60, mark=mark), notes={A: "site;\0"})
    assert f"AdminComment=site;{format_mark(mark)}" in line


def slots(
    fragment: FragmentId, node: str, count: int, gres: str = "gpu", is_resized: bool = True
) -> Intent:
    """Give a fragment so many slots of a GPU, or of a core."""
    request = replace(make_request(), slot=Slot(gres, 3, 10_000), excluded=frozenset())
    asks = request.slot.on(make_node(cpus=32, memory_mib=256_000)).times(count)
    intent = grow(fragment, node, limit_s=300, mark=make_mark(request, slots=count))
    return replace(intent, asks=asks, is_resized=is_resized)


def size_of(intent: Intent) -> list[str]:
    """The words between limit and StartTime."""
    line, _ = lines(intent)
    words = line.split(" ")
    return words[words.index("TimeLimit=5") + 1 : words.index("StartTime=now")]


@pytest.mark.parametrize(
    ("gres", "words"), [("gpu", ["Gres=gpu:4"]), ("gpu:a100", ["Gres=gpu:a100:4"]), ("", [])]
)
def test_the_size_of_a_fragment_is_written_with_its_node(gres: str, words: list[str]) -> None:
    cpus = ["CpusPerTask=12", "NumCPUs=12", "MinCPUsNode=12"]
    assert size_of(slots(A, "n1", 4, gres)) == [*words, *cpus, "MinMemoryNode=40000"]


def test_a_size_that_slurm_has_is_not_written() -> None:
    assert size_of(slots(A, "n1", 4, is_resized=False)) == []


def test_each_fragment_that_counts_slots_has_its_own_line() -> None:
    """Slurm could start two fragments of a group on the same node, and gives a range no GPUs."""
    some = [slots(A, "n1", 2), slots(B, "n2", 2), slots(C, "n3", 2, is_resized=False)]
    names = [f"n{i}" for i in range(1, 5)]
    written = [c.stdin.splitlines() for c in commands(some, {}, names)]
    *updates, release = [line for block in written for line in block]
    assert [u.split(" ")[1:3] for u in updates] == [
        ["jobid=7_0", "ExcNodeList=n[2-4]"],
        ["jobid=7_1", "ExcNodeList=n[1,3-4]"],
        ["jobid=7_2", "ExcNodeList=n[1-2,4]"],
    ]
    assert (len(written), release) == (2, "release 7_[0-2]")


def test_a_fragment_with_unknown_exclusions_is_tied_to_its_node() -> None:
    intent = slots(A, "n1", 1)
    assert intent.mark is not None
    request = replace(intent.mark.request, excluded=None)
    line, _ = lines(replace(intent, mark=replace(intent.mark, request=request)))
    assert " ReqNodeList=n1 NumNodes=1 TimeLimit=5 Gres=gpu:1 " in line


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


def test_the_partition_of_a_part_is_written_with_its_node() -> None:
    part = replace(slots(A, "n1", 4, is_resized=False), lane="malleable")
    assert size_of(part) == ["Partition=malleable"]
