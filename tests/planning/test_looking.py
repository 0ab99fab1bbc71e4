"""Jobs that have told how fast they are, or nothing: what the plan makes of it."""

from __future__ import annotations

from dataclasses import replace

from build import after, make_fragment, make_job, make_nodes, make_request, make_snapshot
from planning.readings import grown, plan_for
from slurm_hooks.model import Curve, FragmentState, Learned, MalleableJob, NodeState, Snapshot, Why
from slurm_hooks.settings import parse

RUNNING, BUSY = FragmentState.RUNNING, NodeState.BUSY
GOOD = Curve(((0, 0.0), (1, 10.0), (8, 78.0)))
POOR = Curve(((0, 0.0), (1, 10.0), (2, 12.0), (8, 13.0)))


def known(curve: Curve) -> Learned:
    return Learned(curve, (curve,) * 8, sizes_seen=(1, 2, 8))


def seen(*jobs: MalleableJob, nodes: int = 8, **fields: object) -> Snapshot:
    return make_snapshot(*jobs, nodes=make_nodes(nodes), **fields)


def waiting(job_id: int, held: int = 8) -> MalleableJob:
    return make_job(job_id=job_id, held=held, request=make_request(1, held))


def sizes(snapshot: Snapshot) -> list[int]:
    return [job.nodes_planned for job in plan_for(snapshot).jobs]


def test_jobs_that_nobody_knows_share_equally() -> None:
    assert sizes(seen(waiting(7), waiting(8))) == [4, 4]
    assert sizes(seen(waiting(7), waiting(8), waiting(9, held=2))) == [3, 3, 2]


def test_a_site_may_assume_a_law_instead() -> None:
    chosen = parse("[plan]\nserial_fraction = 0.005\n")
    assert sum(j.nodes_planned for j in plan_for(seen(waiting(7), waiting(8)), chosen).jobs) == 8


def test_what_was_learned_decides() -> None:
    found = seen(waiting(7), waiting(8), learned={7: known(GOOD), 8: known(POOR)})
    assert sizes(found) == [7, 1]


def test_a_job_that_is_known_does_not_take_the_share_of_one_that_is_not() -> None:
    found = seen(waiting(7), waiting(8), learned={7: known(GOOD)})
    assert sizes(found) == [4, 4]


def test_a_job_begins_on_one_unit_if_it_is_to_be_learned() -> None:
    plan = plan_for(seen(waiting(7), waiting(8), learned={7: Learned(), 8: known(GOOD)}))
    assert [job.nodes_planned for job in plan.jobs] == [1, 7]
    assert plan.jobs[0].nodes_probed == 1
    assert plan.jobs[0].reasons[0].why is Why.LOOKED_AT
    assert "1 node(s)" in plan.jobs[0].reasons[0].text
    assert plan.jobs[1].nodes_probed == 0


def running_on_one(since_s: float, learned: Learned) -> Snapshot:
    request = make_request(1, 8)
    first = make_fragment(0, RUNNING, ["n1"], request=request, start=after(-since_s))
    others = [make_fragment(i, request=request) for i in range(1, 8)]
    job = make_job(first, *others, request=request)
    nodes = tuple(replace(n, state=BUSY) if n.name == "n1" else n for n in make_nodes(8))
    return make_snapshot(job, nodes=nodes, learned={7: learned})


def test_it_stays_there_until_it_has_told_its_speed() -> None:
    assert grown(plan_for(running_on_one(100, Learned()))) == set()


def test_a_script_that_shows_nothing_is_not_waited_for() -> None:
    assert len(grown(plan_for(running_on_one(200, Learned())))) == 7


def test_a_curve_that_is_given_is_believed_and_nobody_looks() -> None:
    found = seen(waiting(7), waiting(8), curves={7: POOR, 8: GOOD}, learned={7: Learned()})
    assert sizes(found) == [1, 7]
