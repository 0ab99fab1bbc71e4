"""A site with slurmdbd: preemption by QOS, fair share, submit limits, sacct, and the tick's user.

Needs MariaDB and slurmdbd, which `make test-sites` installs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from promises.bench import Bench, has
from sites.admin import (
    limited,
    ordinary,
    render,
    sacctmgr,
    set_site,
    skip_without_database,
    submit,
    wait_for_state,
)
from slurm_hooks.errors import NotAllowed
from slurm_hooks.model import FragmentState
from slurm_hooks.sandbox import Sandbox, SandboxSpec
from slurm_hooks.sandbox.installation import Installation
from slurm_hooks.sandbox.processes import find_processes, is_alive
from slurm_hooks.sandbox.spec import Preemption
from slurm_hooks.tick.observe import DENIED_S
from waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.database]
NewSite = Callable[..., Sandbox]
ROOT = Path(__file__).resolve().parents[2]
HELD = FragmentState.HELD
SLEEP = "exec sleep 600"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="jobs and ticks of other users")


@pytest.fixture(scope="module")
def site(new_site: NewSite) -> Sandbox:
    """Three nodes where QOS decide the preemption."""
    skip_without_database()
    return new_site(nodes=3, is_accounting=True, preemption=Preemption.QOS)


def column(box: Sandbox, job: int, name: str, *options: str) -> list[str]:
    """A column of `sacct` for a job's fragments."""
    argv = ["sacct", "-nPX", "-j", str(job), "-o", name, *options]
    return box.run(argv).stdout.split("\n")[:-1]


def test_the_sandbox_s_database_is_removed_and_no_other_database_is_touched(
    installation: Installation,
) -> None:
    # A MariaDB that starts removes every temporary table in its directory for them.
    others = Path(tempfile.gettempdir(), f"#sql-temptable-{os.getpid():x}-1-1.MAI")
    others.touch()
    with Sandbox.up(SandboxSpec(nodes=1, slurm=installation, is_accounting=True)) as box:
        assert {"mariadbd", "slurmdbd", "slurmctld"} <= set(box.running())
        family = find_processes(box.dir, box.record.layout.conf)
    assert len(family) >= 5
    assert not [process for process in family if is_alive(process)]
    assert not box.dir.exists()
    others.unlink()


def test_the_gpus_of_a_job_are_accounted_for(bare_sandbox: Callable[..., Sandbox]) -> None:
    skip_without_database()
    box = bare_sandbox(nodes=1, cpus=4, gpus=4, is_accounting=True)
    job = int(ordinary(box, "--gres=gpu:2", seconds=1))
    wait_until(lambda: any("gres/gpu=2" in said for said in column(box, job, "AllocTRES")))


# -- preemption by QOS


def test_a_fragment_yields_to_an_ordinary_job_at_once_and_comes_back(bench: Bench) -> None:
    job = bench.submit(SLEEP, "1-3")
    bench.tick_until(job, has(3))
    bench.tick()  # holds running fragments, so that a preempted fragment waits for a tick
    other = ordinary(bench.box, "-N1")
    wait_for_state(bench.box, other, ["RUNNING", "COMPLETED"])
    bench.until(job, lambda j: has(2)(j) and has(1, HELD)(j))
    bench.tick_until(job, has(3))


def test_doctor_accepts_the_site_and_refuses_it_without_the_qos(bench: Bench) -> None:
    checked = bench.malleable("render", "lua", "--check")
    assert (checked.returncode, checked.stderr) == (0, "")
    set_site(bench, qos='""')
    try:
        refused = bench.malleable("render", "lua", "--check")
        assert refused.returncode == 1
        assert "site.qos is empty" in refused.stderr
        render(bench)
        said = submit(bench.box, "--malleable=1-2")
        assert said.returncode != 0
        assert "--partition=malleable: malleable jobs cannot run there" in said.stderr
    finally:
        set_site(bench, qos='"scavenge"')
        assert render(bench).stderr == ""


