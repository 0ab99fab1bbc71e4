"""Fragments that are released together: their common update, and the nodes that they wait for."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from build import after, make_fragment, make_job, make_node, make_request
from fake_parts import Part, resources
from fake_slurm import FakeSlurm
from planning.whole_ticks import settings_in
from slurm_hooks.model import FragmentId, FragmentState, Intent, Mark, NodeState, Request, Verb, Why
from slurm_hooks.report.why import note_text
from slurm_hooks.settings.values import Settings
from slurm_hooks.slurm.actions import commands
from slurm_hooks.slurm.cluster import cluster_command
from slurm_hooks.slurm.gateway import observe
from slurm_hooks.slurm.groups import Place, parse_places, placed, places_command
from slurm_hooks.slurm.text import AllBut, Command, expand
from slurm_hooks.slurm.writing import apply
from slurm_hooks.tick.reconcile import tick

MARK = "malleable{min=1,max=6,unit=1,engine=torchrun,frags=6,lease=600,hole=120,not=NOT}"
NODES = [f"n{i}" for i in range(1, 9)]
FAMILIES = [*NODES, *(f"r1c{i:03}" for i in range(12)), "n10", "login", "gpu-7b", "0", "x0", "x00"]


@given(st.frozensets(st.sampled_from(FAMILIES)), st.frozensets(st.sampled_from(FAMILIES)))
def test_all_but_some(names: frozenset[str], left_out: frozenset[str]) -> None:
    text = AllBut(names).listed(left_out)
    assert expand(text) == names - left_out
    assert text or names <= left_out


def test_rows_of_numbers_are_folded() -> None:
    nodes = [f"n{i}" for i in range(1, 10_001)]
    assert AllBut(nodes).listed({"n7", "n9", "n10000"}) == "n[1-6,8,10-9999]"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_in(tmp_path)


def grow(
    index: int, node: str, excluded: Optional[frozenset[str]] = frozenset(), **changes: object
) -> Intent:
    request = Request(1, 6, 6, timedelta(600), timedelta(60), excluded=excluded)
    mark = replace(Mark(request), **changes)  # type: ignore[arg-type]
    limit = timedelta(seconds=600 if index < 4 else 300)
    return Intent(
        FragmentId(7, index),
        Why.HOLE_OPEN,
        Verb.GROW,
        mark=mark,
        nodes=frozenset((node,)),
        limit=limit,
    )


def said(*grows: Intent) -> list[list[str]]:
    updates, release = commands(grows, {}, NODES)
    lines = [line.split(" ") for line in (updates.stdin + release.stdin).splitlines()]
    return [[word for word in line if not word.startswith("AdminComment")] for line in lines]


def test_fragments_with_the_same_limit_and_mark_share_an_update() -> None:
    words = said(grow(0, "n2"), grow(1, "n5"), grow(2, "n6"), grow(4, "n8"))
    assert words == [
        ["update", "jobid=7_[0-2]", "ExcNodeList=n[1,3-4,7-8]", "TimeLimit=10", "StartTime=now"],
        ["update", "jobid=7_4", "ExcNodeList=n[1-7]", "TimeLimit=5", "StartTime=now"],
        ["release", "7_[0-2,4]"],
    ]


def test_a_fragment_that_did_not_start_has_its_own_command() -> None:
    """Slurm reports unfit nodes only for a single fragment."""
    words = said(grow(0, "n2", vain=1), grow(1, "n5", vain=1), grow(2, "n6"))
    assert [line[1] for line in words] == ["jobid=7_0", "jobid=7_1", "jobid=7_2", "7_[0-2]"]


def test_the_exclusions_of_each_fragment_must_be_known() -> None:
    """Our list would replace an --exclude that is too long for the mark."""
    words = said(grow(0, "n2", None), grow(1, "n5", None))
    assert [line[1:3] for line in words[:2]] == [
        ["jobid=7_0", "ReqNodeList=n2"],
        ["jobid=7_1", "ReqNodeList=n5"],
    ]


def test_a_list_of_nodes_that_slurm_has_for_a_fragment_ends_with_its_release(
    settings: Settings,
) -> None:
    """An operator's list remains: with our list no node would be left for it."""
    slurm = FakeSlurm(dict.fromkeys(NODES, ""))
    slurm.submit(7, 3, MARK.replace("NOT", "n(1+3-5)"))
    slurm.elements["7_1"].asked = frozenset({"n1"})
    tick(slurm, settings)
    assert [e.asked for e in slurm.of(7)] == [frozenset()] * 3
    slurm.advance(1)
    assert {e.state for e in slurm.of(7)} == {"RUNNING"}


