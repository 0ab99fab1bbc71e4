"""A pool of workers over a queue of tasks, through all events of Slurm and its users.

No task is lost, the pool ends, and it is never larger than its wish.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

import pytest

from fake_parts import START, Element, Rigid, Script
from fake_slurm import FakeSlurm
from planning.whole_ticks import one_tick
from slurm_hooks.errors import RetryLater
from slurm_hooks.model import Plan, Verb

TICK_S = 10
MARK = "malleable{{min=0,max={most},unit=1,engine=pool,frags={most},lease=600,hole=120}}"
GANG = "malleable{min=3,max=6,unit=1,engine=torchrun,frags=6,lease=600,hole=120}"


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def tick(slurm: FakeSlurm) -> Plan:
    is_disturbed = bool(slurm.fates)
    try:
        report = one_tick(slurm)
    except RetryLater:
        assert is_disturbed
        return Plan()
    finally:
        slurm.fates.clear()
    assert is_disturbed or report.refused == ()
    return report.plan


def live(slurm: FakeSlurm, seconds: int, meanwhile: Callable[[], None] = lambda: None) -> None:
    for _ in range(seconds // TICK_S):
        tick(slurm)
        meanwhile()
        slurm.advance(TICK_S)


def cluster(count: int = 6, most: int = 6) -> FakeSlurm:
    slurm = FakeSlurm({f"n{i}": "" for i in range(1, count + 1)})
    slurm.submit(1, most, MARK.format(most=most), script=Script(joins=False))
    return slurm


def until_over(slurm: FakeSlurm, seconds: int = 2500) -> None:
    for _ in range(seconds // TICK_S):
        if is_over(slurm):
            return
        live(slurm, TICK_S)


def running(slurm: FakeSlurm, job: int = 1) -> list[Element]:
    return [e for e in slurm.elements.values() if e.job == job and e.state == "RUNNING"]


def is_over(slurm: FakeSlurm, job: int = 1) -> bool:
    left = {e.state for e in slurm.of(job)}
    return left <= {"COMPLETED", "CANCELLED"}


def starts(slurm: FakeSlurm) -> int:
    return sum(line.endswith("RUNNING") for line in slurm.history)


@dataclass
class Tasks:
    """A queue as a user may have it. A worker takes a task, and returns tasks of lost workers to
    it.

    A worker without a task ends with exit code 0.
    """

    slurm: FakeSlurm
    left: list[int]
    task_s: int = 25
    taken: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)  # task, since
    done: list[int] = field(default_factory=list)

    def worker(self, element: Element, ran_s: int) -> Optional[int]:
        """A second of a worker (see FakeSlurm.outcome)."""
        if element.job != 1:
            return None
        me = (element.name, element.restarts)
        task, since = self.taken.get(me, (-1, 0))
        if task >= 0 and ran_s - since < self.task_s:
            return None
        if task >= 0:
            self.done.append(task)
            del self.taken[me]
        self._take_back()
        if not self.left:
            return 0
        self.taken[me] = (self.left.pop(0), ran_s)
        return None

    def _take_back(self) -> None:
        runs = {(e.name, e.restarts) for e in running(self.slurm)}
        for owner in [owner for owner in self.taken if owner not in runs]:
            self.left.append(self.taken.pop(owner)[0])


def tasks_on(slurm: FakeSlurm, count: int, task_s: int = 25) -> Tasks:
    tasks = Tasks(slurm, list(range(count)), task_s)
    slurm.outcome = tasks.worker
    return tasks


def wish(slurm: FakeSlurm, index: int, nodes: int) -> None:
    slurm.does(f"scontrol update 1_{index} Comment=wish{{{nodes},{slurm.now}}}", "nobody")


def test_a_pool_takes_all_nodes_works_and_ends() -> None:
    slurm = cluster()
    tasks = tasks_on(slurm, 40)
    live(slurm, 40)
    assert len(running(slurm)) == 6
    live(slurm, 260)
    assert sorted(tasks.done) == list(range(40))
    assert is_over(slurm)
    assert starts(slurm) == 6  # no worker starts that would find no task


def test_a_finished_worker_s_node_is_given_to_others_while_the_last_worker_works() -> None:
    slurm = cluster(4, 4)
    tasks_on(slurm, 3, 200)
    slurm.outcome = _later(slurm.outcome, "1_0", 900)
    live(slurm, 300)
    assert [e.name for e in running(slurm)] == ["1_0"]
    slurm.submit(2, 6, GANG)
    live(slurm, 100)
    assert len(running(slurm, 2)) == 3
    assert starts(slurm) == 4 + 3


def test_workers_that_report_the_end_and_go_on_make_room_in_the_end() -> None:
    slurm = cluster(4, 4)
    live(slurm, 100)
    slurm.does("scontrol update 1 Comment=finished{0}", "nobody")
    slurm.submit(2, 6, GANG)
    live(slurm, 3000)
    assert len(running(slurm)) == 4
    live(slurm, 1500)
    assert not running(slurm)
    assert len(running(slurm, 2)) == 4


def _later(
    outcome: Callable[[Element, int], Optional[int]], name: str, after_s: int
) -> Callable[[Element, int], Optional[int]]:
    def late(element: Element, ran_s: int) -> Optional[int]:
        return outcome(element, ran_s) if element.name != name or ran_s > after_s else None

    return late


@pytest.mark.parametrize("seed", range(6))
def test_after_any_events_every_task_is_done_once_and_the_pool_ends(seed: int) -> None:
    """The pool meets preemptions, drained and lost nodes, wishes and cancels, and an operator's
    hold.

    Some ticks run only half of their commands. In gaps between ticks Slurm forgets ended workers.
    """
    chance = random.Random(seed)
    slurm = cluster(6, 8)
    slurm.min_job_age_s = 300
    tasks = tasks_on(slurm, 60, chance.randint(5, 60))

    def something() -> None:
        now, workers = slurm.now, running(slurm)
        what = chance.random() if now < START + 1000 else 1.0
        if what < 0.1 and workers:
            slurm.preempt(chance.choice(workers).name)
        elif what < 0.15:
            slurm.nodes[chance.choice(sorted(slurm.nodes))] = "+DRAIN"
        elif what < 0.2 and workers:
            slurm.fail_node(min(chance.choice(workers).nodes))
        elif what < 0.3:
            wish(slurm, chance.randrange(8), chance.choice([0, 1, 3, 8, 99]))
        elif what < 0.35:
            some = frozenset(chance.sample(sorted(slurm.nodes), 2))
            slurm.rigid.append(Rigid(900 + now, some, now, now, chance.randint(20, 90)))
        elif what < 0.4:
            slurm.advance(chance.choice([60, 200, 400]))
        elif what < 0.43 and len([e for e in slurm.of(1) if e.state != "CANCELLED"]) > 5:
            slurm.does(f"scancel 1_{chance.randrange(8)}", "nobody")
        elif what < 0.46:
            slurm.does(f"scontrol {chance.choice(['hold', 'uhold', 'requeue'])} 1_6")
        elif what < 0.52:
            slurm.fates += chance.choices(["", "refused", "dropped", "unanswered", "cut"], k=3)
        else:
            slurm.nodes = dict.fromkeys(slurm.nodes, "")

    live(slurm, 1000, something)
    if not is_over(slurm):
        some = next(e.index for e in slurm.of(1) if e.state in ("PENDING", "RUNNING"))
        wish(slurm, some, 8)
        slurm.does("scontrol release 1_6")
    until_over(slurm)
    assert sorted(tasks.done) == list(range(60))
    assert is_over(slurm)
    assert slurm.violations == []


def test_after_a_wish_for_0_nodes_a_pool_waits_and_goes_on() -> None:
    slurm = cluster()
    tasks = tasks_on(slurm, 30, 60)
    live(slurm, 60)
    wish(slurm, 3, 0)
    live(slurm, 60)
    assert running(slurm) == []
    live(slurm, 1000)
    assert running(slurm) == []
    assert not is_over(slurm)
    wish(slurm, 0, 2)
    live(slurm, 60)
    assert len(running(slurm)) == 2
    until_over(slurm)
    assert sorted(tasks.done) == list(range(30))
    assert is_over(slurm)


def test_a_pool_of_failing_workers_is_stopped_after_few_starts() -> None:
    slurm = cluster(20, 20)
    slurm.outcome = lambda element, ran_s: 9 if ran_s >= 2 else None
    live(slurm, 300)
    assert {e.state for e in slurm.elements.values()} == {"CANCELLED"}
    assert any("stop=failed-3-times:exit-9:0-on-n" in e.admin_comment for e in slurm.of(1))
    assert starts(slurm) == 20 + 1 + 1


def test_a_single_worker_that_fails_repeatedly_does_not_stop_the_others() -> None:
    slurm = cluster(6, 6)
    slurm.outcome = lambda e, ran_s: 9 if "n2" in e.nodes and ran_s >= 2 else None
    live(slurm, 900)
    assert {n for e in running(slurm) for n in e.nodes} == {"n1", "n3", "n4", "n5", "n6"}
    assert sum(line.endswith("FAILED") for line in slurm.history) <= 2


def test_a_pool_survives_a_start_before_its_scheduler() -> None:
    """All workers fail at once. Then a single worker lives, then all do."""
    slurm = cluster(6, 6)
    ready = START + 60
    slurm.outcome = lambda e, ran_s: 1 if ran_s >= 2 and slurm.now < ready else None
    live(slurm, 60)
    assert running(slurm) == []
    live(slurm, 60)
    assert len(running(slurm)) == 1
    live(slurm, 120)
    assert len(running(slurm)) == 6


def test_a_gang_that_comes_later_gets_its_minimum_from_a_full_pool() -> None:
    slurm = cluster(6, 6)
    tasks_on(slurm, 500)
    live(slurm, 100)
    slurm.submit(2, 6, GANG)
    live(slurm, 120)
    assert len(running(slurm, 2)) >= 3
    assert len(running(slurm, 1)) + len(running(slurm, 2)) == 6


def test_a_pool_at_rest_is_left_alone() -> None:
    slurm = cluster()
    live(slurm, 100)
    assert [a for a in tick(slurm).actions if a.verb is not Verb.NOTICE] == []
