"""Off, on, observe and the ceiling, read at each tick: on a real Slurm."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import slurm_hooks
from promises.bench import Bench, has, occupied
from slurm_hooks.model import LIVE_STATES, FragmentState, MalleableJob
from slurm_hooks.report.why import note_text
from slurm_hooks.sandbox import Sandbox
from slurm_hooks.slurm.live import Asked
from slurm_hooks.slurm.text import Command
from slurm_hooks.tick.reconcile import tick

pytestmark = pytest.mark.slurm
RUNNING, HELD = FragmentState.RUNNING, FragmentState.HELD
SLEEP = "exec sleep 600"
TRAINING = "trap 'exit 0' TERM; sleep 600 & wait"
TREE = Path(slurm_hooks.__file__).parents[1]
AS_USER = "nobody" if os.geteuid() == 0 else None


@pytest.fixture
def bench(sandbox: Sandbox) -> Iterator[Bench]:
    bench = Bench(sandbox).patient()
    before = sandbox.settings.read_text()
    yield bench
    sandbox.settings.write_text(before)
    bench.malleable("on")
    no_growth(bench).unlink(missing_ok=True)
    bench.cancel_all()


def no_growth(bench: Bench) -> Path:
    """The file by which a site keeps jobs from growing."""
    return Path(bench.settings.tick.state_dir) / "no-growth"


def set_mode(bench: Bench, lines: str = "", level: str = "on") -> None:
    """The [mode] of the settings from now on."""
    before, _, rest = bench.box.settings.read_text().partition("[mode]\n")
    after = rest.partition("\n\n")[2]
    mode = f'[mode]\nlevel = "{level}"\n{lines}\n\n'
    bench.box.settings.write_text(before + mode + after)


def nobody_runs(job: MalleableJob) -> bool:
    return all(f.state in (HELD, FragmentState.PENDING) for f in job.fragments)


def test_off_ends_a_training_and_on_brings_it_back(bench: Bench) -> None:
    """Within the notice and a tick, the fragments leave. They come back only after `on`."""
    job = bench.submit(TRAINING, "1-3")
    bench.tick_until(job, has(3))
    bench.tick()
    said = bench.malleable("off", "--reason", "the network is being repaired")
    assert said.returncode == 0, said.stderr
    assert "notice" in said.stdout
    bench.tick_until(job, nobody_runs, 60)  # a lease ends later
    other = bench.submit(SLEEP, "1-2")  # submissions go on being accepted
    for _ in range(4):
        bench.tick()
        time.sleep(1)
    assert nobody_runs(bench.job(job))
    assert nobody_runs(bench.job(other))
    for command in (("explain", str(other)), ("plan",)):
        assert "the network is being repaired" in bench.malleable(*command).stdout
    assert "the network is being repaired" in bench.malleable("status").stderr
    assert "on again" in bench.malleable("on").stdout
    bench.tick_until(job, lambda j: not nobody_runs(j))
    assert {f.mark.stopped for f in bench.job(job).fragments} == {""}
    assert bench.job(job).failures == 0


def test_off_empties_the_nodes_of_an_inactive_partition(bench: Bench) -> None:
    """Slurm (22.05) makes each change there, and says that it did not."""
    job = bench.submit("exec malleable run -- sleep 600", "1-2,engine=pool")
    bench.tick_until(job, has(2))
    bench.box.run(["scontrol", "update", "partitionname=malleable", "state=inactive"])
    try:
        said = bench.malleable("off")
        assert said.returncode == 0
        assert "refused" not in said.stdout + said.stderr
        bench.until(job, nobody_runs)  # without another tick
    finally:
        bench.box.run(["scontrol", "update", "partitionname=malleable", "state=up"])


class ThrownAtTheSecondLook:
    """A Slurm in which somebody types `off` just before a tick reads its jobs again."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.looks, self.asked = bench, 0, list[Asked]()

    def ask(self, command: Command) -> str:
        self.looks += command.argv[0] == "squeue"
        if self.looks == 2 and command.argv[0] == "squeue":
            said = self.bench.malleable("off", "--reason", "fire")
            assert "another tick is running" in said.stderr
        return self.bench.live.ask(command)