def test_qos_that_cannot_preempt_fragments_are_found_with_the_line_to_write(bench: Bench) -> None:
    sacctmgr(bench.box, "add", "qos", "high,long")
    try:
        answer = bench.malleable("render", "lua", "--check")
        assert answer.returncode == 1
        line = answer.stderr.partition("Run sacctmgr ")[2].strip()
        sacctmgr(bench.box, *line.split())
        assert bench.malleable("render", "lua", "--check").returncode == 0
    finally:
        sacctmgr(bench.box, "delete", "qos", "high,long")


def test_another_qos_is_refused_in_a_line(bench: Bench) -> None:
    said = submit(bench.box, "--malleable=1-2", "--qos=normal")
    assert said.returncode != 0
    assert "--qos=normal: malleable jobs have QOS scavenge here" in said.stderr


def test_a_core_has_the_qos_and_account_of_its_user_and_no_other(bench: Bench) -> None:
    """Slurm itself judges the request, since all elements wait as ordinary jobs would."""
    core = ("--malleable=1-3,core=1", "-p", "main", "--time=2:00:00")
    job = submit(bench.box, *core, "-q", "normal").stdout.strip()
    plain = ordinary(bench.box, "--hold", "--time=2:00:00", "-q", "normal", user="nobody")
    rows = "%P|%q|%a|%l|%T|%Q|%r"
    as_ordinary = bench.box.run(["squeue", "-h", "-j", plain, "-o", rows]).stdout.strip()
    seen = bench.box.run(["squeue", "-h", "-r", "-j", job, "-o", rows]).stdout.split()
    assert seen == [as_ordinary] * 3
    assert as_ordinary.startswith("main|normal|lab|2:00:00|PENDING|0|JobHeldUser")
    yielding = submit(bench.box, *core, "-q", "scavenge")
    assert yielding.returncode != 0
    assert (
        "--qos=scavenge: is for malleable jobs, whose nodes other jobs may take" in yielding.stderr
    )
    sacctmgr(bench.box, "add", "qos", "high")
    try:
        denied = submit(bench.box, *core, "-q", "high")
        assert (denied.returncode, "Invalid qos" in denied.stderr) == (1, True)
    finally:
        sacctmgr(bench.box, "delete", "qos", "high")


# -- what it costs


@needs_root
def test_fragments_cost_no_fair_share(bench: Bench) -> None:
    """UsageFactor=0: only an ordinary job of the same length uses up share."""
    job = bench.submit(SLEEP, "1-2")
    bench.tick_until(job, has(2))
    other = submit(bench.box, "-p", "malleable", "-N1", "-A", "lab", user=None).stdout.strip()
    wait_for_state(bench.box, other, ["RUNNING"])

    def usage() -> dict[str, str]:
        rows = bench.box.run(["sshare", "-aPhn", "-A", "lab", "-o", "User,RawUsage"]).stdout
        return dict(line.strip().split("|") for line in rows.splitlines())

    wait_until(lambda: int(usage()["root"]) > 0, explain=usage, every_s=2)
    assert usage()["nobody"] == "0"
    bench.box.run(["scancel", other])


# -- submit limits


@needs_root
def test_a_submit_limit_is_a_clear_line(bench: Bench) -> None:
    box = bench.box
    sacctmgr(box, "modify", "qos", "scavenge", "set", "MaxSubmitJobsPerUser=4")
    try:
        wait_until(lambda: "QOSMax" in submit(box, "--malleable=1-9").stderr, every_s=1)
        assert render(bench).stderr == ""
        assert bench.malleable("doctor", "policy").returncode == 0  # it equals the rendered line
        time.sleep(1)
        said = submit(box, "--malleable=5-9").stderr
        assert "MIN 5 needs 5 fragments, and QOS scavenge lets a user submit 4 jobs" in said
        assert "write --malleable=4-4" in said
        assert submit(box, "--malleable=1-3").returncode == 0
        second = submit(box, "--malleable=1-3")  # three and three, where four are allowed
        assert second.returncode != 0
        assert "QOSMaxSubmitJobPerUserLimit" in second.stderr
    finally:
        sacctmgr(box, "modify", "qos", "scavenge", "set", "MaxSubmitJobsPerUser=-1")
        assert render(bench).stderr == ""