def test_the_nodes_of_a_group_are_left_to_its_fragments_that_have_not_started(
    settings: Settings,
) -> None:
    slurm = FakeSlurm(dict.fromkeys(NODES, ""))
    slurm.submit(7, 3, MARK.replace("NOT", "n(2+4-8)"))
    tick(slurm, settings)
    assert {e.barred for e in slurm.of(7)} == {frozenset(NODES) - {"n1", "n3"}, frozenset()}
    slurm.nodes["n3"] = "+DRAIN"
    slurm.advance(1)
    (job,) = observe(slurm, ["malleable"]).jobs
    states = {f.state: f.nodes for f in job.fragments}
    assert states[FragmentState.RUNNING] == {"n1"}
    assert states[FragmentState.PENDING] == {"n3"}
    assert len(slurm.commands[-1].argv) > len(slurm.commands[-2].argv)  # squeue once more, last


def test_a_node_that_has_joined_since_counts_once() -> None:
    groups = "7_0|n[3-4]|\n7_1|n[1-2]|"  # which are there now: n0 to n4
    slurm = FakeSlurm(dict.fromkeys(["n0", *NODES[:4]], ""))
    slurm.submit(7, 2, MARK.replace("NOT", "-").replace("max=6", "max=2"))
    for element, barred in zip(slurm.of(7), parse_places(groups).values()):
        element.hold, element.barred = "", barred.excluded
        element.admin_comment = element.admin_comment.replace("not=-", "not=-,at=1799999990")
    (job,) = observe(slurm, ["malleable"]).jobs
    assert [f.nodes for f in job.fragments] == [{"n0"}, {"n3"}]


def test_the_tick_asks_for_no_places_while_no_group_waits(settings: Settings) -> None:
    slurm = FakeSlurm(dict.fromkeys(NODES, ""))
    slurm.submit(7, 3, MARK.replace("NOT", "-"))
    tick(slurm, settings)
    slurm.advance(1)
    before = len(slurm.commands)
    observe(slurm, ["malleable"])
    assert len(slurm.commands) == before + 2


def test_a_node_that_is_excluded_is_not_given(settings: Settings) -> None:
    slurm = FakeSlurm(dict.fromkeys(NODES, ""))
    slurm.submit(7, 6, MARK.replace("NOT", "n(1-5+7)"))
    tick(slurm, settings)
    slurm.advance(1)
    assert {n for e in slurm.of(7) for n in e.nodes} == {"n6", "n8"}


def test_nodes_that_slurm_does_not_show_are_excluded_as_well(settings: Settings) -> None:
    """Slurm shows only powered-up nodes of a cloud. A group that waits would power up the rest."""
    slurm = FakeSlurm(dict.fromkeys([*NODES, "cloud1"], ""), hidden={"cloud1"})
    slurm.submit(7, 6, MARK.replace("NOT", "n(1-7)"))
    tick(slurm, settings)
    assert "cloud1" in slurm.elements["7_0"].barred


def test_a_node_that_joins_before_the_last_reading_is_excluded_as_well(settings: Settings) -> None:
    slurm = FakeSlurm(dict.fromkeys(NODES, ""))
    slurm.submit(7, 6, MARK.replace("NOT", "n(1-7)"))

    def join(command: Command) -> None:
        if command == cluster_command() and command in slurm.commands[:-1]:
            slurm.nodes["n0"] = ""

    slurm.before = join
    tick(slurm, settings)
    assert slurm.elements["7_0"].barred == frozenset(NODES) - {"n8"} | {"n0"}


def test_a_fragment_that_starts_between_the_two_questions_has_its_own_node(
    settings: Settings,
) -> None:
    """Without its node the tick would count a node less than the site's ceiling allows."""
    slurm = FakeSlurm(dict.fromkeys(NODES, ""))
    slurm.submit(7, 3, MARK.replace("NOT", "n(4-8)"))
    tick(slurm, settings)
    about_places = places_command(["malleable"])
    slurm.before = lambda command: slurm.advance(1) if command == about_places else None
    (job,) = observe(slurm, ["malleable"]).jobs
    assert {f.state for f in job.fragments} == {FragmentState.PENDING}
    running = {e.index: e.nodes for e in slurm.of(7)}
    assert {f.id.index: f.nodes for f in job.fragments} == running
    assert set().union(*running.values()) == {"n1", "n2", "n3"}


