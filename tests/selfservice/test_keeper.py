"""The elements of a job keep it up, in a simulated cluster whose clock is a number."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

import pytest

from slurm_hooks.elastic.selfservice.keeper import AGAIN_S, Ended, Hopeless, Keeper, Slurm
from slurm_hooks.elastic.selfservice.notes import Notes
from slurm_hooks.elastic.selfservice.plan import Plan

BACK_S = 121.0  # so long Slurm keeps a requeued element back
ARRAY = 7
MIN_JOB_AGE_S = 300
HOUR_S = 3600


@dataclass
class Element:
    eligible: float = 0.0
    keeper: Optional[Keeper] = None
    began: float = 0.0
    next_call: float = 0.0
    trains: bool = False
    leaves_at: Optional[float] = None
    state: str = ""  # in which it has ended
    ended: float = 0.0
    held_s: float = 0.0  # on a node without training


@dataclass
class World:
    """A job of `fewest` to `most` elements on some `nodes`."""

    directory: Path
    fewest: int
    most: int
    nodes: int
    lease_s: int = 3600
    now: float = 1_000_000.0
    has_agent: bool = True
    says: str = "joined"
    joins_s: float = 0.0  # from its begin until its agent reports
    hears: bool = True  # the agent leaves when it is asked to
    is_deaf: bool = False  # squeue does not answer
    asked: int = 0
    changed: int = 0
    elements: dict[int, Element] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    cut: set[int] = field(default_factory=set)  # requeued before its agent has left

    def __post_init__(self) -> None:
        self.elements = {n: Element() for n in range(self.most)}
        request = f"{self.fewest}-{self.most},unit=1,engine=torchrun"
        self.plan = Plan("s", ("sh",), request, "c", self.lease_s, "/path")
        self.notes = Notes(self.directory)

    def running(self) -> list[int]:
        return [n for n, element in self.elements.items() if element.keeper]

    def training(self) -> int:
        return sum(element.trains for element in self.elements.values())

    def pass_time(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now += 1.0
            self._start()
            for fragment, element in self.elements.items():
                if element.keeper:
                    self._turn(fragment, element)

    def _start(self) -> None:
        for fragment, element in self.elements.items():
            may = not element.keeper and not element.state and element.eligible <= self.now
            if may and len(self.running()) < self.nodes:
                slurm = Slurm(self.ask, self.tell)
                words = {"SLURM_ARRAY_JOB_ID": str(ARRAY), "SLURM_ARRAY_TASK_ID": str(fragment)}
                dice = random.Random(f"{fragment} {self.now}")
                keeper = Keeper(self.plan, words, self.notes, slurm, lambda: self.now, dice)
                self.elements[fragment] = Element(
                    keeper=keeper, began=self.now, next_call=self.now, held_s=element.held_s
                )
                self.notes.come(fragment)

    def _turn(self, fragment: int, element: Element) -> None:
        keeper = element.keeper
        assert keeper
        if self.now >= element.began + self.lease_s:
            self.end(fragment, "TIMEOUT")
            self.lost.add(fragment)
        elif element.leaves_at and self.now >= element.leaves_at:
            keeper.requeue()
        elif element.trains:
            keeper.attend()
        else:
            element.held_s += 1.0
            if self.now >= element.next_call:
                self._begin(keeper, element)

    def _begin(self, keeper: Keeper, element: Element) -> None:
        may_begin = keeper.may_begin()
        if may_begin:
            element.trains = True
        elif may_begin is None:
            element.next_call = self.now + keeper.pause_s
        else:
            element.next_call = self.now + AGAIN_S
            keeper.requeue()

    def end(self, fragment: int, state: str) -> None:
        began, held_s = self.elements[fragment].began, self.elements[fragment].held_s
        self.elements[fragment] = Element(state=state, began=began, ended=self.now, held_s=held_s)

    def ask(self, argv: Sequence[str]) -> str:
        self.asked += 1
        known = (n for n, element in self.elements.items() if not self._is_forgotten(element))
        return "" if self.is_deaf else "".join(map(self._row, known))

    def _is_forgotten(self, element: Element) -> bool:
        return bool(element.state) and self.now - element.ended > MIN_JOB_AGE_S

    def _row(self, fragment: int) -> str:
        element = self.elements[fragment]
        state, why = "PENDING", "BeginTime" if element.eligible > self.now else "Resources"
        starts = ends = 0.0
        if element.state:
            state, starts, ends = element.state, element.began, element.ended
        elif element.keeper:
            state, why = "RUNNING", "None"
            starts, ends = element.began, element.began + self.lease_s
        has_joined = self.has_agent and self.now - element.began > self.joins_s
        comment = f"{self.says}{{0}}" if has_joined else "(null)"
        return f"{ARRAY}|{fragment}|{state}|{why}|{starts:.0f}|{ends:.0f}|{comment}\n"

    def tell(self, *argv: str) -> str:
        self.changed += 1
        fragments = [int(n) for n in re.findall(r"\d+", " ".join(argv).partition(f"{ARRAY}_")[2])]
        for fragment in fragments:
            self._do(argv, self.elements.get(fragment))
        return ""

    def _do(self, argv: Sequence[str], element: Optional[Element]) -> None:
        if element is None:
            return
        number = next(n for n, known in self.elements.items() if known is element)
        if argv[1] == "requeue":
            if element.trains and element.leaves_at is None:
                self.cut.add(number)
            self.elements[number] = Element(self.now + BACK_S, held_s=element.held_s)
            if element.keeper:
                self.notes.leave(number)
        elif "--signal=URG" in argv:
            element.leaves_at = self.now + 3 if self.has_agent and self.hears else None
        elif argv[0] == "scancel":
            self.end(number, "CANCELLED")
        elif argv[1] == "update" and not element.keeper:
            word = argv[-1].partition("+")[2]
            element.eligible = self.now + float(word or 0)


def test_below_min_the_nodes_are_free_most_of_the_time(tmp_path: Path) -> None:
    """Also if the elements begin at different times."""
    world = World(tmp_path, fewest=3, most=6, nodes=1)
    world.pass_time(40)
    world.nodes = 2
    world.asked = world.changed = 0
    world.pass_time(2 * HOUR_S)
    assert world.training() == 0
    held_s = sum(element.held_s for element in world.elements.values())
    assert held_s < 0.3 * 2 * 2 * HOUR_S, held_s
    assert world.asked / 120 < 4, world.asked
    assert world.changed / 120 < 2, world.changed
    world.nodes = 6
    world.pass_time(600)
    assert world.training() == 6


@pytest.mark.parametrize("has_agent", [True, False])
def test_leases_end_in_time_and_nodes_stay_in_use(tmp_path: Path, has_agent: bool) -> None:
    world = World(tmp_path, fewest=1, most=16, nodes=16, has_agent=has_agent)
    world.pass_time(60)
    world.asked = 0
    sizes = []
    for _ in range(6 * 360):
        world.pass_time(10)
        sizes.append(world.training())
    assert world.lost == set()
    assert sum(sizes) / (6 * 360 * 16) > 0.97
    assert min(sizes) > 8
    assert world.asked / 360 < 3, world.asked
    assert world.changed / 6 < (100 if has_agent else 200), world.changed


def test_an_agent_that_no_look_has_seen_leaves_by_itself(tmp_path: Path) -> None:
    world = World(tmp_path, fewest=1, most=16, nodes=16, joins_s=HOUR_S)
    world.pass_time(2 * HOUR_S)
    assert world.cut == set()
    assert world.changed > 32


def test_an_agent_in_a_long_step_is_asked_to_leave_a_few_times(tmp_path: Path) -> None:
    world = World(tmp_path, fewest=1, most=4, nodes=4, hears=False)
    world.pass_time(HOUR_S)
    assert world.lost == set()
    assert world.changed < 4 * 20, world.changed


def test_a_slurm_that_does_not_answer_loses_no_element(tmp_path: Path) -> None:
    world = World(tmp_path, fewest=2, most=4, nodes=4)
    world.pass_time(30)
    assert world.training() == 4
    world.is_deaf, world.asked = True, 0
    world.pass_time(4 * HOUR_S)
    assert world.lost == set()
    assert world.asked < 4 * 60


def test_a_node_that_is_free_again_is_used_within_seconds(tmp_path: Path) -> None:
    world = World(tmp_path, fewest=1, most=4, nodes=4)
    world.pass_time(60)
    world.tell("scontrol", "requeue", f"{ARRAY}_2")
    world.pass_time(30)
    assert world.training() == 4


def test_a_node_that_was_cut_off_does_not_end_the_next_run(tmp_path: Path) -> None:
    world = World(tmp_path, fewest=1, most=1, nodes=1)
    world.pass_time(100)
    keeper = world.elements[0].keeper
    assert keeper
    before = world.changed
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world, "ask", lambda argv: "RUNNING 1")
        slurm = Slurm(world.ask, world.tell)
        patch.setattr(keeper, "_slurm", slurm)
        with pytest.raises(Ended):
            keeper.requeue()
    assert world.changed == before


@pytest.mark.parametrize("fewest", [1, 4])
@pytest.mark.parametrize(
    "state", ["PREEMPTED", "TIMEOUT", "FAILED", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL"]
)
def test_an_element_that_has_ended_comes_again(tmp_path: Path, state: str, fewest: int) -> None:
    world = World(tmp_path, fewest=fewest, most=4, nodes=4)
    world.pass_time(60)
    world.end(2, state)
    world.pass_time(300)
    assert world.training() == 4


def test_a_broken_node_does_not_use_the_elements_up(tmp_path: Path) -> None:
    """Elements end there after two seconds. Three other nodes are sound."""
    world = World(tmp_path, fewest=1, most=16, nodes=3)
    world.pass_time(60)
    starts = 0
    for _ in range(2 * HOUR_S // 10):
        world.nodes = 4
        world.pass_time(2)
        world.nodes = 3
        if len(world.running()) > 3:
            world.end(max(world.running(), key=lambda n: world.elements[n].began), "FAILED")
            starts += 1
        world.pass_time(8)
    world.nodes = 16
    world.pass_time(1.5 * HOUR_S)
    assert world.training() == 16
    assert starts < 16 * 6, starts


def test_a_cancelled_element_does_not_come_again(tmp_path: Path) -> None:
    world = World(tmp_path, fewest=1, most=4, nodes=4)
    world.pass_time(60)
    world.end(2, "CANCELLED")
    world.pass_time(600)
    assert world.training() == 3


def test_an_element_that_is_killed_again_and_again_rests_for_an_hour(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World(tmp_path, fewest=1, most=4, nodes=4, lease_s=4 * HOUR_S)
    for run_s in (400, HOUR_S, 400, 400):
        world.pass_time(run_s)
        assert world.training() == 4
        world.end(2, "OUT_OF_MEMORY")
    world.pass_time(HOUR_S - 200)
    assert world.training() == 3
    assert capsys.readouterr().err.count("fragment 2 rests for an hour") == 1
    world.pass_time(400)
    assert world.training() == 4


@pytest.mark.parametrize(("most", "left"), [(16, 4), (64, 4), (16, 1)])
def test_most_elements_may_be_lost_at_once_without_a_note(
    tmp_path: Path, most: int, left: int
) -> None:
    world = World(tmp_path, fewest=1, most=most, nodes=most)
    world.pass_time(300)
    for fragment in range(left, most):
        world.end(fragment, "PREEMPTED")
    world.pass_time(600)
    assert world.training() == most


def test_below_min_the_survivors_of_a_loss_rest_soon(tmp_path: Path) -> None:
    world = World(tmp_path, fewest=32, most=64, nodes=64)
    world.pass_time(300)
    world.nodes = 4
    for fragment in range(4, 64):
        world.end(fragment, "PREEMPTED")
    world.pass_time(300)
    assert world.training() == 0


def test_failures_of_long_ago_do_not_end_a_job(tmp_path: Path) -> None:
    world = World(tmp_path, fewest=1, most=4, nodes=4, lease_s=3 * HOUR_S, says="trained")
    for fragment in (1, 2, 3):
        world.notes.fail(fragment, 0)
    world.pass_time(2 * HOUR_S)
    assert world.notes.failed() == frozenset()


def test_a_job_that_can_never_reach_min_ends(tmp_path: Path) -> None:
    world = World(tmp_path, fewest=3, most=3, nodes=3)
    world.pass_time(30)
    assert world.training() == 3
    world.end(1, "CANCELLED")
    with pytest.raises(Hopeless, match="2 of its elements are left, and MIN needs 3"):
        world.pass_time(HOUR_S)
