"""On a real Slurm: users cancel, administrators hold, nodes break, and jobs ask for much."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from promises.bench import Bench, has, occupied
from slurm_hooks.model import FragmentState, MalleableJob, Verb
from slurm_hooks.sandbox import Sandbox
from slurm_hooks.tick.reconcile import tick
from waiting import wait_until

pytestmark = pytest.mark.slurm
RUNNING, HELD = FragmentState.RUNNING, FragmentState.HELD
CANCELLED, FAILED = FragmentState.CANCELLED, FragmentState.FAILED
SLEEP = "exec sleep 600"
NewSandbox = Callable[..., Sandbox]
USER = "nobody" if os.geteuid() == 0 else None
SOON = "AuthInfo=socket={socket},cred_expire=10\n"  # a requeued job starts again after so long


def running(count: int, bench: Bench, request: str, script: str = SLEEP) -> int:
    """A job that runs with so many fragments, all of them held."""
    job = bench.submit(script, request)
    bench.tick_until(job, has(count))
    bench.tick()
    return job


def ticks(bench: Bench, count: int = 4) -> None:
    for _ in range(count):
        bench.tick()
        time.sleep(1)


def text_of(path: Path) -> str:
    """The text of a file, or "" while the file does not exist."""
    return path.read_text() if path.exists() else ""


# -- the user who cancels


def test_a_cancel_is_final_although_a_fragment_had_just_ended(bench: Bench) -> None:
    """scancel passes over ended elements, and the next tick must not put them back."""
    script = "echo $$ >pid.$SLURM_ARRAY_JOB_ID.$SLURM_ARRAY_TASK_ID; exec sleep 600"
    job = running(2, bench, "1-2", script)
    # Slurm calls a fragment running a moment before its script has begun.
    pid = wait_until(lambda: text_of(bench.box.work / f"pid.{job}.0"))
    os.kill(int(pid), 9)
    bench.until(job, has(1, FAILED))
    bench.box.run(["scancel", str(job)], user=USER)
    bench.until(job, has(1, CANCELLED))
    ticks(bench)
    assert set(bench.states(job)) == {FAILED, CANCELLED}


def test_a_cancel_of_elements_that_never_ran_leaves_no_trace_and_is_final(bench: Bench) -> None:
    """Slurm forgets such elements at once, so only the ended element is still visible."""
    script = "[ $SLURM_ARRAY_TASK_ID = 0 ] && exit 1; exec sleep 600"
    job = bench.submit(script, "1-6")
    for name in ("n2", "n3", "n4"):
        bench.box.run(["scontrol", "update", f"nodename={name}", "state=drain", "reason=test"])
    try:
        bench.tick()
        bench.until(job, has(1, FAILED))
        bench.box.run(["scancel", str(job)], user=USER)
        ticks(bench)
        assert not {RUNNING, HELD, FragmentState.PENDING} & set(bench.states(job))
    finally:
        for name in ("n2", "n3", "n4"):
            bench.box.run(["scontrol", "update", f"nodename={name}", "state=resume"])


def test_a_cancel_in_the_middle_of_a_tick_is_final(bench: Bench) -> None:
    """Otherwise a requeue would make Slurm revive the cancelled element."""
    job = running(2, bench, "1-2")
    for name in sorted(bench.job(job).nodes):
        bench.box.run(["scontrol", "update", f"nodename={name}", "state=drain", "reason=test"])
    try:
        bench.tick()  # notice
        time.sleep(bench.notice_s + 1)
        asked: list[str] = []

        def cancel(command: str) -> None:
            if not asked:
                bench.box.run(["scancel", str(job)], user=USER)
            asked.append(command)

        port = bench.live
        first = port.ask
        port.ask = lambda command: (cancel("") if port.asked else None) or first(command)  # type: ignore[method-assign]
        tick(port, bench.settings)
        assert asked
        ticks(bench)
        assert set(bench.states(job)) == {CANCELLED}
    finally:
        for node in bench.observe().nodes:
            if "DRAIN" in node.raw_state:
                bench.box.run(["scontrol", "update", f"nodename={node.name}", "state=resume"])


# -- no tick runs


def test_without_a_tick_no_fragment_restarts(fresh_sandbox: NewSandbox) -> None:
    """Renewed and then preempted, a fragment would come back for the sum of its renewals."""
    box = fresh_sandbox(nodes=2, extra_conf="")
    socket = box.dir / "run" / "munge.sock"
    conf = box.dir / "etc" / "slurm.conf"
    conf.write_text(conf.read_text() + SOON.format(socket=socket))
    box.run(["scontrol", "reconfigure"])
    bench = Bench(box)
    job = running(2, bench, "1-2")
    time.sleep(2)
    box.run(["sbatch", "-p", "main", "-N1", "--wrap", "sleep 2", "-o", "/dev/null"])
    bench.until(job, lambda j: has(1)(j) and has(1, HELD)(j))
    time.sleep(16)
    assert has(1)(bench.job(job))
    assert has(1, HELD)(bench.job(job))
    bench.tick_until(job, has(2))


def test_a_lease_longer_than_it_should_be_is_cut_to_the_second(bench: Bench) -> None:
    job = running(1, bench, "1-1")
    bench.box.run(["scontrol", "update", f"jobid={job}_0", "TimeLimit=600"])
    bench.tick()
    seen = bench.observe()
    (fragment,) = bench.job(job).fragments
    assert fragment.end is not None
    left = fragment.end - seen.now
    assert timedelta(seconds=110) <= left <= timedelta(seconds=bench.settings.lease.length_s)


# -- requests of a job


@pytest.mark.parametrize("option", ["--constraint=large", "--mem=3000", "--mincpus=4"])
def test_a_job_gets_the_node_that_fits_it(fresh_sandbox: NewSandbox, option: str) -> None:
    bench = Bench(fresh_sandbox(nodes=3, large_nodes=1))
    job = bench.submit(SLEEP, "1-2", options=[option])
    tried = {node for a in bench.tick().plan.actions if a.verb is Verb.GROW for node in a.nodes}
    assert tried == {"n3"}
    bench.tick_until(job, has(1))
    assert occupied(bench.job(job)) == {"n3"}


def test_a_request_that_only_slurm_can_judge_is_tried_on_other_nodes(
    fresh_sandbox: NewSandbox,
) -> None:
    """A constraint with a count is not evaluated: Slurm answers BadConstraints for each node."""
    bench = Bench(fresh_sandbox(nodes=3, large_nodes=1))
    job = bench.submit(SLEEP, "1-1", options=["--constraint=[large*1]"])
    bench.tick_until(job, has(1))
    assert occupied(bench.job(job)) == {"n3"}


# -- nodes that break


def test_a_broken_node_stops_no_job(bench: Bench) -> None:
    job = bench.submit('[ "$SLURMD_NODENAME" = n1 ] && exit 1; exec sleep 600', "1-1")
    bench.tick_until(job, has(1))
    assert "n1" not in occupied(bench.job(job))


def test_a_script_that_fails_late_is_stopped_as_well(bench: Bench) -> None:
    job = bench.submit("sleep 5; exit 3", "1-2")
    bench.tick_until(job, lambda j: any(f.mark.stopped for f in j.fragments))
    starts = sum(f.restarts + 1 for f in bench.job(job).fragments)
    assert starts <= 3 * 2 + 2


# -- jobs that cannot start


def test_a_throttled_job_blocks_no_other_job(bench: Bench) -> None:
    """Slurm (22.05) sets ArrayTaskThrottle although job_submit refuses it."""
    bench.share_at_once()  # the second job has all three nodes within seconds
    first = bench.submit(SLEEP, "1-4")
    bench.box.run(
        ["scontrol", "update", f"jobid={first}", "ArrayTaskThrottle=1"], user=USER, check=False
    )
    second = bench.submit(SLEEP, "1-3")
    bench.tick_until(second, has(3))
    assert has(1)(bench.job(first)) or has(4, HELD)(bench.job(first))


def test_a_job_with_a_dependency_blocks_no_other_job(bench: Bench) -> None:
    other = bench.box.run(
        ["sbatch", "--parsable", "-p", "main", "--wrap", "sleep 8", "-o", "/dev/null"]
    ).stdout.strip()
    job = bench.submit(SLEEP, "1-4", options=[f"--dependency=afterany:{other}"])
    report = bench.tick()
    assert not [a for a in report.plan.actions if a.verb is Verb.GROW]
    assert "waits for its dependency" in bench.malleable("explain", str(job)).stdout
    # Slurm checks the dependencies of held jobs once a minute. After that, fragments that do not
    # start within 15 s make their job rest: for 30 s, then for a minute.
    bench.tick_until(job, has(4), 300)


# -- the administrator holds


def paused(job: MalleableJob) -> bool:
    return all(f.is_on_hold for f in job.fragments)


@pytest.mark.parametrize("command", ["scontrol", "malleable"])
def test_an_operator_s_hold_lasts_until_its_release(bench: Bench, command: str) -> None:
    job = running(1, bench, "1-1")
    bench.box.run(["scontrol", "requeue", f"{job}_0"])  # a fragment that has run waits as well
    bench.until(job, has(1, HELD))
    if command == "scontrol":
        bench.box.run(["scontrol", "hold", str(job)])
    else:
        assert "1 fragment held" in bench.malleable("hold", str(job)).stdout
    ticks(bench)
    assert paused(bench.job(job))
    assert f"malleable release {job}" in bench.malleable("explain", str(job)).stdout
    assert "1 fragment released" in bench.malleable("release", str(job)).stdout
    bench.tick_until(job, has(1))


def test_an_operator_s_requeuehold_lasts_until_its_release(bench: Bench) -> None:
    """Slurm would show the same after a requeuehold of the user, so a user's hold lasts too."""
    job = running(2, bench, "1-2")
    bench.box.run(["scontrol", "requeuehold", f"{job}_0"])
    bench.until(job, lambda j: has(1)(j) and has(1, HELD)(j))
    time.sleep(4)  # until it could start again
    ticks(bench)
    assert has(1)(bench.job(job))
    assert f"malleable release {job}" in bench.malleable("explain", str(job)).stdout
    (before,) = (f for f in bench.job(job).fragments if f.id.index == 0)
    assert "1 fragment released" in bench.malleable("release", str(job)).stdout
    (back,) = (f for f in bench.job(job).fragments if f.id.index == 0)
    assert (back.state, back.eligible) == (HELD, before.eligible)  # it waits since it waited
    assert not back.is_on_hold
    bench.tick_until(job, has(2))


