"""What the elements of a job do for each other where no tick does it."""

from __future__ import annotations

import os
import time
from pathlib import Path

from slurm_hooks.elastic.agent.old_jobs import _FILES
from slurm_hooks.elastic.selfservice import upkeep
from slurm_hooks.elastic.selfservice.notes import CLAIM_S, OLD_S, Notes

ANSWER = """\
7|0|RUNNING|None|100|700|trained{0};h{3}r
7|1|PENDING|BeginTime|221|821|trained{0};progress{n1,4:2/8/0}
7|2|PENDING|JobHeldUser|N/A|N/A|(null)
7|3|PENDING|Priority|N/A|N/A|a | b
7|4|COMPLETING|None|100|700|(null)
junk
"""


def fragments(known: list[upkeep.Row]) -> list[int]:
    return [row.fragment for row in known]


def test_only_elements_that_slurm_keeps_back_are_woken() -> None:
    known = upkeep.rows(ANSWER)
    assert fragments(upkeep.kept_back(known)) == [1]
    assert fragments(upkeep.pending(known)) == [1, 2, 3]
    assert upkeep.running(known) == 1
    assert upkeep.settled(known) == {0, 1, 2, 3}
    assert upkeep.name(upkeep.pending(known)) == "7_[1,2,3]"


AGAIN = """\
7|0|PREEMPTED|None|100|700|trained{0}
7|1|TIMEOUT|TimeLimit|100|700|trained{0}
7|2|CANCELLED|None|100|700|(null)
7|3|FAILED|JobLaunchFailure|100|700|joined{0}
7|4|COMPLETED|None|100|700|(null)
7|5|DEADLINE|None|100|700|(null)
"""


def test_what_nobody_has_cancelled_is_wanted_again() -> None:
    lost = upkeep.lost(upkeep.rows(AGAIN))
    assert fragments(lost) == [0, 1, 3]
    assert fragments([row for row in lost if row.was_taken]) == [0, 1]


def test_an_end_is_claimed_by_one_other(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    claims = [
        notes.claim(1, 700, 720),
        Notes(tmp_path).claim(1, 700, 721),
        notes.claim(1, 900, 960),
    ]
    assert claims == [True, False, True]
    assert notes.claim(1, 900, 960 + CLAIM_S)


def test_progress_counts_in_its_own_run_only() -> None:
    row = upkeep.rows(ANSWER)[0]
    assert row.has_trained(0)
    assert not row.has_trained(1)


def test_a_slow_slurm_is_asked_less_often() -> None:
    assert upkeep.each_s(0.1) == upkeep.EACH_S
    assert upkeep.each_s(3.0) == 3 * upkeep.EACH_S
    assert upkeep.each_s(30.0) == upkeep.SLOW * upkeep.EACH_S


def test_leases_that_begin_together_end_apart_and_all_in_time() -> None:
    moments = [upkeep.leave_at(10_000, 3600, share / 10) for share in range(11)]
    assert max(moments) <= 10_000 - upkeep.LEAVE_S
    assert min(moments) >= 10_000 - 3600 / 2 - upkeep.LEAVE_S
    assert len(set(moments)) == 11
    assert upkeep.leave_at(1120, 120, 1.0) >= 1000


def test_notes_are_taken_back(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    notes.leave(2)
    notes.leave(3)
    assert notes.left() == {2, 3}
    notes.come(3)
    notes.meet({2, 5})
    assert notes.left() == frozenset()
    notes.leave(4)
    os.utime(tmp_path / "left-4", (0, time.time() - OLD_S - 1))
    assert notes.left() == frozenset()


def test_failures_count_for_each_run_of_a_fragment_until_there_is_progress(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    assert [notes.fail(0, 0), notes.fail(0, 0), notes.fail(0, 1), notes.fail(10, 1)] == [1, 1, 2, 1]
    assert notes.failed() == {0, 10}
    notes.forget_failures(0)
    assert notes.failed() == {10}


def test_failures_that_cannot_be_counted_are_not_repeated_for_ever(tmp_path: Path) -> None:
    assert Notes(tmp_path / "gone").fail(0, 0) > 3


def test_only_the_first_gives_the_job_up(tmp_path: Path) -> None:
    assert [Notes(tmp_path).give_up(), Notes(tmp_path).give_up()] == [True, False]


def test_old_jobs_are_removed_with_their_notes(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    notes.rest(5.0)
    notes.leave(1)
    notes.fail(1, 2)
    notes.give_up()
    notes.finish()
    notes.claim(7, 3, 5.0)
    notes.look(7.0)
    notes.put_off(4, 9.0)
    assert (notes.late(8.0), notes.late(9.0)) == ({4}, frozenset())
    assert (notes.rests_until(), notes.looked_at()) == (5.0, 7.0)
    assert [path.name for path in tmp_path.iterdir() if not _FILES.fullmatch(path.name)] == []


def test_notes_of_an_earlier_job_with_the_same_number_are_forgotten(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    notes.finish()
    notes.fail(1, 2)
    (tmp_path / "state.3").touch()
    submitted = 1_800_000_000
    for name, at in (("finished", -5), ("failed-1.2", 5), ("state.3", -5)):
        os.utime(tmp_path / name, (0, submitted + at))
    notes.forget_older(submitted)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["failed-1.2", "state.3"]
