"""Whether a fragment stays until a planned start takes its node depends on the
interruption's cost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

import pytest

from build import (
    after,
    make_fragment,
    make_job,
    make_nodes,
    make_request,
    make_slurm,
    make_snapshot,
    plan_start,
    reserve,
    span,
)
from planning.readings import grown, noticed, plan_for
from slurm_hooks.model import (
    FragmentId,
    FragmentState,
    Intent,
    MalleableJob,
    NodeState,
    Plan,
    Snapshot,
    Verb,
    Why,
)
from slurm_hooks.planning.check import Half, check
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.holes import Holes
from slurm_hooks.planning.interruptions import interruptions_of, pays_to_stay
from slurm_hooks.settings.values import Mode, Settings, Tick

SETTINGS = Settings(mode=Mode("on"), tick=Tick(every_s=30))
RUNNING = FragmentState.RUNNING
FLEE_S = 140.0  # margin, KillWait, notice and a tick


def trainer(
    size: int, loss_s: Optional[float], held: int = 0, redoes: bool = False
) -> MalleableJob:
    """Make a job on n1 to n`size` whose leases end in 100 s."""
    request = make_request(1, 8)
    times = {"start": after(-500), "limit": span(600), "request": request, "redoes": redoes}
    parts = [make_fragment(i, RUNNING, [f"n{i + 1}"], loss_s=loss_s, **times) for i in range(size)]
    return make_job(*parts, held=held, request=request)


def seen_with(job: MalleableJob, *wanted: str, start_s: float, free: int = 0) -> Snapshot:
    busy = make_nodes(len(job.nodes), NodeState.BUSY)
    nodes = (*busy, *make_nodes(len(busy) + free)[len(busy) :])
    return make_snapshot(job, nodes=nodes, planned=[plan_start(wanted, start_s)])


@pytest.mark.parametrize(
    ("loss_s", "size", "taken", "stays"),
    [(1, 9, 1, True), (600, 8, 8, False), (140, 2, 1, True), (141, 2, 1, False), (140, 3, 3, True)],
)
def test_an_interruption_of_all_is_weighed_against_leaving_with_some(
    loss_s: float, size: int, taken: int, stays: bool
) -> None:
    assert pays_to_stay(loss_s, size, taken, FLEE_S) is stays


def test_leaving_costs_all_that_is_kept_clear_before_an_end() -> None:
    assert interruptions_of(Ground(make_snapshot(), SETTINGS)).flee_s(trainer(1, None)) == FLEE_S
    assert interruptions_of(Ground(make_snapshot(), SETTINGS)).worst_s == 600


@pytest.mark.parametrize(("loss_s", "leavers"), [(1.0, []), (600.0, [0]), (None, [0])])
def test_only_a_job_with_cheap_interruptions_stays_to_a_planned_start(
    loss_s: Optional[float], leavers: list[int]
) -> None:
    plan = plan_for(seen_with(trainer(2, loss_s), "n1", start_s=100))
    assert list(noticed(plan)) == leavers
    ends = {str(a.fragment): a.end for a in plan.actions if a.end is not None}
    assert (ends.get("7_0", after(0)) > after(100)) is (leavers == [])


def test_a_job_that_redoes_as_much_after_leaving_ahead_does_not_leave() -> None:
    assert not noticed(plan_for(seen_with(trainer(2, 600.0, redoes=True), "n1", start_s=100)))
    for redoes, gained in ((False, {"n3"}), (True, {"n2", "n3"})):
        soon = seen_with(trainer(1, 200.0, 3, redoes=redoes), "n2", start_s=130, free=2)
        assert grown(plan_for(soon)) == gained


@pytest.mark.parametrize(("loss_s", "grows"), [(60.0, True), (600.0, False), (None, True)])
def test_a_change_is_weighed_against_repeated_work(loss_s: Optional[float], grows: bool) -> None:
    """A node more is worth half of two minutes to a job of two. Half of an interruption is
    done again.
    """
    job = trainer(2, loss_s, held=1, redoes=loss_s is not None)
    seen = make_snapshot(job, nodes=(*make_nodes(2, NodeState.BUSY), *make_nodes(3)[2:]))
    assert bool(grown(plan_for(seen))) is grows


def test_the_nodes_that_a_start_takes_are_a_single_interruption() -> None:
    job = trainer(3, 140.0)
    assert list(noticed(plan_for(seen_with(job, "n1", start_s=100)))) == [0]
    assert not noticed(plan_for(seen_with(job, "n1", "n2", start_s=100)))


def test_a_reservation_is_a_wall_for_every_job() -> None:
    job = trainer(2, 0.0)
    nodes = make_nodes(2, NodeState.BUSY)
    sooner = [plan_start(["n1"], 100)]  # hides the reservation behind it
    walls = [reserve(["n1"], 130), reserve(["n2"], 600)]
    plan = plan_for(make_snapshot(job, nodes=nodes, planned=sooner, reservations=walls), SETTINGS)
    assert list(noticed(plan)) == [0]
    causes = {a.fragment.index: (a.end, a.cause) for a in plan.actions if a.end is not None}
    assert causes[1][0] <= after(510)  # the margin and KillWait before it


def test_a_planned_start_in_the_lane_is_a_wall_since_its_job_cannot_preempt() -> None:
    job, nodes = trainer(2, 0.0), make_nodes(2, NodeState.BUSY)
    for preempts, leavers in ((True, []), (False, [0])):
        lane = [plan_start(["n2"], 90), plan_start(["n1"], 100, "98", preempts)]
        assert list(noticed(plan_for(make_snapshot(job, nodes=nodes, planned=lane)))) == leavers
    hidden = [plan_start(["n1"], 90), plan_start(["n1"], 100, "98", preempts=False)]
    assert list(noticed(plan_for(make_snapshot(job, nodes=nodes, planned=hidden)))) == [0]


def test_a_new_lease_ends_before_the_planned_start_although_it_is_renewed_later() -> None:
    job = trainer(1, 1.0, held=3)
    seen = seen_with(job, "n2", start_s=130, free=2)
    grows = {min(a.nodes): a.limit for a in plan_for(seen).actions if a.verb is Verb.GROW}
    assert grows == {"n2": span(120), "n3": span(600)}
    assert not grown(plan_for(seen_with(job, "n2", start_s=64, free=1)))
    dear = plan_for(seen_with(trainer(1, 600.0, held=3), "n2", start_s=130, free=2))
    assert grown(dear) == {"n3"}


@pytest.mark.parametrize("loss_s", [0.0, 40.0, 70.0, 140.0, 280.0, 282.0])
@pytest.mark.parametrize("size", range(8))
def test_a_job_that_takes_a_node_with_a_planned_start_stays_on_it(loss_s: float, size: int) -> None:
    """Otherwise the next tick would ask it to leave."""
    interruptions = interruptions_of(Ground(make_snapshot(), SETTINGS))
    job = trainer(size, loss_s, held=1)
    before = replace(job, fragments=(*job.fragments, make_fragment(9, loss_s=loss_s)))
    after_it = trainer(size + 1, loss_s)
    wanted = f"n{size + 1}"
    holes = Holes(Ground(seen_with(after_it, wanted, start_s=100), SETTINGS))
    stays = FragmentId(7, size) in interruptions.staying(after_it, holes)
    assert interruptions.may_gain(before) is stays


def test_a_job_takes_no_node_on_which_it_would_not_stay() -> None:
    """At most 140 s, 70 s on average, are worth two nodes, and not three."""
    job = trainer(2, 140.0, held=1)
    assert not grown(plan_for(seen_with(job, "n3", start_s=150, free=1)))
    fewer = trainer(1, 70.0, held=1)
    assert grown(plan_for(seen_with(fewer, "n2", start_s=150, free=1))) == {"n2"}


@pytest.mark.parametrize(("loss_s", "is_kept"), [(1.0, True), (600.0, False)])
def test_the_guard_lets_allowed_jobs_pass_a_planned_start(loss_s: float, is_kept: bool) -> None:
    job = trainer(1, loss_s)
    seen = make_snapshot(job, nodes=make_nodes(1, NodeState.BUSY))
    renew = Intent(job.fragments[0].id, Why.BETTER_USE, end=after(600))
    plan = Plan((renew,))
    soon = make_snapshot(job, nodes=seen.nodes, planned=[plan_start(["n1"], 200)])
    assert bool(check(plan, Half.FIRST, seen, soon, SETTINGS).actions) is is_kept
    reserved = make_snapshot(job, nodes=seen.nodes, reservations=[reserve(["n1"], 200)])
    assert not check(plan, Half.FIRST, seen, reserved, SETTINGS).actions


def test_the_dearest_running_fragment_counts_and_else_the_last_report() -> None:
    request = make_request(1, 4)
    running = [
        make_fragment(i, RUNNING, [f"n{i}"], request=request, loss_s=h) for i, h in ((0, 3.0),)
    ]
    before = make_fragment(1, FragmentState.HELD, request=request, loss_s=9.0)
    assert make_job(*running, before, request=request).loss_s == 3.0
    assert make_job(before, request=request).loss_s == 9.0
    assert make_job(held=2).loss_s is None
    assert make_slurm().kill_wait == span(30)  # the number of wide fragments in FLEE_S