def test_a_fragment_still_counts_once_the_core_of_its_job_has_its_node() -> None:
    """Otherwise the tick would start a fragment more than the site's ceiling allows."""
    request = replace(make_request(1, 3), core=1, lane="malleable", excluded=frozenset())
    core = make_fragment(0, FragmentState.RUNNING, ["n1"], request=request, lane="main")
    waits = make_fragment(1, FragmentState.PENDING, request=request, released=after(-5))
    job = make_job(core, waits, request=request)
    places = {waits.id: Place(excluded=frozenset({"n2", "n3"}))}
    nodes = (make_node("n1", NodeState.BUSY), make_node("n2"), make_node("n3"))
    fragments = placed(job, places, nodes).fragments
    assert [f.nodes for f in fragments] == [{"n1"}, {"n1"}]
    wider = {waits.id: Place(excluded=frozenset({"n3"}))}
    assert placed(job, wider, nodes).fragments[1].nodes == {"n2"}


def test_a_group_of_pairs_waits_for_pairs_of_the_free_nodes(settings: Settings) -> None:
    slurm = FakeSlurm(dict.fromkeys(NODES, ""))
    mark = MARK.replace("NOT", "n(5-8)").replace("min=1,max=6,unit=1", "min=2,max=4,unit=2")
    slurm.submit(7, 2, mark.replace("frags=6", "frags=2"))
    for element in slurm.of(7):
        element.count = 2
    tick(slurm, settings)
    (job,) = observe(slurm, ["malleable"]).jobs
    assert [f.nodes for f in job.fragments] == [{"n1", "n2"}, {"n3", "n4"}]
    slurm.nodes["n2"] = "+DRAIN"  # an odd number of nodes leaves a node apart
    (job,) = observe(slurm, ["malleable"]).jobs
    assert [len(f.nodes) for f in job.fragments] == [2, 2]
    assert not job.fragments[0].nodes & job.fragments[1].nodes


def test_a_fragment_with_its_own_list_is_tried_apart_after_a_refused_update(
    settings: Settings,
) -> None:
    slurm = FakeSlurm(dict.fromkeys(NODES, ""))
    slurm.submit(7, 3, MARK.replace("NOT", "n(4-8)").replace("6", "3"))
    slurm.elements["7_1"].asked = frozenset({"n1"})
    slurm.fates = ["refused"]
    tick(slurm, settings)
    slurm.advance(1)
    assert {e.state for e in slurm.of(7)} == {"RUNNING"}


def test_an_operators_list_of_too_few_nodes_makes_no_job_wait(settings: Settings) -> None:
    """With the list, the fragment would keep a node that is too little for it."""
    slurm = FakeSlurm({"n1": "", "n2": ""})
    slurm.submit(7, 2, MARK.replace("NOT", "-").replace("min=1,max=6,unit=1", "min=2,max=4,unit=2"))
    slurm.submit(8, 1, MARK.replace(",not=NOT", "").replace("max=6", "max=1"))
    slurm.elements["7_0"].asked = frozenset({"n1"})
    for element in slurm.of(7):
        element.count = 2
    for _ in range(3):
        plan = tick(slurm, settings).plan
    assert plan.actions == ()
    slurm.advance(5)
    assert {n for e in slurm.elements.values() for n in e.nodes} == {"n1", "n2"}


def test_no_fragment_starts_until_all_nodes_have_registered(settings: Settings) -> None:
    """The first reading may show the unregistered node, or only the last reading before writing."""
    for looks_before in (0, 1):
        slurm = FakeSlurm(dict.fromkeys(NODES, ""))
        slurm.submit(7, 3, MARK.replace("NOT", "n(4-8)"))

        def begin(command: Command, slurm: FakeSlurm = slurm, looks: int = looks_before) -> None:
            if command == cluster_command() and slurm.commands.count(command) > looks:
                slurm.silent = {"n8"}

        slurm.before = begin
        report = tick(slurm, settings)
        slurm.advance(5)
        assert not [e for e in slurm.of(7) if e.nodes]
        assert any("n8 has not reported" in note_text(note) for note in report.plan.notes)
        slurm.before, slurm.silent = lambda command: None, set()
        tick(slurm, settings)
        slurm.advance(5)
        assert {e.state for e in slurm.of(7)} == {"RUNNING"}