def test_a_hold_of_a_running_fragment_lasts_over_a_preemption(bench: Bench) -> None:
    job = running(4, bench, "1-4")
    bench.box.run(["scontrol", "hold", str(job)])
    bench.box.run(["sbatch", "-p", "main", "-N1", "--wrap", "sleep 1", "-o", "/dev/null"])
    bench.until(job, lambda j: has(3)(j) and has(1, HELD)(j))
    time.sleep(3)
    ticks(bench)
    assert has(3)(bench.job(job))
    assert has(1, HELD)(bench.job(job))


def test_fragments_in_another_partition_are_explained_and_can_come_back(bench: Bench) -> None:
    """Users would else read that their job has ended."""
    job = bench.submit(SLEEP, "2-2")
    bench.box.run(["scontrol", "update", f"jobid={job}_1", "Partition=main"])
    text = bench.malleable("explain", str(job)).stdout
    assert f"job {job} of nobody waits with 1 element in partition main" in text
    bench.box.run(["scontrol", "update", f"jobid={job}", "Partition=main"])
    for words in (("explain", str(job)), ("release", str(job))):
        said = bench.malleable(*words)
        assert said.returncode == 64
        assert f"job {job} of nobody waits with 2 elements in partition main" in said.stderr
        assert "has ended" not in said.stderr
    back = f"scontrol update jobid={job} Partition=malleable"
    assert f"`{back}`" in said.stderr
    bench.box.run(back.split())
    bench.tick_until(job, has(2))


def test_a_suspended_fragment_keeps_its_node(bench: Bench) -> None:
    job = running(1, bench, "1-1")
    (name,) = bench.job(job).nodes
    bench.box.run(["scontrol", "suspend", f"{job}_0"])
    other = bench.submit(SLEEP, "1-4")
    bench.tick_until(other, has(3))
    ticks(bench, 2)
    assert name not in occupied(bench.job(other))
    explained = bench.malleable("explain", str(job)).stdout
    assert ": suspended, 0 nodes" in explained
    assert f"run `scontrol resume {job}_0`" in explained
    bench.box.run(["scontrol", "resume", f"{job}_0"])