def test_a_tick_in_flight_starts_no_fragment_after_off(bench: Bench) -> None:
    job = bench.submit(SLEEP, "1-3")
    report = tick(ThrownAtTheSecondLook(bench), bench.settings)
    assert any("not done: grow" in note_text(note) for note in report.plan.notes)
    assert set(bench.states(job)) == {HELD}
    bench.malleable("on")
    bench.tick_until(job, has(3))


def test_off_is_typed_twice_while_slurmctld_is_dead(bench: Bench) -> None:
    job = bench.submit(SLEEP, "1-2")
    bench.tick_until(job, has(2))
    bench.tick()
    time.sleep(7)  # slurmctld saves its state some seconds after a change, or has forgotten the job
    bench.box.kill_controller()
    try:
        said = bench.malleable("off", "--reason", "fire")
        assert said.returncode == 0, said.stderr
        assert "no tick ran now" in said.stderr
    finally:
        bench.box.start_controller()
    first = bench.malleable("off").stdout
    since = first.partition("(fire)")[0]
    assert since
    assert bench.malleable("off", "--reason", "flood").stdout.startswith(f"{since}(flood)")
    bench.tick_until(job, nobody_runs)


def test_on_while_fragments_leave_brings_them_back(bench: Bench) -> None:
    """A fragment that was given notice leaves, and returns as after a closed hole."""
    job = bench.submit(SLEEP, "1-2")
    bench.tick_until(job, has(2))
    bench.tick()
    bench.malleable("off")
    bench.malleable("on")
    assert all(f.is_leaving for f in bench.job(job).fragments)
    bench.tick_until(job, lambda j: has(2)(j) and all(f.restarts == 1 for f in j.fragments))
    assert bench.job(job).failures == 0


