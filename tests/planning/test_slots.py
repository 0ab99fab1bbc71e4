"""Jobs that count slots: parts of nodes, idle nodes that they share with jobs of whole nodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from slurm_hooks.model import (
    AvoidedNode,
    Fragment,
    FragmentState,
    IdleNodes,
    Intent,
    MalleableJob,
    Node,
    NodeState,
    Off,
    Plan,
    PlannedStart,
    Request,
    Resources,
    Said,
    Slot,
    Snapshot,
    Verb,
    Why,
)
from slurm_hooks.planning.check import Half, check
from slurm_hooks.planning.eligibility import Eligibility
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.node_classes import pool_of
from slurm_hooks.planning.plan import make_plan
from slurm_hooks.planning.situation import situation_of
from slurm_hooks.planning.survey import survey_of
from slurm_hooks.report.why import note_text, reason_text
from slurm_hooks.settings.values import Mode, Planning, Settings, Site
from slurm_hooks.slurm.actions import starts
from slurm_hooks.slurm.text import AllBut
from tests.build import (
    NOW,
    after,
    make_fragment,
    make_request,
    make_snapshot,
    no_clock,
)

LANES = frozenset({"malleable", "parts", "main"})
SITE = Site(partitions=("malleable", "parts"), part_nodes="parts")
SETTINGS = Settings(site=SITE, mode=Mode("on"), plan=Planning(headroom_gpus=0, snooze_s=0))
GPU = Slot("gpu")
RUNNING = FragmentState.RUNNING


def gpus(count: int, cpus: int = 0, kind: str = "") -> Resources:
    """GPUs with their share of a node of 8 GPUs, 32 processors and 256,000 MiB."""
    gres = {"gpu": count, **({f"gpu:{kind}": count} if kind else {})}
    return Resources(cpus or 4 * count, 32_000 * count, tuple(gres.items()))


def node(name: str, used: int = 0, kind: str = "", **fields: Any) -> Node:
    """A node of 8 GPUs, of which so many are used."""
    state = NodeState.FREE if not used else NodeState.BUSY if used == 8 else NodeState.SHARED
    total = gpus(8, kind=kind)
    values = {"state": state, "used": gpus(used), "partitions": LANES, **fields}
    return Node(name, cpus=32, memory_mib=256_000, gres=total.gres, **values)


def request(low: int, high: int, unit: int = 1, slot: Slot = GPU, **fields: Any) -> Request:
    return replace(make_request(max(low, 1), high, unit), min_nodes=low, slot=slot, **fields)


def part(index: int, name: str, slots: int, asked: Request, job_id: int = 7) -> Fragment:
    """A fragment that runs."""
    return make_fragment(
        index,
        RUNNING,
        [name],
        job_id,
        request=asked,
        slots=slots,
        released=after(-200),
        asks=gpus(slots),
    )


def job(asked: Request, *fragments: Fragment, held: int = 4, job_id: int = 7) -> MalleableJob:
    first = len(fragments)
    waiting = (
        make_fragment(i, job_id=job_id, request=asked, asks=gpus(1))
        for i in range(first, first + held)
    )
    every = (*fragments, *waiting)
    asked = replace(asked, fragments=len(every))
    lane = "malleable" if asked.slot is None else "parts"
    return MalleableJob(job_id, "ada", lane, asked, every)


def plan_of(*jobs: MalleableJob, nodes: Iterable[Node], settings: Settings = SETTINGS) -> Plan:
    return make_plan(seen(*jobs, nodes=nodes), settings, no_clock)


def seen(*jobs: MalleableJob, nodes: Iterable[Node]) -> Snapshot:
    return make_snapshot(*jobs, nodes=tuple(nodes))


def grown(plan: Plan) -> dict[str, int]:
    """The starts by node: slots, or nodes of a job that counts nodes."""
    grows = (i for i in plan.actions if i.verb is Verb.GROW)
    return {",".join(sorted(i.nodes)): i.size for i in grows}


def grow_of(plan: Plan) -> Intent:
    (grow,) = (i for i in plan.actions if i.verb is Verb.GROW)
    return grow


def test_a_job_takes_the_free_part_of_a_node() -> None:
    plan = plan_of(job(request(1, 8)), nodes=[node("n1", used=5), node("n2", used=8)])
    grow = grow_of(plan)
    assert (grow.nodes, grow.size, grow.asks) == ({"n1"}, 3, gpus(3))
    assert grow.is_resized
    assert grow.mark
    assert grow.mark.slots == 3


def test_the_scarcest_resource_of_a_node_limits_its_slots() -> None:
    few_cores = replace(node("n1", used=2), used=gpus(2, cpus=24))
    assert grown(plan_of(job(request(1, 8)), nodes=[few_cores])) == {"n1": 2}
    no_memory = replace(few_cores, used=replace(gpus(2), memory_mib=250_000))
    assert grown(plan_of(job(request(1, 8)), nodes=[no_memory])) == {}


def test_a_held_element_that_has_the_size_is_not_resized() -> None:
    waiting = job(request(1, 8))
    right = replace(waiting.fragments[2], asks=gpus(3))
    waiting = replace(waiting, fragments=(*waiting.fragments[:2], right, waiting.fragments[3]))
    grow = grow_of(plan_of(waiting, nodes=[node("n1", used=5)]))
    assert grow.fragment.index == 2
    assert not grow.is_resized


def test_each_node_gives_whole_units_of_slots() -> None:
    nodes = [node("n1", used=5), node("n2", used=1)]
    assert grown(plan_of(job(request(2, 16, unit=2)), nodes=nodes)) == {"n1": 2, "n2": 6}


def test_a_gang_does_not_start_below_its_minimum() -> None:
    nodes = [node("n1", used=5), node("n2", used=7)]
    assert grown(plan_of(job(request(5, 8)), nodes=nodes)) == {}
    assert grown(plan_of(job(request(4, 8)), nodes=nodes)) == {"n1": 3, "n2": 1}


def test_a_gang_has_a_single_fragment_on_a_node_and_a_pool_any_number() -> None:
    nodes = [node("n1", used=5)]
    asked = request(1, 8)
    assert grown(plan_of(job(asked, part(0, "n1", 2, asked)), nodes=nodes)) == {}
    asked = request(0, 8, engine="pool")
    assert grown(plan_of(job(asked, part(0, "n1", 2, asked)), nodes=nodes)) == {"n1": 3}


def test_a_core_of_slots_is_queued_and_others_start_beside_it() -> None:
    asked = request(2, 8, 2, core=2, lane="parts")
    waiting = job(asked, make_fragment(0, request=asked, lane="main", asks=gpus(2)), held=0)
    (queued,) = plan_of(waiting, nodes=[node("n1", used=8)]).actions
    assert queued.verb is Verb.QUEUE
    assert queued.mark
    assert queued.mark.slots == 2
    core = replace(part(0, "n1", 2, asked), lane="main")
    others = [
        make_fragment(i, request=asked, lane=lane, asks=gpus(2))
        for i, lane in ((1, "parts"), (2, "malleable"), (3, "main"))
    ]
    plan = plan_of(job(asked, core, *others, held=0), nodes=[node("n1", used=5)])
    assert grown(plan) == {"n1": 2}  # as beside a job of others
    assert grow_of(plan).lane == "parts"
    assert [i.fragment.index for i in plan.actions if i.is_moved] == [3]
    assert [j.nodes_planned for j in plan.jobs] == [4]


def test_as_few_fragments_as_possible_and_the_tightest_fit_for_the_rest() -> None:
    nodes = [node("n1", used=1), node("n2", used=4), node("n3", used=6)]
    assert grown(plan_of(job(request(1, 9)), nodes=nodes)) == {"n1": 7, "n3": 2}


def test_jobs_of_whole_nodes_and_of_slots_share_idle_nodes() -> None:
    whole = job(make_request(1, 2), job_id=8)
    nodes = [node(f"n{i}") for i in range(1, 5)]
    both = grown(plan_of(job(request(1, 16)), whole, nodes=nodes))
    assert sorted(both.values()) == [1, 1, 8, 8]
    assert len(both) == 4


def test_a_job_of_whole_nodes_never_gets_a_part() -> None:
    whole = job(make_request(1, 2), job_id=8)
    asked = request(1, 16)
    slots = job(asked, part(0, "n2", 8, asked))
    plan = plan_of(slots, whole, nodes=[node("n1", used=3), node("n2", used=8)])
    assert "8" not in {str(i.fragment.job_id) for i in plan.actions if i.verb is Verb.GROW}


def test_an_arriving_part_takes_up_its_room() -> None:
    asked = request(0, 8, engine="pool")
    going = make_fragment(
        0, FragmentState.PENDING, ["n1"], request=asked, slots=2, released=after(-2), asks=gpus(2)
    )
    assert grown(plan_of(job(asked, going), nodes=[node("n1", used=5)])) == {"n1": 1}


def test_no_part_is_taken_while_a_node_is_idle_that_the_others_could_use() -> None:
    late = replace(node("n2"), partitions=frozenset({"main"}))  # others' alone
    plan = plan_of(job(request(1, 8)), nodes=[node("n1", used=5), late])
    assert grown(plan) == {}
    assert Why.NODE_IDLE in {note.detail["because"].why for note in plan.notes}
    elsewhere = replace(late, partitions=frozenset({"other"}))
    assert grown(plan_of(job(request(1, 8)), nodes=[node("n1", used=5), elsewhere])) == {"n1": 3}


def test_a_node_that_a_gang_gives_up_after_all_counts_as_idle_too() -> None:
    ours = {"malleable", "parts"}
    nodes = [node("n1", used=5, partitions=frozenset(ours | {"x"})), node("n2")]
    nodes += [node("n4", partitions=frozenset({"x"})), node("n5", used=5)]
    gang = job(request(11, 11))
    pool = job(request(0, 3, engine="pool"), job_id=8)
    gang = replace(gang, request=replace(gang.request, excluded=frozenset({"n5"})))
    assert grown(plan_of(gang, pool, nodes=nodes)) == {}


def test_parts_leave_when_a_node_has_been_idle_since_the_last_tick() -> None:
    asked = request(1, 3)
    here = job(asked, part(0, "n1", 3, asked))
    idle = replace(node("n2"), partitions=frozenset({"main"}), idle_since=after(-60))
    plan = plan_of(here, nodes=[node("n1", used=8), idle])
    assert [(i.verb, i.cause) for i in plan.actions] == [(Verb.NOTICE, Why.NODE_IDLE)]
    just_now = replace(idle, idle_since=after(-1))
    assert not plan_of(here, nodes=[node("n1", used=8), just_now]).actions
    ours_alone = plan_of(here, nodes=[node("n1", used=3), idle])
    assert Verb.NOTICE not in {i.verb for i in ours_alone.actions}


IDLE = node("n2", idle_since=after(-300))
CPUS_ALONE = replace(IDLE, gres=(), partitions=frozenset({"main"}))


@pytest.mark.parametrize(
    ("idle", "planned"),
    [(CPUS_ALONE, ()), (IDLE, (60,))],
    ids=["it has no GPU", "a planned start takes it"],
)
def test_an_idle_node_that_the_others_cannot_use_closes_no_part(
    idle: Node, planned: tuple[int, ...]
) -> None:
    asked = request(1, 8)
    starts = tuple(PlannedStart("99", after(s), frozenset({"n2"})) for s in planned)
    new = replace(seen(job(asked), nodes=[node("n1", used=5), idle]), planned=starts)
    assert grown(make_plan(new, SETTINGS, no_clock)) == {"n1": 3}
    here = job(asked, part(0, "n1", 3, asked))
    old = replace(seen(here, nodes=[node("n1", used=8), idle]), planned=starts)
    assert Verb.NOTICE not in {i.verb for i in make_plan(old, SETTINGS, no_clock).actions}


def test_a_part_stays_while_a_neighbour_of_ours_ends_beside_it() -> None:
    """The state of a completing node is unknown, but no fragment can start there."""
    asked = request(1, 8)
    ending = replace(part(1, "n1", 2, asked), state=FragmentState.ENDING)
    gang = job(asked, part(0, "n1", 4, asked), ending, held=0)
    completing = node("n1", used=8)
    plan = plan_of(gang, nodes=[completing, node("n2", idle_since=after(-3000))])
    assert Why.NODE_IDLE not in {i.cause for i in plan.actions}


def test_idle_nodes_are_counted_once_where_parts_are_not_given() -> None:
    pool = job(request(0, 8, engine="pool"))
    nodes = [node("n1", used=5), replace(node("n2"), partitions=frozenset({"main"}))]
    plan = plan_of(pool, nodes=nodes)
    assert not grown(plan)
    assert not plan.idle


def test_a_node_of_two_dropped_parts_is_a_single_idle_node() -> None:
    asked = request(0, 8, engine="pool", slot=Slot("gpu", 1, 1000))
    two = [job(replace(asked, max_nodes=4), job_id=7), job(replace(asked, max_nodes=4), job_id=8)]
    was = seen(*two, nodes=[node("n1")])
    plan = make_plan(was, SETTINGS, no_clock)
    assert {i.fragment.job_id for i in plan.actions} == {7, 8}
    assert [(each.reason, each.nodes) for each in plan.idle] == [(Why.STARTING, 1)]
    off = check(plan, Half.SECOND, was, replace(was, off=Off(NOW, "nobody")), SETTINGS)
    assert [(each.reason, each.nodes) for each in off.idle] == [(Why.OFF, 1)]


def test_parts_leave_some_gpus_to_small_jobs() -> None:
    settings = replace(SETTINGS, plan=Planning(headroom_gpus=2))
    nodes = [node("n1", used=4)]
    assert grown(plan_of(job(request(1, 8)), nodes=nodes, settings=settings)) == {"n1": 2}


def test_gpus_that_no_part_can_use_add_no_room_to_the_other_nodes() -> None:
    """Here 3 GPUs stand on nodes with a single free GPU, and parts of the job have 2."""
    odd = [node(f"n{i}", used=7) for i in (1, 2, 3)]
    nodes = [*odd, node("n4", used=6)]
    asked, wide = request(2, 6, unit=2), request(4, 4, unit=2)
    running = job(asked, part(0, "n4", 2, asked), job_id=7)
    nodes[-1] = node("n4", used=8)
    plan = make_plan(seen(running, job(wide, job_id=8), nodes=nodes), SETTINGS, no_clock)
    assert [i.fragment for i in plan.actions if i.verb is not Verb.STAY] == []
    assert [planned.nodes_planned for planned in plan.jobs] == [2, 0]


def reasons(plan: Plan) -> list[str]:
    (planned,) = plan.jobs
    return [reason_text(reason, unit=planned.unit) for reason in planned.reasons]


def test_the_nodes_left_to_small_jobs_are_named() -> None:
    settings = replace(SETTINGS, plan=Planning(headroom_gpus=2))
    nodes = [node("n1", used=7), node("n3", used=6), node("n4", used=8)]
    asked = request(4, 8)
    assert reasons(plan_of(job(asked), nodes=nodes, settings=settings)) == [
        "n1, n3 have 3 GPUs free, of which 2 are left to small jobs (plan.headroom_gpus)",
        "1 other node: busy",
    ]
    some = job(request(1, 8), part(0, "n1", 1, request(1, 8)))
    nodes[0] = node("n1", used=8)
    assert reasons(plan_of(some, nodes=nodes, settings=settings)) == [
        "n3 has 2 GPUs free, which are left to small jobs (plan.headroom_gpus)",
        "1 other node: busy",
    ]
    many = [node(f"n{i}", used=7) for i in range(1, 6)]
    few = replace(settings, plan=Planning(headroom_gpus=9))
    first, *others = reasons(plan_of(job(asked), nodes=many, settings=few))
    assert first.startswith("n1, n2, n3 and 2 more have 5 GPUs free, which are")
    assert not others


@pytest.mark.parametrize(
    ("asked", "left", "said"),
    [
        (request(2, 8, unit=2), gpus(1), "1 other node: in use, and not enough GPUs left"),
        (request(1, 8), Resources(3, 32_000, (("gpu", 1),)), "not enough CPUs left"),
        (request(1, 8), Resources(4, 31_000, (("gpu", 1),)), "not enough memory left"),
        (request(1, 8), Resources(4, 31_000), "1 other node: busy"),
        (request(1, 8, slot=Slot(cpus=4)), Resources(3, 99_000), "not enough CPUs left"),
        (request(1, 8, slot=Slot(cpus=4)), Resources(0, 99_000), "1 other node: busy"),
    ],
)
def test_the_resource_that_is_too_small_in_the_free_part_of_a_node(
    asked: Request, left: Resources, said: str
) -> None:
    shared = replace(node("n1", used=7), used=gpus(8) - left)
    (reason,) = reasons(plan_of(job(asked), nodes=[shared]))
    assert reason.endswith(said)


def test_an_idle_node_that_never_fits_names_the_missing_resource() -> None:
    bare = replace(node("n1"), gres=())
    assert reasons(plan_of(job(request(1, 8)), nodes=[bare])) == [
        "1 other node: free, but not enough gpu"
    ]


def test_the_ceiling_counts_nodes_and_a_job_gpus() -> None:
    """A node has 8 GPUs, so 4 are no more than a node, and 12 are two."""
    one_node = replace(SETTINGS, mode=Mode("on", max_nodes=1))
    nodes = [node("n1", used=2), node("n2", used=2)]
    texts = reasons(plan_of(job(request(4, 16)), nodes=nodes, settings=one_node))
    assert not any("cannot start" in text for text in texts)
    texts = reasons(plan_of(job(request(12, 16)), nodes=nodes, settings=one_node))
    assert "may have 1 node (mode.max_nodes, max_share); this job needs 2, so it" in texts[0]


def test_idle_nodes_below_the_ceiling_do_not_stay_idle_for_it() -> None:
    below = replace(SETTINGS, mode=Mode("on", max_nodes=4))
    plan = plan_of(job(request(24, 32, unit=8)), nodes=[node("n1"), node("n2")], settings=below)
    assert plan.idle == (IdleNodes(Why.NOT_GIVEN, 2),)


def test_a_part_beside_an_idle_node_names_the_idle_node_as_first() -> None:
    idle = replace(node("n2"), partitions=frozenset({"main"}))
    texts = reasons(plan_of(job(request(1, 8)), nodes=[node("n1", used=3), idle]))
    assert texts[-1] == ("not started on n1: n2 is idle, where others' small jobs would go instead")


def test_gpus_that_no_job_can_use_are_left_to_small_jobs_first() -> None:
    settings = replace(SETTINGS, plan=Planning(headroom_gpus=2, snooze_s=0))
    asked = request(1, 8)
    gang = job(asked, part(0, "n1", 2, asked))
    nodes = [node("n1", used=6), node("n2", used=6)]
    assert grown(plan_of(gang, nodes=nodes, settings=settings)) == {"n2": 2}


def test_without_a_lane_for_parts_no_part_starts_and_all_leave() -> None:
    asked = request(1, 8)
    nodes = [node("n1", used=5), node("n2")]
    off = Settings(site=Site(partitions=("malleable", "parts")))
    assert not grown(plan_of(job(asked), nodes=nodes, settings=off))
    snapshot = seen(job(asked, part(0, "n1", 3, asked)), nodes=nodes)
    plan = make_plan(replace(snapshot, no_parts=("PriorityTier",)), SETTINGS, no_clock)
    assert [(i.verb, i.cause) for i in plan.actions] == [(Verb.NOTICE, Why.NO_PARTS)]


def test_a_gang_keeps_to_a_single_type_of_gpu() -> None:
    nodes = [node("n1", kind="a100", used=1), node("n2", kind="h100", used=2)]
    nodes += [node("n3", kind="h100", used=6)]
    plan = plan_of(job(request(1, 16)), nodes=nodes)
    assert grown(plan) == {"n2": 6, "n3": 2}
    pool = request(0, 16, engine="pool")
    assert grown(plan_of(job(pool), nodes=nodes)) == {"n1": 7, "n2": 6, "n3": 2}


def test_gpus_are_written_by_the_name_that_the_job_asked_for() -> None:
    """Slurm refuses a type for an element without a type, and the other way round."""
    for name in ("gpu", "gpu:h100"):
        waiting = job(request(1, 8, slot=Slot(name)))
        plan = plan_of(waiting, nodes=[node("n1", kind="h100", used=5)])
        grow = grow_of(plan)
        update, _ = starts([grow], {grow.fragment: ""}, AllBut(["n1"]))
        assert f" Gres={name}:3 " in update.stdin
        first = replace(waiting.fragments[0], asks=grow.asks)
        again = replace(waiting, fragments=(first, *waiting.fragments[1:]))
        assert not grow_of(plan_of(again, nodes=[node("n1", kind="h100", used=5)])).is_resized


def test_a_gang_of_any_gpus_has_no_part_of_a_node_with_two_types() -> None:
    both = node("n1", used=4)
    both = replace(both, gres=(("gpu", 8), ("gpu:a100", 4), ("gpu:h100", 4)))
    nodes = [both, node("n2", kind="a100", used=6)]
    assert grown(plan_of(job(request(1, 8)), nodes=nodes)) == {"n2": 2}


def test_all_parts_that_leave_a_node_are_on_their_way_out() -> None:
    asked = request(0, 8, engine="pool")
    parts = (part(n, "n1", 2, asked) for n in range(2))
    leaving = [replace(f, mark=replace(f.mark, noticed=after(-5))) for f in parts]
    ground = Ground(seen(job(asked, *leaving), nodes=[node("n1", used=8)]), SETTINGS)
    survey = survey_of(ground)
    situations = [situation_of(survey, each) for each in ground.seen.jobs]
    pool = pool_of(survey, Eligibility(survey, situations), situations)
    assert sum(pool.coming.values()) == 4


@pytest.mark.parametrize("low", [0, 1, 4])
def test_a_pool_that_shares_with_a_new_job_keeps_its_least(low: int) -> None:
    """Each of its fragments is larger than what it has to give. Nodes have 4 GPUs here."""
    asked, whole = request(low, 8, engine="pool"), request(1, 2, slot=None, engine="pool")
    sizes = {"n1": 3, "n2": 1, "n4": 4}
    parts = (part(n, name, size, asked) for n, (name, size) in enumerate(sizes.items()))
    beside = job(whole, part(0, "n3", 0, whole, job_id=6), held=1, job_id=6)
    used = {"n1": 4, "n2": 2, "n3": 4, "n4": 4}
    small = {"cpus": 16, "memory_mib": 128_000, "gres": gpus(4).gres}
    states = {2: NodeState.SHARED, 4: NodeState.BUSY}
    nodes = [replace(node(n, used=u), **small, state=states[u]) for n, u in used.items()]
    plan = plan_of(beside, job(asked, *parts), job(asked, held=8, job_id=8), nodes=nodes)
    assert next(each for each in plan.jobs if each.job_id == 7).nodes_planned >= max(low, 1)


def test_a_gang_grows_on_nodes_of_its_type() -> None:
    asked = request(1, 8)
    nodes = [node("n1", kind="h100", used=8), node("n2", kind="h100", used=6)]
    nodes += [node(f"n{i}", kind="a100", used=2) for i in (3, 4)]
    plan = plan_of(job(asked, part(0, "n1", 2, asked)), nodes=nodes)
    assert grown(plan) == {"n2": 2}


def test_finished_jobs_give_way_to_as_many_gpus_as_a_job_has_waited_for() -> None:
    done = request(0, 8, engine="pool")
    over = replace(part(0, "n1", 8, done), said=Said.FINISHED, end=after(100))
    waits = replace(job(request(8, 8), job_id=8, held=1), submitted=after(-4 * 3600))
    plan = plan_of(job(done, over, held=0), waits, nodes=[node("n1", used=8)])
    assert Why.GIVEN_BACK in {reason.why for reason in plan.jobs[0].reasons}


def test_a_gang_leaves_the_node_of_a_single_death_if_other_nodes_have_enough_gpus() -> None:
    asked = request(1, 8)
    trains = replace(part(0, "n1", 2, asked), said=Said.TRAINED)
    mark = replace(trains.mark, deaths=(AvoidedNode("n2", after(-100)),))
    nodes = [node("n1", used=8), *(node(f"n{i}", used=6) for i in (2, 4)), node("n3", used=4)]
    plan = plan_of(job(asked, replace(trains, mark=mark)), nodes=nodes)
    assert grown(plan) == {"n3": 4, "n4": 2}


def test_a_job_with_fewer_fragments_can_have_as_many_gpus_as_fit_into_them() -> None:
    asked = request(1, 16)
    gang = job(asked, part(0, "n1", 4, asked), held=1)
    gang = replace(gang, request=replace(gang.request, fragments=3), is_cut=True)
    nodes = [node("n1", used=8), node("n2", used=8)]
    assert Why.MAXIMUM not in {reason.why for reason in plan_of(gang, nodes=nodes).jobs[0].reasons}


def test_typed_gpus_on_their_way_are_not_given_to_others() -> None:
    shared = node("n1", kind="a100", used=2)
    coming = replace(typed_part(), state=FragmentState.PENDING)
    first = job(coming.mark.request, coming, held=0)
    pool = job(request(0, 8, slot=Slot("gpu", 1, 1000), engine="pool"), job_id=8)
    assert grown(plan_of(first, pool, nodes=[shared])) == {"n1": 2}


def test_a_node_with_a_typed_part_of_ours_alone_is_not_shared() -> None:
    ours = typed_part()
    nodes = [replace(node("n1", kind="a100", used=4), used=gpus(4, kind="a100"))]
    nodes.append(node("n2", idle_since=after(-3000)))
    plan = plan_of(job(ours.mark.request, ours, held=0), nodes=nodes)
    assert Why.NODE_IDLE not in {i.cause for i in plan.actions}


def typed_part() -> Fragment:
    """Four GPUs of the type that was asked for."""
    slot = Slot("gpu:a100")
    part_of = part(0, "n1", 4, request(1, 4, slot=slot))
    return replace(part_of, asks=slot.on(node("n1", kind="a100")).times(4))


def test_the_guard_gives_no_part_once_slurm_would_delay_others_for_it() -> None:
    nodes = [node("n1", used=5)]
    was = seen(job(request(1, 8)), nodes=nodes)
    plan = make_plan(was, SETTINGS, no_clock)
    assert grown(plan) == {"n1": 3}
    kept = check(plan, Half.FIRST, was, replace(was, no_parts=("PriorityTier",)), SETTINGS)
    assert not grown(kept)
    assert "PriorityTier" in note_text(kept.notes[-1], NOW)


def test_the_guard_drops_a_part_that_no_longer_fits() -> None:
    before = [node("n1", used=5), node("n2", used=6)]
    was = seen(job(request(1, 8)), nodes=before)
    plan = make_plan(was, SETTINGS, no_clock)
    assert grown(plan) == {"n1": 3, "n2": 2}
    fresh = seen(nodes=[node("n1", used=6), node("n2", used=6)])
    assert grown(check(plan, Half.FIRST, was, fresh, SETTINGS)) == {"n2": 2}
    now_idle = seen(nodes=[node("n1", used=5), node("n2")])
    assert grown(check(plan, Half.FIRST, was, now_idle, SETTINGS)) == {"n1": 3, "n2": 2}
    late = replace(node("n3"), partitions=frozenset({"main"}))
    assert grown(check(plan, Half.FIRST, was, seen(nodes=[*before, late]), SETTINGS)) == {}


def test_jobs_with_different_slots_do_not_share_a_node_in_a_tick() -> None:
    small, big = request(1, 8), request(1, 8, slot=Slot("gpu", cpus=16, memory_mib=1000))
    plan = plan_of(job(small), job(big, job_id=8), nodes=[node("n1"), node("n2")])
    on: dict[str, set[int]] = {}
    for i in plan.actions:
        for name in i.nodes:
            on.setdefault(name, set()).add(i.fragment.job_id)
    assert set().union(*on.values()) == {7, 8}
    assert all(len(jobs) == 1 for jobs in on.values())


def test_a_fragment_of_another_size_than_was_asked_for_leaves_and_avoids_its_node() -> None:
    asked = request(1, 8)
    odd = replace(part(0, "n1", 4, asked), asks=gpus(2))
    plan = plan_of(job(asked, odd), nodes=[node("n1", used=5)])
    (leaves,) = (i for i in plan.actions if i.verb is Verb.NOTICE)
    assert leaves.cause is Why.WRONG_SIZE
    assert leaves.mark
    assert [a.node for a in leaves.mark.unfit] == ["n1"]
    assert Why.WRONG_SIZE in {reason.why for reason in plan.jobs[0].reasons}


def test_a_part_stays_where_its_share_of_the_node_has_grown_since_it_started() -> None:
    """An administrator has written more memory into slurm.conf."""
    asked = request(1, 4)
    first = replace(part(0, "n1", 4, asked), start=after(-3600), end=after(3600))
    nodes = [replace(node("n1", used=4), memory_mib=260_000)]
    assert not [i for i in plan_of(job(asked, first), nodes=nodes).actions if i.verb is Verb.NOTICE]
    fewer = replace(first, asks=gpus(3, cpus=16))
    (leaves,) = (
        i for i in plan_of(job(asked, fewer), nodes=nodes).actions if i.verb is Verb.NOTICE
    )
    assert leaves.cause is Why.WRONG_SIZE


def test_a_gang_keeps_its_part_while_more_of_its_node_is_free() -> None:
    """It has a single fragment on a node, and leaving to come back larger costs two pauses."""
    asked = request(1, 8)
    gang = job(asked, part(0, "n1", 2, asked), part(1, "n2", 2, asked))
    assert not plan_of(gang, nodes=[node("n1", used=3), node("n2", used=8)]).actions


def test_the_plan_of_a_job_shows_the_size_that_is_left_when_parts_leave() -> None:
    asked = request(1, 16)
    gang = job(asked, part(0, "n1", 8, asked), part(1, "n2", 8, asked))
    settings = replace(SETTINGS, mode=Mode("on", max_nodes=1))
    plan = plan_of(gang, nodes=[node("n1", used=8), node("n2", used=8)], settings=settings)
    assert [i.verb for i in plan.actions] == [Verb.NOTICE]
    assert [(each.nodes_now, each.nodes_planned) for each in plan.jobs] == [(16, 8)]


def test_cores_are_slots_too() -> None:
    asked = request(0, 64, engine="pool", slot=Slot(cpus=4, memory_mib=1000))
    assert grown(plan_of(job(asked), nodes=[node("n1", used=5)])) == {"n1": 3}


def test_slurm_takes_parts_beside_others_before_nodes_that_ours_have_alone() -> None:
    nodes = [node("n1", used=4), node("n2")]
    plan = plan_of(job(request(0, 12, engine="pool")), nodes=nodes)
    grows = (i for i in plan.actions if i.verb is Verb.GROW)
    assert {n: i.lane for i in grows for n in i.nodes} == {"n1": "parts", "n2": "malleable"}
    elsewhere = replace(node("n2"), partitions=frozenset({"parts"}))
    assert grow_of(plan_of(job(request(1, 8)), nodes=[elsewhere])).lane == "parts"
    assert grow_of(plan_of(job(make_request(1, 1)), nodes=nodes)).lane == ""


def on_switches(*names: str, used: int = 0, **fields: Any) -> list[Node]:
    """Nodes n1, n2 and so on, each on the switch that is named."""
    return [node(f"n{i}", used, switch=name, **fields) for i, name in enumerate(names, 1)]


def test_a_gang_is_placed_on_as_few_switches_as_its_count_allows() -> None:
    nodes = on_switches("s1", "s2", "s1", "s2", "s2", "s3", "s3", used=6)
    assert grown(plan_of(job(request(1, 6)), nodes=nodes)) == {"n2": 2, "n4": 2, "n5": 2}
    assert grown(plan_of(job(request(1, 4)), nodes=nodes)) == {"n1": 2, "n3": 2}
    most = grown(plan_of(job(request(1, 10), held=8), nodes=nodes))
    assert most == {"n1": 2, "n2": 2, "n3": 2, "n4": 2, "n5": 2}


def test_a_gang_grows_where_it_has_fragments() -> None:
    asked = request(1, 6)
    nodes = [node("n0", used=8, switch="s9"), *on_switches("s1", "s1", "s9", used=6)]
    gang = job(asked, part(0, "n0", 2, asked))
    assert grown(plan_of(gang, nodes=nodes)) == {"n1": 2, "n3": 2}
    less = replace(gang, request=replace(gang.request, max_nodes=4))
    assert grown(plan_of(less, nodes=nodes)) == {"n3": 2}


def test_holes_of_several_sizes_are_taken_on_the_same_switch() -> None:
    nodes = [node("n1", used=2, switch="s1"), node("n2", used=5, switch="s1")]
    nodes = [node("n0", used=5, switch="s2"), *nodes, node("n3", used=2, switch="s3")]
    assert grown(plan_of(job(request(1, 9)), nodes=nodes)) == {"n1": 6, "n2": 3}


def test_no_slot_is_lost_to_nearness_and_a_longer_hole_comes_first() -> None:
    nodes = on_switches("s1", "s2", "s2", used=6)
    assert sum(grown(plan_of(job(request(1, 6)), nodes=nodes)).values()) == 6
    late = PlannedStart("99", after(2 * 86_400), frozenset({"n2", "n3"}))
    short = replace(seen(job(request(1, 2)), nodes=nodes), planned=(late,))
    assert grown(make_plan(short, SETTINGS, no_clock)) == {"n1": 2}


def test_a_gang_of_whole_nodes_is_placed_on_few_switches_too() -> None:
    nodes = on_switches("s1", "s2", "s2", "s3", "s3", "s3")
    assert grown(plan_of(job(make_request(1, 3), job_id=8), nodes=nodes)) == {
        "n4": 1,
        "n5": 1,
        "n6": 1,
    }
    pairs = grown(plan_of(job(make_request(2, 4, 2), job_id=8), nodes=nodes))
    assert pairs.keys() == {"n4,n5", "n2,n3"}


def test_where_qos_decide_parts_and_whole_nodes_have_a_qos_each() -> None:
    site = Site(partitions=("main",), part_nodes="low", qos="scavenge")
    settings = replace(SETTINGS, site=site)
    asked = request(1, 12)
    main = frozenset({"main"})
    nodes = [node("n1", used=5, partitions=main), node("n2", partitions=main)]

    def plan(*fragments: Fragment, nodes: list[Node]) -> Plan:
        gang = replace(job(asked, *fragments), partition="main")
        return plan_of(gang, nodes=nodes, settings=settings)

    grows = [i for i in plan(nodes=nodes).actions if i.verb is Verb.GROW]
    assert {(*i.nodes, i.lane, i.qos) for i in grows} == {("n1", "", "low"), ("n2", "", "scavenge")}
    assert all(i.mark and i.mark.qos == i.qos for i in grows)
    assert all(f"QOS={i.qos}" in starts([i], {}, AllBut(["n1", "n2"]))[0].stdin for i in grows)
    # the jobs of other QOS use the same partition
    assert grown(plan(nodes=[nodes[0], replace(nodes[1], state=NodeState.LEAVING)])) == {"n1": 3}
    few = replace(asked, max_nodes=3, min_nodes=3)
    assert grown(plan_of(replace(job(few), partition="main"), nodes=nodes, settings=settings)) == {
        "n2": 3
    }
    here = part(0, "n1", 3, asked)
    here = replace(here, lane="main", mark=replace(here.mark, qos="low"))
    left = [node("n1", used=3, partitions=main)]
    (leaves,) = (i for i in plan(here, nodes=left).actions if i.verb is Verb.NOTICE)
    assert leaves.cause is Why.NODE_IDLE


def test_a_part_leaves_the_lane_for_parts_once_others_have_left_its_node() -> None:
    asked = request(0, 8, engine="pool")
    here = replace(part(0, "n1", 4, asked), lane="parts")
    plan = plan_of(job(asked, here), nodes=[node("n1", used=4)])
    assert [i.cause for i in plan.actions if i.verb is Verb.NOTICE] == [Why.NODE_IDLE]
    for fragment, used in ((here, 6), (replace(here, lane="malleable"), 4)):
        plan = plan_of(job(asked, fragment), nodes=[node("n1", used=used)])
        assert Verb.NOTICE not in {i.verb for i in plan.actions}