@needs_root
def test_a_limit_on_running_jobs_leaves_the_nodes_to_others(bench: Bench) -> None:
    """A fragment that Slurm does not start is held again. Its node is given to a user below
    the limit.
    """
    with limited(bench.box, "user", "nobody", "MaxJobs=1"):
        job = bench.submit(SLEEP, "1-3")
        bench.tick_until(job, has(1))
        other = bench.submit(SLEEP, "1-2", user="root")
        bench.tick_until(other, has(2))
        assert has(1)(bench.job(job))


@needs_root
def test_two_jobs_of_a_user_share_a_limit_of_the_lane_s_qos(bench: Bench) -> None:
    """Nothing is released that Slurm refuses, and once each job has its node, nothing moves."""
    bench.share_at_once()
    kept = Path(bench.settings.tick.state_dir) / "sacctmgr-qos"
    kept.unlink(missing_ok=True)
    with limited(bench.box, "qos", "scavenge", "MaxTRESPerUser=node=2"):
        first = bench.submit(SLEEP, "1-3")
        bench.tick_until(first, has(2))
        second = bench.submit(SLEEP, "1-3")
        bench.tick_until(second, has(1))
        squeue = ["squeue", "-h", "-r", "-t", "RUNNING", "-o", "%i %S", "-p", "malleable"]
        before = bench.box.run(squeue).stdout
        for _ in range(5):
            bench.tick()
            rows = bench.box.run(["squeue", "-h", "-r", "-o", "%r", "-p", "malleable"]).stdout
            assert "QOS" not in rows
        assert bench.box.run(squeue).stdout == before
        assert len(before.splitlines()) == 2
        explanation = bench.malleable("explain", str(second)).stdout
        assert "share MaxTRESPU=node=2 of QOS scavenge" in explanation
    kept.unlink(missing_ok=True)
    bench.tick_until(second, lambda job: has(1)(job) or has(2)(job))


# -- sacct


def test_sacct_shows_fragments_requeues_and_the_mark(bench: Bench) -> None:
    job = bench.submit(SLEEP, "1-2")
    bench.tick_until(job, has(2))
    other = ordinary(bench.box, "-N3")
    wait_for_state(bench.box, other, ["RUNNING", "COMPLETED"])
    wait_for_state(bench.box, other, ["COMPLETED"])
    bench.tick_until(job, has(2))
    bench.box.run(["scancel", str(job)])
    wait_until(
        lambda: all(s.startswith("CANCELLED") for s in column(bench.box, job, "State")),
        explain=lambda: bench.box.run(["sacct", "-j", str(job), "-D"]).stdout,
        every_s=1,
    )
    # sacct sorts by numbers of jobs: the last element to start keeps the number of the array
    assert sorted(column(bench.box, job, "JobID")) == [f"{job}_0", f"{job}_1"]
    every = column(bench.box, job, "State", "--duplicates")
    assert len(every) == 4, every
    assert sum(state == "PREEMPTED" for state in every) == 2, every
    print(bench.box.run(["sacct", "-j", str(job), "-D"]).stdout)
    assert all("malleable{min=1" in text for text in column(bench.box, job, "AdminComment"))


# -- a replay