def test_off_reaches_all_users_jobs_whatever_is_set_for_squeue(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many users have SQUEUE_USERS or SQUEUE_PARTITION in their shell to save typing."""
    job = bench.submit(SLEEP, "1-2")
    bench.tick_until(job, has(2))
    monkeypatch.setenv("SQUEUE_USERS", "root")
    monkeypatch.setenv("SQUEUE_PARTITION", "main")
    said = bench.malleable("off").stdout
    for fragment in (0, 1):  # one that ran at an earlier tick has its hold already
        assert re.search(rf"^notice(, hold)? {job}_{fragment}: switched off$", said, re.M), said
    assert all(f.is_leaving and not f.priority for f in bench.job(job).fragments)


def test_a_file_made_by_hand_is_a_switch(bench: Bench) -> None:
    place = bench.settings.tick.state_dir
    os.makedirs(place, exist_ok=True)
    job = bench.submit(SLEEP, "1-2")
    with open(os.path.join(place, "off"), "w"):
        pass
    for _ in range(3):
        bench.tick()
    assert nobody_runs(bench.job(job))
    os.unlink(os.path.join(place, "off"))
    bench.tick_until(job, has(2))


def test_with_no_growth_running_fragments_go_on_and_no_fragment_starts(bench: Bench) -> None:
    """Leases are renewed during this time. Nodes that ordinary jobs take come back."""
    bench.share_at_once()  # the second job would get a node of the first at once
    job = bench.submit(SLEEP, "1-2")
    bench.tick_until(job, has(2))
    bench.tick()
    ends = {f.id: f.end for f in bench.job(job).active}
    file = no_growth(bench)
    file.parent.mkdir(exist_ok=True)
    file.write_text("the room is hot\n")
    waits = bench.submit(SLEEP, "1-4")
    bench.box.run(["scontrol", "update", f"jobid={job}_0", "timelimit=1"])
    for _ in range(4):
        bench.tick()
        time.sleep(1)
    assert nobody_runs(bench.job(waits))
    kept = bench.job(job)
    assert has(2)(kept)
    assert all(f.restarts == 0 and not f.is_leaving for f in kept.fragments)
    assert all(f.end is not None and f.end >= ends[f.id] for f in kept.active)
    for command in (("explain", str(waits)), ("plan",)):
        assert "(the room is hot)" in bench.malleable(*command).stdout
    assert "(the room is hot)" in bench.malleable("status").stderr
    taken = min(occupied(kept))
    asks = ["--parsable", "--exclusive", f"--nodelist={taken}"]
    other = bench.box.run(["sbatch", *asks, "--wrap", SLEEP]).stdout.strip()
    bench.tick_until(job, lambda j: has(1)(j) and taken not in occupied(j))
    bench.box.run(["scancel", other])
    for _ in range(3):
        bench.tick()
        time.sleep(1)
    assert has(1)(bench.job(job))
    file.unlink()
    bench.tick_until(job, has(2))
    bench.tick_until(waits, lambda j: not nobody_runs(j))


def as_user(bench: Bench, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a user without rights."""
    python = ("env", f"PYTHONPATH={TREE}", sys.executable)
    return bench.box.run([*python, "-m", "slurm_hooks.cli", *words], user=AS_USER, check=False)


def test_users_see_why_no_fragment_starts(bench: Bench) -> None:
    """Users can read the switch, but cannot change it."""
    bench.malleable("off", "--reason", "maintenance")
    job = bench.submit(SLEEP, "1-2")
    answer = as_user(bench, "explain", str(job))
    assert "maintenance" in answer.stdout, answer.stderr
    if AS_USER:
        refused = as_user(bench, "on")
        assert refused.returncode == 77
        assert "still switched off" in refused.stderr


def shown(bench: Bench, *jobs: int) -> str:
    """The state of these jobs, nodes and partitions in slurmctld, without run times.

    Of other jobs only the existence counts: slurmctld forgets ended jobs of other tests.
    """
    words = (*(["job", "-d", str(job)] for job in jobs), ["nodes"], ["partitions"])
    there = bench.box.run(["squeue", "-h", "-t", "PENDING,RUNNING", "-o", "%i %T"]).stdout
    text = there + "".join(bench.box.run(["scontrol", "show", *each]).stdout for each in words)
    return re.sub(r"(RunTime|CPULoad|FreeMem|LastBusyTime)=\S+", "", text)


def test_observing_changes_no_state_in_slurm(bench: Bench) -> None:
    """A job waits for nodes, and a fragment on a drained node would have to leave."""
    bench.share_at_once()  # the second job lacks nodes at once
    running = bench.submit(SLEEP, "1-2")
    bench.tick_until(running, has(2))
    bench.tick()
    waiting = bench.submit(SLEEP, "1-3")
    node = min(occupied(bench.job(running)))
    bench.box.run(["scontrol", "update", f"nodename={node}", "state=drain", "reason=test"])
    try:
        set_mode(bench, level="observe")
        before = shown(bench, running, waiting)
        for command in (["reconcile"], ["plan"], ["status"], ["explain", str(waiting)]) * 2:
            said = bench.malleable(*command)
            assert said.returncode == 0, said.stderr
            if command != ["status"]:
                assert "grow" in said.stdout
        assert "would notice" in bench.malleable("reconcile").stdout
        assert shown(bench, running, waiting) == before
    finally:
        bench.box.run(["scontrol", "update", f"nodename={node}", "state=resume"])
    set_mode(bench)
    bench.tick_until(waiting, has(2))


def test_a_ceiling_is_kept_and_lowered(bench: Bench) -> None:
    bench.share_at_once()  # two jobs reach the ceiling at once
    set_mode(bench, "max_nodes = 3")
    jobs = [bench.submit(SLEEP, "1-3"), bench.submit(SLEEP, "1-3")]

    def total() -> int:
        """Count the fragments on nodes, and on their way to or from a node."""
        fragments = (f for job in bench.observe().jobs for f in job.fragments)
        return sum(len(f.nodes) for f in fragments if f.state in LIVE_STATES)

    for _ in range(8):
        bench.tick()
        assert total() <= 3
        time.sleep(0.5)
    assert total() == 3
    set_mode(bench, "max_share = 0.25")
    bench.tick_until(jobs[0], lambda _: total() == 1)
