"""The traces of a fragment that leaves, in a real Slurm without ticks.

An element that waits is held and names its last state. Only a training that has finished leaves a
finish.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from promises.bench import TRAINER, WITH_TORCHRUN, Bench, has
from slurm_hooks.model import ENDED_STATES
from slurm_hooks.sandbox import Sandbox
from waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.torch]
TINY = Path(__file__).resolve().parents[1] / "elastic" / "train_tiny.py"
HEAD = f"{WITH_TORCHRUN} OMP_NUM_THREADS=1\n"
LONG = 100_000


@pytest.fixture
def bench(sandbox: Sandbox) -> Iterator[Bench]:
    pytest.importorskip("torch")
    bench = Bench(sandbox)
    yield bench
    bench.cancel_all()


def submit(bench: Bench, script: str, request: str = "1-3") -> int:
    return bench.submit(HEAD + script, request, TRAINER)


def train(bench: Bench, steps: int, *more: str) -> str:
    return " ".join(["torchrun", str(TINY), str(fresh(bench)), str(steps), *more])


def fresh(bench: Bench) -> Path:
    """Make a directory for a training. It replaces the newest directory."""
    place = bench.box.work / f"train{time.monotonic_ns()}"
    place.mkdir(mode=0o777)
    place.chmod(0o777)
    return place


def release(bench: Bench, job: int, number: int, minutes: int = 10) -> None:
    name = f"jobid={job}_{number}"
    words = [f"ReqNodeList=n{number + 1}", f"TimeLimit={minutes}", "StartTime=now"]
    bench.box.run(["scontrol", "update", name, *words])
    bench.box.run(["scontrol", "release", f"{job}_{number}"])


def shown(bench: Bench, job: int, number: int) -> dict[str, str]:
    """Read an element's state, reason, priority and comment from Slurm."""
    text = bench.box.run(["scontrol", "-o", "show", "job", f"{job}_{number}"], check=False).stdout
    fields = {}
    for name in ("JobState", "Reason", "Priority", "Comment", "Restarts", "ExitCode"):
        match = re.search(rf"(?<!\w){name}=(\S*)", text)
        fields[name] = match.group(1) if match else ""
    return fields


def left_s(bench: Bench, job: int, number: int) -> int:
    """Seconds to the end of its lease."""
    said = bench.box.run(["squeue", "-h", f"--jobs={job}_{number}", "-o", "%L"]).stdout.strip()
    minutes, _, seconds = said.partition(":")
    return 60 * int(minutes) + int(seconds)


def log(bench: Bench, job: int, number: int) -> str:
    path = bench.box.work / f"slurm-{job}_{number}.out"
    return path.read_text(errors="replace") if path.exists() else ""


def has_formed(bench: Bench, job: int, size: int) -> Callable[[], bool]:
    return lambda: f"formed: {size} fragment" in "".join(log(bench, job, n) for n in range(3))


def test_a_leaver_is_held_and_only_a_finish_is_completed(bench: Bench) -> None:
    """A fragment with 44 s of lease left leaves in the resize in which a new fragment joins."""
    script = f"{train(bench, LONG)}\necho went on\nsleep 6\n"  # an evaluation
    work = sorted(bench.box.work.glob("train*"))[-1]
    job = submit(bench, script)

    def explain() -> object:
        return [(shown(bench, job, n), log(bench, job, n)) for n in range(3)]

    release(bench, job, 0)
    release(bench, job, 1, minutes=1)
    wait_until(has_formed(bench, job, 2), explain=explain)
    wait_until(lambda: shown(bench, job, 0)["Comment"] == "joined{0}", explain=explain)
    wait_until(lambda: left_s(bench, job, 1) <= 44, explain=explain)
    release(bench, job, 2)
    # With the third; just before it where that takes long to start.
    for cause in ("joined 2", "left 1"):
        wait_until(
            lambda cause=cause: cause in log(bench, job, 0) + log(bench, job, 2), explain=explain
        )
    wait_until(lambda: shown(bench, job, 1)["JobState"] == "PENDING", explain=explain)
    fields = shown(bench, job, 1)
    assert (fields["Priority"], fields["Restarts"]) == ("0", "1"), fields
    assert fields["Comment"] in ("trained{0}", "leaving{0}")
    wait_until(lambda: shown(bench, job, 0)["Comment"] == "trained{0}", explain=explain)
    wait_until(lambda: shown(bench, job, 2)["Comment"] == "joined{0}", explain=explain)
    assert [shown(bench, job, n)["JobState"] for n in (0, 2)] == ["RUNNING"] * 2
    assert "fragment 1 leaves because its lease ends" in log(bench, job, 1)
    assert "Traceback" not in log(bench, job, 1)
    assert "went on" not in "".join(log(bench, job, n) for n in range(3))
    time.sleep(3)  # credentials must be newer than the end of the run before
    release(bench, job, 1)  # it comes back, in its next run
    wait_until(lambda: shown(bench, job, 1)["Comment"] == "joined{1}", explain=explain)
    (work / "enough").touch()
    wait_until(lambda: all("went on" in log(bench, job, n) for n in range(3)), explain=explain)
    bench.box.run(["scancel", "--signal=URG", "--full", str(job)])  # disturbs no other fragment
    wait_until(
        lambda: all(shown(bench, job, n)["JobState"] == "COMPLETED" for n in range(3)),
        explain=explain,
    )
    comments = [shown(bench, job, n)["Comment"] for n in range(3)]
    assert comments == ["finished{0}", "finished{1}", "finished{0}"]