def test_each_node_is_tried_until_a_node_fits(settings: Settings) -> None:
    slurm = FakeSlurm(dict.fromkeys(NODES[:4], ""), features={"n4": frozenset({"x*1"})})
    slurm.submit(7, 1, MARK.replace("NOT", "-").replace("max=6", "max=1"))
    slurm.elements["7_0"].features = frozenset({"x*1"})  # for Slurm to judge
    for _ in range(4):
        tick(slurm, settings)
        slurm.advance(10)
    assert slurm.elements["7_0"].nodes == {"n4"}


def test_a_node_that_joins_later_is_not_taken_for_an_unfit_node(settings: Settings) -> None:
    """A bug once: a fragment that was unfit for its group waited for every unknown node."""
    slurm = FakeSlurm({"n1": "", "n2": ""})
    slurm.submit(7, 2, MARK.replace("NOT", "-"))
    for element in slurm.of(7):
        element.features = frozenset({"x*1"})  # for Slurm to judge
    for _ in range(2):
        tick(slurm, settings)
        slurm.advance(10)
    before = len(slurm.commands)
    observe(slurm, ["malleable"])
    assert len(slurm.commands) == before + 2  # the places are on record, so no question follows
    slurm.nodes["n0"], slurm.features["n0"] = "", frozenset({"x*1"})
    tick(slurm, settings)
    slurm.advance(1)
    assert {n for e in slurm.of(7) for n in e.nodes} == {"n0"}


def test_a_fragment_whose_nodes_were_refused_is_not_released(settings: Settings) -> None:
    """A node is lost between the last reading and the update. The fragment would start with an
    older lease.
    """
    slurm = FakeSlurm(dict.fromkeys(NODES, ""))
    slurm.submit(7, 3, MARK.replace("NOT", "n(4-8)"), limit_min=600)

    def remove(command: Command) -> None:
        if command.stdin.startswith("update"):
            slurm.nodes.pop("n4", None)

    slurm.before = remove
    report = tick(slurm, settings)
    slurm.advance(5)
    assert not [e for e in slurm.of(7) if e.nodes]
    assert "Invalid node name" in "".join(report.refused)
    tick(slurm, settings)
    slurm.advance(5)
    assert {n for e in slurm.of(7) for n in e.nodes} == {"n1", "n2", "n3"}


def test_a_job_whose_nodes_were_refused_keeps_no_other_job_from_starting(
    settings: Settings,
) -> None:
    slurm = FakeSlurm(dict.fromkeys(NODES, ""))
    slurm.submit(7, 3, MARK.replace("NOT", "n(4-8)"))
    slurm.submit(8, 2, MARK.replace("NOT", "n(1-3)").replace("max=6", "max=2"))
    slurm.before = lambda command: _cancelled(slurm, command)
    tick(slurm, settings)
    slurm.advance(5)
    assert {e.name for e in slurm.elements.values() if e.nodes} == {"7_0", "7_2", "8_0", "8_1"}


def _cancelled(slurm: FakeSlurm, command: Command) -> None:
    if command.stdin.startswith("update"):
        slurm.does("scancel 7_1")


def test_a_refused_update_among_many_is_found_by_halves() -> None:
    """A fragment of slots has its own line. A process for each would take half a minute."""
    slurm = FakeSlurm(dict.fromkeys(NODES, ""), sizes=dict.fromkeys(NODES, resources(64, 64_000)))
    mark = MARK.replace("NOT", "-,slot=cpu:1+mem:1000").replace("=6", "=64")
    slurm.submit(7, 64, mark, part=Part())
    seen = observe(slurm, ["malleable"])
    (job,) = seen.jobs
    intents = [
        Intent(
            f.id,
            Why.HOLE_OPEN,
            Verb.GROW,
            mark=f.mark,
            nodes=frozenset({NODES[f.id.index % 8]}),
            limit=timedelta(minutes=10),
        )
        for f in job.fragments
    ]
    slurm.does("scancel 7_40")
    before = len(slurm.commands)
    refused = apply(slurm, seen, intents, lambda text: None)
    assert "7_40" in "".join(refused)
    assert len(slurm.commands) - before < 30
    slurm.advance(1)
    assert len([e for e in slurm.of(7) if e.state == "RUNNING"]) == 63


