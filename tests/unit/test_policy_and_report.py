"""The policy table is valid Lua, and the texts for users are right."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
from dataclasses import replace
from datetime import timedelta
from typing import Optional

import pytest
from rich.console import Console
from rich.table import Table

from build import (
    NOW,
    after,
    make_fragment,
    make_job,
    make_mark,
    make_nodes,
    make_request,
    make_snapshot,
    no_clock,
    reserve,
    span,
)
from slurm_hooks.history.harvest.jobs import Interruptions
from slurm_hooks.model import (
    Fragment,
    FragmentId,
    FragmentState,
    Intent,
    MalleableJob,
    NodeState,
    Said,
    Slurm,
    Solve,
    Terms,
    Verb,
    Why,
)
from slurm_hooks.model.moments import shown
from slurm_hooks.model.snapshot.codec import to_data
from slurm_hooks.planning.plan import make_plan
from slurm_hooks.report.hints import hints
from slurm_hooks.report.json_data import plan_data
from slurm_hooks.report.lost_work import lost_work
from slurm_hooks.report.tables import print_lines
from slurm_hooks.report.text import (
    action_lines,
    explain_lines,
    fragments_table,
    job_state,
    jobs_table,
    minutes,
)
from slurm_hooks.report.why import action_text
from slurm_hooks.settings.values import Settings, parse
from slurm_hooks.slurm.lua_policy import Largest, Rules, gpus_of, largest_of, render_policy

LUA = shutil.which("lua5.1") or shutil.which("lua")
ODD = ["malleable", "a-b.c", 'q"uote', "back\\slash", "new\nline"]


def slurm_with(array_size: int = 4000) -> Slurm:
    return replace(make_snapshot().slurm, max_array_size=array_size)


def lua(text: str, expression: str) -> str:
    if LUA is None:
        pytest.skip("lua5.1 is not installed")
    program = f"local p = (function()\n{text}\nend)()\nio.write(tostring({expression}))"
    done = subprocess.run(
        [LUA, "-"], input=program, capture_output=True, text=True, timeout=150, check=False
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("#p.partitions", "1"),
        ("p.partitions[1]", "malleable"),
        ("p.operators[0]", "true"),
        ("p.operators[1000]", "nil"),
        ("p.engines.torchrun", "gang+rounds+torchrun"),
        ("p.engines.pool", "pool"),
        ("p.max_fragments", "64"),
        ("p.max_workers", "1000"),
        ("p.max_nodes", "1024"),
        ("p.max_array_size", "4000"),
        ("p.lease_s", "600"),
        ("p.hole_s", "120"),
        ("p.notice_s", "20"),
        ("p.farewell_s", "2"),
    ],
)
def test_the_policy_in_lua(expression: str, value: str) -> None:
    assert lua(render_policy(Settings(), slurm_with(), {"root": 0}), expression) == value


def test_the_policy_has_the_gpus_of_each_partition() -> None:
    nodes = [
        {"Partitions": "malleable,main", "Gres": "gpu:a100:8(S:0-1)"},
        {"Partitions": "malleable", "Gres": "gpu:4"},
        {"Partitions": "malleable", "Gres": "(null)"},
        {"Partitions": "main", "Gres": "gpu:2"},
        {"Gres": "gpu:1"},
    ]
    gpus = gpus_of(nodes, ("malleable", "parts"))
    assert gpus == {"malleable": {"gpu": [4, 8], "gpu:a100": [8]}}
    text = render_policy(Settings(), slurm_with(), {}, Rules(gpus=gpus))
    assert lua(text, "table.concat(p.gpus.malleable.gpu, ' ')") == "4 8"
    assert lua(text, "p.gpus.malleable['gpu:a100'][1]") == "8"
    assert lua(render_policy(Settings(), slurm_with(), {}), "p.gpus") == "nil"


def test_the_policy_has_the_largest_node_of_each_partition() -> None:
    nodes = [
        {"Partitions": "malleable,main", "CPUTot": "64", "RealMemory": "1000"},
        {"Partitions": "malleable", "CPUTot": "8", "RealMemory": "2000"},
        {"Partitions": "main", "CPUTot": "128", "RealMemory": "9000"},
    ]
    largest = largest_of(nodes, ("malleable", "parts"))
    assert largest == {"malleable": Largest(64, 2000)}
    text = render_policy(Settings(), slurm_with(), {}, Rules(largest=largest))
    assert lua(text, "p.largest.malleable.cpus .. ' ' .. p.largest.malleable.memory") == "64 2000"


@pytest.mark.parametrize("name", ODD)
def test_odd_names_cannot_break_out(name: str) -> None:
    settings = parse(f"[site]\npartitions = [{json.dumps(name)}]")
    text = render_policy(settings, slurm_with(), {})
    assert lua(text, "p.partitions[1]") == name
    assert lua(text, "p.engines.torchrun") == "gang+rounds+torchrun"


def test_the_reason_why_no_malleable_job_can_run_in_a_partition() -> None:
    why = 'PartitionName=b "PriorityTier=1": alike'
    text = render_policy(Settings(), slurm_with(), {}, Rules(unfit={"b": why}))
    assert lua(text, "p.unfit.b") == why
    assert lua(text, "tostring(p.unfit.malleable)") == "nil"


def test_a_partition_for_parts_of_nodes() -> None:
    settings = parse('[site]\npartitions = ["malleable", "parts"]\npart_nodes = "parts"')
    assert lua(render_policy(settings, slurm_with(), {}), "p.part_nodes") == "parts"
    assert lua(render_policy(Settings(), slurm_with(), {}), "tostring(p.part_nodes)") == "nil"


@pytest.mark.parametrize(("by_qos", "name"), [(True, "low"), (False, "nil")])
def test_a_qos_for_parts_of_nodes_counts_only_where_qos_decide(by_qos: bool, name: str) -> None:
    """job_submit gave jobs a misspelled partition as their QOS, and Slurm refused them."""
    settings = parse('[site]\nqos = "scavenge"\npart_nodes = "low"')
    known = replace(slurm_with(), preempts_by_qos=by_qos)
    policy = render_policy(settings, known, {})
    assert lua(policy, "tostring(p.parts_qos)") == name
    assert lua(policy, "tostring(p.part_nodes)") == "nil"


@pytest.mark.parametrize(
    ("version", "begins"), [((), "gres:"), ((22, 5, 8), "gres:"), ((23, 2, 0), "gres/")]
)
def test_the_name_of_a_gpu_in_this_slurm(version: tuple[int, ...], begins: str) -> None:
    known = replace(slurm_with(), version=version)
    assert lua(render_policy(Settings(), known, {}), "p.gres") == begins


def test_a_partition_with_a_grace_has_its_own_notice() -> None:
    text = '[site]\npartitions = ["malleable", "grace", "parts"]\npart_nodes = "parts"'
    terms = [Terms("malleable"), Terms("grace", span(300)), Terms("parts", span(0), span(60))]
    policy = render_policy(parse(text), slurm_with(), {}, Rules(terms=terms))
    notices = {name: lua(policy, f"tostring(p.notices.{name})") for name in ("malleable", "grace")}
    assert notices == {"malleable": "nil", "grace": "300"}
    assert lua(policy, "p.notices.parts") == "300"  # its fragments may have whole nodes elsewhere
    assert lua(render_policy(parse(text), slurm_with(), {}), "tostring(p.notices)") == "nil"


def test_a_separate_account_and_qos() -> None:
    settings = parse('[site]\nqos = "scavenge"\naccount = "spare"')
    text = render_policy(settings, slurm_with(), {})
    assert (lua(text, "p.qos"), lua(text, "p.account")) == ("scavenge", "spare")
    assert lua(render_policy(Settings(), slurm_with(), {}), "tostring(p.account)") == "nil"


def test_the_users_of_malleable_jobs() -> None:
    """A list of strangers only lets nobody submit, and no list lets everybody."""
    settings = parse('[site]\nusers = ["ann", "bo"]')
    known = render_policy(settings, slurm_with(), {}, Rules(users={"ann": 1001}))
    assert lua(known, "tostring(p.users[1001]) .. tostring(p.users[0])") == "truenil"
    assert lua(render_policy(settings, slurm_with(), {}), "type(p.users)") == "table"
    assert lua(render_policy(Settings(), slurm_with(), {}), "tostring(p.users)") == "nil"


def test_names_beyond_ascii() -> None:
    settings = parse('[site]\npartitions = ["büro"]')
    assert lua(render_policy(settings, slurm_with(), {}), "p.partitions[1]") == "büro"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (59, "0:59"), (600, "10:00"), (3600, "1:00:00"), (90061, "25:01:01")],
)
def test_durations(seconds: int, text: str) -> None:
    assert minutes(timedelta(seconds=seconds)) == text


def test_an_overrun_lease_reads_well() -> None:
    late = make_fragment(0, FragmentState.RUNNING, ["n1"], start=after(-605))
    text = printed(fragments_table(make_job(late), NOW))
    assert "59:55" not in text


def printed(table: Table) -> str:
    console = Console(file=io.StringIO(), width=160)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


RUNNING = make_fragment(0, FragmentState.RUNNING, ["n1"])
WITH_CORE = replace(make_request(), core=1, lane="malleable")


@pytest.mark.parametrize(
    ("job", "word"),
    [
        (make_job(held=2), "waiting"),
        (make_job(RUNNING, held=1), "running"),
        (make_job(make_fragment(0, FragmentState.RUNNING, ["n1"], noticed=NOW)), "leaving"),
        (make_job(make_fragment(0, FragmentState.PENDING, ["n1"]), held=1), "starting"),
        (make_job(make_fragment(0, FragmentState.PENDING, request=WITH_CORE), held=1), "waiting"),
        (make_job(make_fragment(0, stopped="why"), held=1), "stopped"),
        (make_job(make_fragment(0, FragmentState.CANCELLED)), "cancelled"),
        (make_job(make_fragment(0, FragmentState.DONE)), "ended"),
        (make_job(make_fragment(0, FragmentState.SUSPENDED, ["n1"])), "suspended"),
        (make_job(make_fragment(0, FragmentState.UNKNOWN)), "unknown"),
        (make_job(make_fragment(0, FragmentState.SPECIAL)), "waiting"),
        (make_job(make_fragment(0, FragmentState.SUSPENDED, ["n1"]), held=1), "waiting"),
        (
            make_job(
                make_fragment(0, FragmentState.SUSPENDED, ["n1"]),
                make_fragment(1, FragmentState.ENDING, ["n2"]),
            ),
            "ending",
        ),
    ],
)
def test_a_single_word_for_each_state_of_a_job(job: MalleableJob, word: str) -> None:
    assert job_state(job) == word


def test_tables() -> None:
    seen = make_snapshot(make_job(RUNNING, held=1), nodes=make_nodes(2))
    text = printed(jobs_table(seen.jobs, NOW, {7: "a [b]"}, {7: "has its maximum"}, 80))
    for word in ("in 6:40", "1-6", "a [b]", "has its maximum"):
        assert word in text
    leaving = make_fragment(1, FragmentState.RUNNING, ["n2"], noticed=NOW)
    text = printed(fragments_table(make_job(RUNNING, leaving), NOW))
    assert "7_0" in text
    assert "leaving" in text
    text = printed(jobs_table([make_job(RUNNING, leaving)], NOW, {}, {}, 80))
    assert "1 node, 1 leaves" in text


@pytest.mark.parametrize(
    ("fragment", "starts"),
    [
        (RUNNING, "1"),
        (make_fragment(0, FragmentState.RUNNING, ["n1"], start=NOW, restarts=1), "2"),
        (make_fragment(0, FragmentState.DONE, ["n1"], start=NOW, end=NOW + span(60)), "1"),
        (make_fragment(0, FragmentState.HELD, restarts=1), "1"),
        (make_fragment(0, FragmentState.PENDING, ["n1"], start=NOW), "0"),
        (make_fragment(0, FragmentState.CANCELLED, start=NOW, end=NOW), "0"),
    ],
)
def test_starts_count_the_run_of_a_fragment_that_ended(fragment: Fragment, starts: str) -> None:
    assert printed(fragments_table(make_job(fragment), NOW)).split()[-1] == starts


def test_actions_in_words() -> None:
    ids = [FragmentId(7, index) for index in range(6)]
    intents = (
        Intent(
            ids[0],
            Why.HOLE_OPEN,
            Verb.GROW,
            mark=make_mark(),
            nodes=frozenset({"n1", "n2"}),
            limit=span(300),
        ),
        *(Intent(name, Why.FINISHED, Verb.CANCEL) for name in ids[1:3]),
        Intent(ids[3], Why.LEASE_ENDED, Verb.PUT_BACK, is_held=True, is_ended=True),
        Intent(ids[4], Why.NOTED, mark=make_mark()),
        Intent(ids[5], Why.SECURED, is_held=True, end=after(4000)),
    )
    assert action_lines(intents) == [
        "grow 7_0 on n[1-2] for 5:00: hole open",
        "cancel 7_[1-2]: training finished",
        "put back 7_3: lease ended",
        f"set mark 7_4: {action_text('noted')}",
        f"hold, renew 7_5 until {shown(after(4000))}: {action_text('secured')}",
    ]


def test_brackets_are_no_markup() -> None:
    console = Console(file=io.StringIO(), width=80)
    print_lines(console, ["[bold]7_[0-5][/bold] :smile:"])
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == "[bold]7_[0-5][/bold] :smile:\n"


def test_a_job_is_explained() -> None:
    job = make_job(RUNNING, held=5)
    seen = make_snapshot(
        job,
        nodes=[make_nodes(1, NodeState.BUSY)[0], *make_nodes(3)[1:]],
        reservations=[reserve(["n2"], 60)],
    )
    plan = make_plan(seen, Settings(), no_clock)
    text = "\n".join(explain_lines(job, plan, NOW))
    assert "running, 1 node of 1-6" in text
    assert "next tick: grow 7_1 on n3" in text
    assert "free, but its hole is too short (reservation: maint)" in text
    json.dumps(plan_data(plan, NOW))


def test_the_end_of_a_node_s_use_is_printed_with_its_zone() -> None:
    job = make_job(RUNNING, held=5)
    seen = make_snapshot(
        job, nodes=[make_nodes(1, NodeState.BUSY)[0]], reservations=[reserve(["n1"], 3600)]
    )
    lines = explain_lines(job, make_plan(seen, Settings(), no_clock), NOW)
    assert f"n1 may be used until {shown(after(3600), NOW)} (reservation: maint)" in lines


def test_a_cancel_belongs_to_the_next_actions() -> None:
    job = make_job(make_fragment(stopped="failed-3-times"), held=2)
    lines = explain_lines(job, make_plan(make_snapshot(job), Settings(), no_clock), NOW)
    assert any(line.startswith("next tick: cancel") for line in lines), lines


def test_the_words_of_a_job_are_quoted() -> None:
    job = make_job(RUNNING, held=5)
    plan = make_plan(make_snapshot(job), Settings(), no_clock)
    lines = explain_lines(job, plan, NOW, ['all is "well"', "b"])
    assert lines[-2:] == [
        "the job reports: \"all is 'well'\"",
        'the job reports: "b"',
    ]
    assert explain_lines(job, plan, NOW) == lines[:-2]


@pytest.mark.parametrize(
    ("loss_s", "interruptions", "advice"),
    [
        (None, Interruptions(9, 3600.0), ""),
        (1.0, Interruptions(9, 3600.0), ""),
        (600.0, None, "its checkpoints are up to 10 minutes apart, so a lost node repeats"),
        (
            600.0,
            Interruptions(0, 3600.0),
            "its checkpoints are up to 10 minutes apart, so a lost node",
        ),
        (
            600.0,
            Interruptions(4, 3600.0),
            "about 33 % of its work was done twice: its checkpoints are up to 10 minutes apart, "
            "and nodes were lost without notice 4 times; `checkpoint.watch",
        ),
        (
            90.0,
            Interruptions(1, 0.0),
            "about 100 % of its work was done twice: its checkpoints are up",
        ),
    ],
)
def test_checkpoints_far_apart_are_worth_a_hint(
    loss_s: Optional[float], interruptions: Optional[Interruptions], advice: str
) -> None:
    job = make_job(replace(RUNNING, loss_s=loss_s), held=5)
    lost = lost_work(job, interruptions)
    plan = make_plan(make_snapshot(job), Settings(), no_clock)
    lines = explain_lines(job, plan, NOW, advice=lost.advice)
    assert [line for line in lines if f"hint: {advice}" in line and advice] == [
        f"hint: {text}" for text in lost.advice
    ]
    assert bool(advice) == bool(lost.advice)


@pytest.mark.parametrize(
    ("fragment", "wanted"),
    [
        (make_fragment(failures=2), "failed 2 times in a row"),
        (make_fragment(stopped="failed-3-times:exit-127:0-on-n1"), "a command was not found"),
        (make_fragment(0, FragmentState.FAILED, failures=1, exit_code="0:9"), "out of memory"),
        (
            make_fragment(stopped="failed-3-times:exit-1:0-on-n1", has_agent=False),
            "older than 2.6",
        ),
    ],
)
def test_possible_causes_of_a_fragment_s_death(fragment: Fragment, wanted: str) -> None:
    job = make_job(fragment)
    assert wanted in "\n".join(hints(job))
    plan = make_plan(make_snapshot(job), Settings(), no_clock)
    assert f"hint: {hints(job)[0]}" in explain_lines(job, plan, NOW)


# srun ends with the errno of its execve: 2 or 13 (Slurm 22.05).
@pytest.mark.parametrize("code", ["2:0", "13:0", "126:0", "127:0", "15:53"])
def test_a_torchrun_that_never_ran_does_not_blame_torch(code: str) -> None:
    fragment = make_fragment(stopped=f"failed-3-times:exit-{code}-on-n1", has_agent=False)
    assert [line for line in hints(make_job(fragment)) if "torch is older" in line] == []


def test_a_finished_training_has_no_hints() -> None:
    """A fragment was killed on the way, and the count of failures was never cleared."""
    ended = {"exit_code": "0:0", "said": Said.FINISHED}
    back = make_fragment(1, FragmentState.CANCELLED, failures=1)
    job = make_job(make_fragment(0, FragmentState.DONE, ["n1"], **ended), back)
    assert hints(job) == ()
    job = make_job(make_fragment(0, FragmentState.CANCELLED, failures=1, is_finished=True))
    assert hints(job) == ()


def test_no_hints_where_there_is_no_trouble() -> None:
    assert hints(make_job(RUNNING, held=5)) == ()
    assert hints(make_job(make_fragment(stopped="too-few-fragments-left"))) == ()
    met = make_fragment(stopped="failed-3-times:exit-1:0-on-n1")
    assert "torch" not in "".join(hints(make_job(met)))  # its agents reported the right torch
    other = replace(make_request(), engine="mpi")
    assert "torch" not in "".join(hints(make_job(make_fragment(request=other, failures=1))))


def test_data_is_plain() -> None:
    data = to_data({"at": NOW, "set": frozenset({"b", "a"}), "far": float("inf"), "s": Solve()})
    assert data["set"] == ["a", "b"]
    assert data["far"] is None
    assert json.loads(json.dumps(data))["s"]["status"] == "nothing to do"