def test_no_fragment_starts_after_the_training_has_finished(bench: Bench) -> None:
    """A tick has released it, and its node was busy until the end."""
    work = fresh(bench)
    job = submit(bench, f"exec torchrun {TINY} {work} {LONG}")
    bench.box.run(["sbatch", "--exclusive", "--nodelist=n2", "--wrap", "exec sleep 600"])
    wait_until(lambda: bench.box.run(["squeue", "-ht", "running"]).stdout != "")
    release(bench, job, 0)
    release(bench, job, 1)

    def explain() -> object:
        return [(shown(bench, job, n), log(bench, job, n)) for n in range(2)]

    wait_until(lambda: shown(bench, job, 0)["Comment"] == "joined{0}", explain=explain)
    assert shown(bench, job, 1)["Priority"] not in ("", "0"), explain()
    (work / "enough").touch()
    wait_until(lambda: shown(bench, job, 0)["JobState"] == "COMPLETED", explain=explain)
    fields = shown(bench, job, 1)
    assert (fields["JobState"], fields["Priority"]) == ("PENDING", "0"), fields
    bench.box.run(["scancel", "--partition=main", "--state=running"])  # now its node is free
    bench.tick_until(job, lambda j: all(f.state in ENDED_STATES for f in j.fragments))
    assert not log(bench, job, 1)
    said = bench.malleable("explain", str(job)).stdout
    assert "finished" in said, said
    assert "running" not in said, said


def test_a_notice_puts_a_fragment_back_and_a_preemption_is_a_single_line(bench: Bench) -> None:
    script = f"exec {train(bench, LONG)}"
    job = submit(bench, script)

    def explain() -> object:
        return [(shown(bench, job, n), log(bench, job, n)) for n in range(3)]

    for number in range(3):
        release(bench, job, number)
    wait_until(has_formed(bench, job, 3), explain=explain)
    bench.box.run(["scancel", "--signal=URG", "--full", f"{job}_1"])
    wait_until(lambda: shown(bench, job, 1)["JobState"] == "PENDING", explain=explain)
    assert shown(bench, job, 1)["Priority"] == "0"
    assert "fragment 1 leaves as it was asked to" in log(bench, job, 1)
    bench.box.run(["scontrol", "requeue", f"{job}_2"])  # as Slurm preempts
    wait_until(lambda: shown(bench, job, 2)["JobState"] != "RUNNING", explain=explain)
    wait_until(
        lambda: "fragment 2 was terminated by SIGTERM" in log(bench, job, 2), explain=explain
    )
    assert "SignalException" not in log(bench, job, 2)  # a worker's own trace is the script's
    bench.box.run(["scancel", str(job)])
    wait_until(lambda: shown(bench, job, 0)["JobState"] == "CANCELLED", explain=explain)
    time.sleep(3)
    assert all(shown(bench, job, n)["JobState"] == "CANCELLED" for n in range(3)), explain()


def test_a_fragment_that_is_asked_to_leave_before_torchrun_begins_leaves(bench: Bench) -> None:
    """The import of torch takes seconds, and a signal has no effect before its end."""
    work = fresh(bench)
    wait = f"until [ -e {work}/go ]; do sleep 0.2; done"
    job = submit(bench, f"{wait}\nexec torchrun {TINY} {work} {LONG}", "1-1")
    bench.tick()
    bench.until(job, has(1))
    (node,) = bench.job(job).nodes
    time.sleep(2)  # the mark has whole seconds
    bench.box.run(["scontrol", "update", f"nodename={node}", "state=drain", "reason=test"])
    try:
        bench.tick()
        (work / "go").touch()
        wait_until(lambda: "leaves" in log(bench, job, 0) or (work / "begins.jsonl").exists())
        assert "fragment 0 leaves as it was asked to" in log(bench, job, 0)
        wait_until(lambda: shown(bench, job, 0)["JobState"] == "PENDING")
    finally:
        bench.box.run(["scontrol", "update", f"nodename={node}", "state=resume"])


@pytest.mark.parametrize("end", ["; date", " | tee log; echo done"])
def test_a_script_that_ends_with_0_after_failed_workers_has_not_finished(
    bench: Bench, end: str
) -> None:
    job = submit(bench, f"{train(bench, LONG, '3')}{end}")
    release(bench, job, 0)
    wait_until(
        lambda: shown(bench, job, 0)["JobState"] == "COMPLETED",
        explain=lambda: (shown(bench, job, 0), log(bench, job, 0)),
    )
    assert "malleable: giving up" in log(bench, job, 0)
    assert shown(bench, job, 0)["Comment"].startswith("joined{0}")


@pytest.mark.parametrize("flag", ["", "--nproc-per-node=gpux "])
def test_a_script_that_goes_on_after_an_agent_that_gave_up_early_has_not_finished(
    bench: Bench, flag: str
) -> None:
    """The directory belongs to another user, or torchrun does not start at all."""
    command = train(bench, LONG).replace("torchrun ", f"torchrun {flag}")
    taken = fresh(bench)
    if os.geteuid() == 0:
        os.chown(taken, 65534, 65534)
    else:
        taken = taken / "file"
        taken.write_text("")
    job = submit(bench, f"export PET_RDZV_ENDPOINT={taken}\n{command}; date")
    release(bench, job, 0)

    def explain() -> object:
        return shown(bench, job, 0), log(bench, job, 0)

    wait_until(lambda: shown(bench, job, 0)["JobState"] == "COMPLETED", explain=explain)
    comment = shown(bench, job, 0)["Comment"]
    assert comment.startswith("started{0}"), explain()
    assert ("remark{" in comment) is (not flag), explain()