def test_a_start_does_not_wait_until_others_have_heard_that_they_are_to_leave() -> None:
    """On 22.05 scancel sleeps while elements of the array wait."""
    slurm = FakeSlurm(dict.fromkeys(NODES, ""))
    slurm.submit(7, 2, MARK.replace("NOT", "-"))
    seen = observe(slurm, ["malleable"])
    (job,) = seen.jobs
    stays, starts = job.fragments
    intents = [
        Intent(stays.id, Why.BETTER_USE, Verb.NOTICE),
        Intent(
            starts.id,
            Why.HOLE_OPEN,
            Verb.GROW,
            mark=starts.mark,
            nodes=frozenset({NODES[0]}),
            limit=timedelta(minutes=10),
        ),
    ]
    written: list[str] = []
    apply(slurm, seen, intents, written.append)
    assert [text.split()[0] for text in written][-1] == "scancel"
    assert len(written) > 1


def test_odd_lines_are_passed_over() -> None:
    rows = ("7_1|n[1-2]|", "7_2||n9", "8|n3|", "squeue: error", "7_[3-4]|n4|", "7_5|n6 n7|")
    text = "\n".join((*rows, "7_6|n[1-|", "7_7|n1"))
    none: frozenset[str] = frozenset()
    assert parse_places(text) == {
        FragmentId(7, 1): Place(frozenset(("n1", "n2"))),
        FragmentId(7, 2): Place(none, frozenset(("n9",))),
    }


def released(slurm: FakeSlurm, *nodes: str, engine: str = "torchrun") -> None:
    """Make a job of slots whose fragments wait for these nodes, a node for each."""
    changes = {"NOT": "-,at=1799999990,slot=gpu,slots=4", "torchrun": engine, "unit=1": "unit=2"}
    mark = MARK.replace("min=1", "min=2")
    for old, new in changes.items():
        mark = mark.replace(old, new)
    slurm.submit(7, len(nodes), mark)
    for element, node in zip(slurm.of(7), nodes):
        element.hold, element.barred = "", frozenset(slurm.nodes) - {node}


def test_a_fragment_of_slots_is_bound_to_its_node_until_it_starts() -> None:
    slurm = FakeSlurm(dict.fromkeys(NODES, ""))
    released(slurm, "n3", "n1", "n8")
    slurm.nodes["n1"] = "+DRAIN"
    (job,) = observe(slurm, ["malleable"]).jobs
    assert [f.nodes for f in job.fragments] == [{"n3"}, {"n1"}, {"n8"}]
    assert {f.size for f in job.fragments} == {4}


def test_workers_of_a_pool_wait_for_a_node_that_they_share() -> None:
    slurm = FakeSlurm(dict.fromkeys(NODES, ""))
    released(slurm, "n3", "n3", "n3", "n1", engine="pool")
    slurm.elements["7_0"].state, slurm.elements["7_0"].nodes = "RUNNING", frozenset({"n3"})
    (job,) = observe(slurm, ["malleable"]).jobs
    assert [f.nodes for f in job.fragments] == [{"n3"}, {"n3"}, {"n3"}, {"n1"}]


def test_many_starts_are_released_in_batches_so_that_none_is_too_late() -> None:
    """Slurm took 20 to 50 ms for a line: a command of 500 lines never came to its releases."""
    slurm = FakeSlurm({f"n{n}": "" for n in range(120)})
    mark = MARK.replace("NOT", "-").replace("frags=6", "frags=120")
    slurm.submit(7, 120, mark.replace("torchrun", "pool"))  # a gang would not be split
    seen = observe(slurm, ["malleable"])
    written: list[Command] = []
    slurm.before = written.append
    apply(slurm, seen, [grow(n, f"n{n}", None) for n in range(120)], lambda text: None)
    lines = [command.stdin.splitlines() for command in written]
    assert [len(each) for each in lines] == [50, 1, 50, 1, 20, 1]
    assert [each[0].split()[0] for each in lines] == ["update", "release"] * 3
    slurm.advance(1)
    assert [e.state for e in slurm.of(7)] == ["RUNNING"] * 120
