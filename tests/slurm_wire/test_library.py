"""The answer made from libslurm's records, and the cases that are left to squeue."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from slurm_hooks.commands import console
from slurm_hooks.errors import MissingProgram, RetryLater
from slurm_hooks.model import Resources
from slurm_hooks.settings.values import Settings, Tick
from slurm_hooks.slurm import library_jobs, live, rows
from slurm_hooks.slurm.jobs import parse_jobs
from slurm_hooks.slurm.library_jobs import Unsure, answer, element_names
from slurm_hooks.slurm.live import Live, WithLibrary
from slurm_hooks.slurm.others import REASONS
from slurm_hooks.slurm.rows import jobs_command
from slurm_hooks.slurm.text import Command

MARK = "malleable{min=1,max=6,unit=1,engine=torchrun,frags=6,lease=120,hole=60}"


@dataclass
class Job:
    """A record as pyslurm gives it: None where a value is missing."""

    id: int = 7
    array_id: Any = None
    array_task_id: Any = None
    array_tasks_waiting: Any = None
    state: str = "PENDING"
    priority: int = 0
    partition: str = "malleable"
    user_name: str = "nobody"
    submit_time: Any = 1_700_000_000
    eligible_time: Any = None
    start_time: Any = None
    end_time: Any = None
    time_limit: Any = 2
    requeue_count: int = 0
    exit_code: int = 0
    exit_code_signal: int = 0
    state_reason: Any = "JobHeldUser"
    allocated_nodes: Any = None
    required_nodes: Any = None
    scheduled_nodes: Any = None
    dependencies: Any = None
    memory_per_node: Any = 1000
    memory_per_cpu: Any = None
    min_cpus_per_node: int = 1
    cpus: int = 1
    gres_per_node: dict[str, int] = field(default_factory=dict)
    submit_line: Any = None
    constraints: list[str] = field(default_factory=list)
    admin_comment: Any = None
    comment: Any = None


def ours(**changes: Any) -> Job:
    return Job(**{"array_id": 7, "array_tasks_waiting": "0-1", "admin_comment": MARK, **changes})


def read(*jobs: Job) -> Any:
    return parse_jobs("\n".join(answer(jobs)), ["malleable"])


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"array_id": None}, ["7"]),
        ({"array_id": 7, "array_task_id": None}, ["7_0"]),  # pyslurm's word for 0
        ({"array_id": 7, "array_task_id": 3}, ["7_3"]),
        ({"array_id": 7, "array_tasks_waiting": "1,4-5"}, ["7_1", "7_4", "7_5"]),
        ({"array_id": 7, "array_tasks_waiting": "0-4:2"}, ["7_0", "7_2", "7_4"]),
    ],
)
def test_names_of_elements(changes: dict[str, Any], names: list[str]) -> None:
    assert element_names(Job(**changes)) == names


def test_rows_that_matter_to_no_plan_are_counted() -> None:
    """Such a row need not be exact, and elements that share a record count as several."""
    ended = Job(id=8, state="FAILED", exit_code=9)
    queue = read(Job(), ended, Job(array_id=9, array_tasks_waiting="0-99"), ours())
    (job,) = queue.malleable
    assert [f.id.index for f in job.fragments] == [0, 1]
    assert (queue.records, queue.planned, queue.unknown) == (104, (), ())
    assert list(answer([ended])) == ["others=1"]


def test_jobs_that_wait_for_a_limit_or_are_named_in_a_mark_have_a_row() -> None:
    """The program knows the limits by a pattern, since it imports no module of ours."""
    waits = {"partition": "main", "priority": 5, "user_name": "bob"}
    limits = [Job(id=100 + n, state_reason=r, **waits) for n, r in enumerate(REASONS)]
    queue = read(
        ours(array_tasks_waiting="0", admin_comment=f"{MARK[:-1]},for=9_2}}"),
        Job(id=9, array_id=9, array_tasks_waiting="1-2", state_reason="Resources", **waits),
        Job(id=10, state_reason="Resources", **waits),
        *limits,
    )
    reasons = {w.job_id: w.reason for w in queue.waiting}
    assert reasons == {"9_2": "Resources", **{f"{job.id}": job.state_reason for job in limits}}
    assert queue.records == 4 + len(limits)


def test_an_array_cut_by_a_cancel() -> None:
    waiting = ours(array_tasks_waiting=None, array_task_id=1)
    whole = ours(state="CANCELLED", array_id=None, array_tasks_waiting=None)
    (job,) = read(waiting, whole).malleable
    assert job.is_cut


def test_comments_of_an_agent_and_of_the_site_are_read() -> None:
    said = "joined{0};h{9};progress{s1790000000,2:5/9/64};and more words than fit " + "x" * 200
    note = f"site | note; {MARK}"
    job = ours(state="RUNNING", comment=said, admin_comment=note, time_limit=None, end_time=2_000)
    (read_job,) = read(job).malleable
    fragment = read_job.fragments[0]
    assert (fragment.said.value, fragment.limit) == ("joined", None)
    assert fragment.telemetry.rates[0].per_s == 5.0
    assert fragment.note.startswith("site | note; ")


def test_the_slots_of_a_fragment_are_read() -> None:
    mark = f"{MARK[:-1]},slot=gpu:a100,slots=4}}"
    sizes = {"memory_per_node": 40_000, "min_cpus_per_node": 12, "cpus": 12}
    job = ours(admin_comment=mark, **sizes, gres_per_node={"gpu:a100": 4})
    (read_job,) = read(job).malleable
    assert read_job.fragments[0].asks == Resources(12, 40_000, (("gpu", 4), ("gpu:a100", 4)))


def test_the_program_writes_the_end_of_a_row() -> None:
    of_program = (library_jobs.SAID_WIDTH, library_jobs.RECORD_END)
    assert of_program == (rows.SAID_WIDTH, rows.RECORD_END)


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "FAILED", "exit_code": 9},  # or 137
        {"state": "FAILED"},  # 128
        {"array_tasks_waiting": "0-3,..."},
        {"admin_comment": f"two\nlines {MARK}"},
        {"comment": "two\nlines"},
        {"user_name": "a|b"},
        {"submit_line": "sbatch --tres-per-node=gres/gpu=2 x"},
    ],
)
def test_a_value_that_is_not_exact_is_left_out(changes: dict[str, Any]) -> None:
    with pytest.raises(Unsure):
        list(answer([ours(**changes)]))


def test_planned_and_recent_starts_of_other_jobs_are_printed() -> None:
    def began(job_id: int, start: int, **more: Any) -> Job:
        place = {"partition": "main", "allocated_nodes": f"n{job_id}", "state": "RUNNING"}
        return Job(id=job_id, start_time=start, **{**place, **more})

    ended = began(2, 9_950, state="FAILED", exit_code=9)
    planned = Job(id=12, start_time=1_700_000_600, scheduled_nodes="n[1-2]", partition="main")
    queue = read(began(1, 10_000), ended, began(3, 9_000), planned)
    assert [(start.job_id, start.nodes) for start in queue.started] == [
        ("2", {"n2"}),
        ("1", {"n1"}),
    ]
    assert [(start.job_id, start.nodes) for start in queue.planned] == [("12", {"n1", "n2"})]
    assert (queue.records, queue.unknown) == (4, ())


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a stand-in for the library's program, with a squeue beside it."""
    script = tmp_path / "library_jobs.py"
    monkeypatch.setattr(live, "_LIBRARY", script)
    squeue = tmp_path / "squeue"
    squeue.write_text("#!/bin/sh\necho from squeue\n")
    squeue.chmod(0o755)
    return script