@needs_root
def test_the_replay_reads_what_the_shown_sacct_writes(bench: Bench, tmp_path: Path) -> None:
    """The lines of the decision page, with the days of this test."""
    page = (ROOT / "docs" / "admins" / "should-i.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^    sacct (?:.*\\\n)*.* > week.txt$", page, re.M)
    days = {"2024-05-01": "now-1days", "2024-05-08": "now+1days"}
    line = re.sub("|".join(days), lambda match: days[match[0]], shown)
    argv = ["sbatch", "--wait", "-p", "main", "-N3", "--time=1", "--output=/dev/null"]
    bench.box.run([*argv, "--wrap=sleep 2"])
    week = tmp_path / "week.txt"
    bench.box.run(["sh", "-c", line.replace("week.txt", str(week))])
    assert "JobIDRaw|Submit|Start|End|NodeList|AllocTRES" in week.read_text()
    done = bench.malleable("replay", "--sacct", str(week), "--tick", "10")
    assert done.returncode == 0, done.stderr
    assert "node-hours a week were idle" in done.stdout


# -- the tick's user


@needs_root
def test_a_tick_needs_an_administrator_and_not_root(bench: Bench) -> None:
    box = bench.box
    own = box.dir / "daemon"
    own.mkdir(mode=0o755)
    shutil.chown(own, "daemon", "daemon")
    own.chmod(0o700)
    text = box.settings.read_text().replace(f"{box.dir}/run/tick.lock", str(own / "tick.lock"))
    (box.dir / "etc" / "daemon.toml").write_text(text)
    sacctmgr(box, "add", "user", "daemon", "Account=lab", "AdminLevel=Operator")
    set_site(bench, operators='["root", "daemon"]')
    render(bench)

    def tick() -> subprocess.CompletedProcess[str]:
        settings = str(box.dir / "etc" / "daemon.toml")
        argv = [sys.executable, "-m", "slurm_hooks.cli", "reconcile", "--settings", settings]
        env = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        return box.run(argv, user="daemon", env=env, check=False)

    job = bench.submit(SLEEP, "1-2")
    said = tick()
    assert said.returncode == NotAllowed.exit_code == 77, said.stderr
    assert "An Operator cannot write AdminComment" in said.stderr
    sacctmgr(box, "modify", "user", "daemon", "set", "AdminLevel=Administrator")
    wait_until(lambda: tick().returncode == 0 and has(2)(bench.job(job)), every_s=1)
    node = min(bench.job(job).nodes)
    box.run(["scontrol", "update", f"nodename={node}", "state=drain", "reason=test"])
    try:  # notice, put back, and the fragment starts on another node
        wait_until(
            lambda: (
                tick().returncode == 0
                and node not in bench.job(job).nodes
                and has(2)(bench.job(job))
            ),
            every_s=1,
        )
    finally:
        box.run(["scontrol", "update", f"nodename={node}", "state=resume"])


# -- limits of a core, after the tests of costs


@needs_root
def test_a_core_gives_no_user_the_qos_of_malleable_jobs(bench: Bench) -> None:
    """A tick may give any QOS, so it first asks which users may have it."""
    kept = Path(bench.settings.tick.state_dir) / "sacctmgr-assoc"
    kept.unlink(missing_ok=True)  # of other tests, an hour ago
    sacctmgr(bench.box, "modify", "user", "nobody", "set", "qos=normal")
    try:
        core = ("--malleable=1-3,core=1,engine=pool", "-p", "main", "-q", "normal")
        job = submit(bench.box, *core, "--time=10").stdout.strip()
        for _ in range(3):
            bench.tick()
        seen = bench.box.run(["squeue", "-h", "-r", "-j", job, "-o", "%P|%q"]).stdout.split()
        assert seen == ["main|normal"] * 3
        explanation = bench.malleable("explain", job).stdout
        assert "sacctmgr modify user nobody set qos+=scavenge" in explanation, explanation
    finally:
        sacctmgr(bench.box, "modify", "user", "nobody", "set", "qos=normal,scavenge")
    os.utime(kept, (0, time.time() - DENIED_S - 1))
    bench.tick()
    seen = bench.box.run(["squeue", "-h", "-r", "-j", job, "-o", "%P|%q"]).stdout.split()
    assert sorted(seen) == ["main|normal", "malleable|scavenge", "malleable|scavenge"]
    bench.box.run(["scancel", job])