def port(program: Path, timeout_s: float = 20.0) -> WithLibrary:
    return WithLibrary(Live(timeout_s, str(program.parent)))


def test_the_library_answers_for_squeue(program: Path) -> None:
    program.write_text("print('others=3')")
    with_library = port(program)
    assert with_library.ask(jobs_command()) == "others=3\n"
    assert [asked.argv[0] for asked in with_library.asked] == [sys.executable]


@pytest.mark.parametrize("text", ["raise SystemExit(3)", "import os; os.abort()", "import nothing"])
def test_squeue_answers_where_the_library_does_not(program: Path, text: str) -> None:
    program.write_text(text)
    assert port(program).ask(jobs_command()) == "from squeue\n"


def test_a_library_that_hangs_is_ended(program: Path) -> None:
    program.write_text("import time; time.sleep(600)")
    with pytest.raises(RetryLater, match=r"no answer in 0\.5 s"):
        port(program, 0.5).ask(jobs_command())


def test_other_questions_are_for_the_commands(program: Path) -> None:
    assert port(program).ask(Command(("squeue", "--me"))) == "from squeue\n"
    with pytest.raises(MissingProgram):
        port(program).ask(Command(("scontrol",), "show nodes\n"))


def test_the_port_that_a_site_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    wants = Settings(tick=Tick(port="pyslurm"))
    monkeypatch.setattr(console, "find_spec", lambda name: None)
    assert isinstance(console.live(Settings()), Live)
    with pytest.raises(MissingProgram, match="pip install pyslurm"):
        console.live(wants)
    monkeypatch.setattr(console, "find_spec", lambda name: object())
    assert isinstance(console.live(wants), WithLibrary)
    assert isinstance(console.live(Settings()), Live)
