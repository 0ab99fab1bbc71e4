"""Submission at sites as they are: several partitions, limits that count elements, short lanes, and
a job_submit of the site that runs after ours.

Needs MariaDB and slurmdbd, which `make test-sites` installs.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from kept_sandbox import cancel_jobs_of
from promises.bench import Bench, has
from sites.admin import limited, render, sacctmgr, set_site, skip_without_database, submit
from slurm_hooks.model import FragmentState
from slurm_hooks.report.text import find_job
from slurm_hooks.sandbox import Sandbox
from waiting import wait_until

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.database,
    pytest.mark.skipif(os.geteuid() != 0, reason="submits as another user"),
]
NewSite = Callable[..., Sandbox]
SLEEP = "exec sleep 600"
ANOTHER = """PartitionName=long Nodes=ALL PriorityTier=10 PreemptMode=OFF OverSubscribe=EXCLUSIVE
"""


@pytest.fixture(scope="module")
def site(new_site: NewSite) -> Sandbox:
    """Four nodes with a lane, `malleable`, and two ordinary partitions."""
    skip_without_database()
    return new_site(nodes=4, is_accounting=True, extra_conf=ANOTHER)


@pytest.fixture(autouse=True)
def _tidy(bench: Bench) -> Iterator[None]:
    yield
    cancel_jobs_of(bench.box, "nobody")


def elements(box: Sandbox, fields: str) -> list[str]:
    """Rows of squeue for all elements that are not over, each once."""
    said = box.run(["squeue", "--noheader", "--array", "--sort=i", f"--format={fields}"]).stdout
    return list(dict.fromkeys(said.splitlines()))


# -- several partitions


def test_a_job_of_several_partitions_is_taken_to_the_lane(bench: Bench) -> None:
    said = submit(bench.box, "--malleable=1-2", "-p", "main,malleable,long")
    note = "note: --partition=main,malleable,long: a malleable job runs in malleable only"
    assert said.stderr.count(note) == 1
    assert elements(bench.box, "%P %r") == ["malleable JobHeldUser"]
    bench.tick_until(int(said.stdout), has(2))


def test_several_partitions_without_a_lane_are_refused_with_its_name(bench: Bench) -> None:
    said = submit(bench.box, "--malleable=1-2", "-p", "main,long")
    assert said.returncode != 0
    assert "--partition=main,long: malleable jobs run in malleable; drop" in said.stderr


# -- the users of malleable jobs


def test_only_named_users_may_submit_in_a_lane_that_others_use(bench: Bench) -> None:
    before = bench.box.settings.read_text()
    said = {}
    try:
        for name in ("games", "nobody"):
            set_site(bench, users=f'["{name}"]')
            assert render(bench).stderr == ""
            said[name] = submit(bench.box, "--malleable=1-2")
        ordinary = submit(bench.box, "-p", "malleable")
    finally:
        bench.box.settings.write_text(before)
        render(bench)
    assert said["games"].returncode != 0
    refusal = "malleable jobs are for some users only here; submit without --malleable"
    assert refusal in said["games"].stderr
    assert said["nobody"].returncode == 0, said["nobody"].stderr
    assert ordinary.returncode == 0, ordinary.stderr


# -- limits on submitted jobs


@contextmanager
def submits(bench: Bench, kind: str, name: str, limit: str) -> Iterator[None]:
    """Set such a limit, in Slurm and in the policy."""
    with limited(bench.box, kind, name, limit):
        assert render(bench).stderr == ""
        yield
    render(bench)


def wait_for_limit(box: Sandbox, limit: str, *words: str) -> None:
    """Wait until slurmctld shows the limit, because sacctmgr does not wait for that."""
    show = ["scontrol", "-o", "show", "assoc_mgr", *words]
    wait_until(lambda: limit in box.run(show).stdout)


def test_max_is_cut_to_the_submit_limit_of_the_user_s_qos(bench: Bench) -> None:
    with submits(bench, "qos", "normal", "MaxSubmitJobsPerUser=4"):
        said = submit(bench.box, "--malleable=2-64")
        note = "note: MAX 64 is cut to 4: QOS normal lets a user submit 4 jobs, and each fragment"
        assert said.stderr.count(note) == 1
        assert len(elements(bench.box, "%i")) == 4
        bench.tick_until(int(said.stdout), has(4))
        refused = submit(bench.box, "--malleable=5-64")
        assert refused.returncode != 0
        assert "MIN 5 needs 5 fragments, and QOS normal lets a user submit 4" in refused.stderr


def test_slurm_reports_a_limit_that_is_used_up(bench: Bench) -> None:
    """A first job leaves too little for a second, which no policy can know."""
    with submits(bench, "qos", "normal", "MaxSubmitJobsPerUser=4"):
        assert submit(bench.box, "--malleable=1-3").returncode == 0
        wait_for_limit(bench.box, "MaxSubmitJobsPU=4(3)", "flags=qos", "qos=normal")
        said = submit(bench.box, "--malleable=1-4")
        assert said.returncode != 0
        assert "QOSMaxSubmitJobPerUserLimit" in said.stderr


def test_a_partition_s_qos_counts_before_the_user_s(bench: Bench) -> None:
    box = bench.box
    sacctmgr(box, "add", "qos", "lane", "set", "MaxSubmitJobsPerUser=5")
    update = ["scontrol", "update", "PartitionName=malleable"]
    box.run([*update, "QOS=lane"])
    try:
        with submits(bench, "qos", "normal", "MaxSubmitJobsPerUser=3"):
            assert "QOS lane lets a user submit 5 jobs" in submit(box, "--malleable=1-8").stderr
            assert len(elements(box, "%i")) == 5
    finally:
        box.run([*update, "QOS="])


def test_slurm_reports_a_limit_of_the_association(bench: Bench) -> None:
    with submits(bench, "user", "nobody", "MaxSubmitJobs=3"):
        wait_for_limit(bench.box, "MaxSubmitJobs=3(0)", "flags=assoc", "users=nobody")
        said = submit(bench.box, "--malleable=1-4")
        assert said.returncode != 0
        assert "AssocMaxSubmitJobLimit" in said.stderr
        assert submit(bench.box, "--malleable=1-3").returncode == 0


# -- times of the lane


@contextmanager
def lane(box: Sandbox, *words: str) -> Iterator[None]:
    """Set other times of the partition."""
    update = ["scontrol", "update", "PartitionName=malleable"]
    box.run([*update, *words])
    try:
        yield
    finally:
        box.run([*update, "MaxTime=INFINITE", "DefaultTime=UNLIMITED"])


@contextmanager
def enforced(box: Sandbox, how: str) -> Iterator[None]:
    """Set EnforcePartLimits to this value."""
    conf = box.record.layout.conf
    text = conf.read_text()
    conf.write_text(f"{text}EnforcePartLimits={how}\n")
    box.run(["scontrol", "reconfigure"])
    try:
        yield
    finally:
        conf.write_text(text)
        box.run(["scontrol", "reconfigure"])


def test_a_lane_s_default_time_is_not_that_of_fragments(bench: Bench) -> None:
    render(bench)
    with lane(bench.box, "DefaultTime=5"):
        submit(bench.box, "--malleable=1-2")
    assert elements(bench.box, "%l") == ["2:00"]


@pytest.mark.parametrize("how", ["ALL", "ANY", "NO"])
def test_a_lane_shorter_than_the_lease_takes_shorter_leases(bench: Bench, how: str) -> None:
    """Slurm's enforcement of partition limits does not matter, because the job is within them."""
    render(bench)
    with enforced(bench.box, how), lane(bench.box, "MaxTime=1"):
        said = submit(bench.box, "--malleable=1-2", "-p", "main,malleable", "--time=60")
        assert elements(bench.box, "%P %l") == ["malleable 1:00"]
        bench.tick_until(int(said.stdout), has(2))


def test_no_fragment_is_renewed_beyond_the_limit_of_the_lane(bench: Bench) -> None:
    render(bench)
    with lane(bench.box, "MaxTime=1"):
        job = bench.submit(SLEEP, "1-1")
        bench.tick_until(job, has(1))
        renewal = time.monotonic() + 40  # half of the lease is over by then
        while time.monotonic() < renewal:
            bench.tick()
            assert elements(bench.box, "%l") == ["1:00"]
            time.sleep(1)
        assert has(1)(bench.job(job))


# -- a cron job of the site that ends jobs of some hours


@pytest.fixture
def running(bench: Bench) -> int:
    """A job that has all its fragments."""
    job = bench.submit(SLEEP, "1-3")
    bench.tick_until(job, has(3))
    bench.tick()
    return job


def test_a_fragment_that_a_cron_job_requeues_comes_back(bench: Bench, running: int) -> None:
    for index in range(3):
        bench.box.run(["scontrol", "requeue", f"{running}_{index}"])
    bench.until(running, has(3, FragmentState.HELD))
    bench.tick_until(running, has(3))
    assert [f.mark.failures for f in bench.job(running).fragments] == [0, 0, 0]


def test_a_fragment_that_a_cron_job_cancels_is_gone_until_it_is_requeued(
    bench: Bench, running: int
) -> None:
    """Slurm shows the tick a cancel, but not its author, whom sacct names."""
    box = bench.box
    box.run(["scancel", f"{running}_0"])
    bench.until(running, has(1, FragmentState.CANCELLED))
    for _ in range(3):
        bench.tick()
    assert has(2)(bench.job(running))
    explanation = bench.malleable("explain", str(running)).stdout
    assert "1 of its fragments is cancelled" in explanation
    said = box.run(["sacct", "-XnP", "-j", f"{running}_0", "-o", "State"]).stdout
    assert said.strip() == "CANCELLED by 0"
    box.run(["scontrol", "requeue", f"{running}_0"])
    bench.tick_until(running, has(3))


def test_a_cron_that_cancels_all_at_once_ends_the_job(bench: Bench, running: int) -> None:
    bench.box.run(["scancel", *(f"{running}_{index}" for index in range(3))])
    bench.until(running, has(3, FragmentState.CANCELLED))
    for _ in range(2):
        bench.tick()
    assert has(3, FragmentState.CANCELLED)(bench.job(running))
    explanation = bench.malleable("explain", str(running)).stdout
    assert "cancelled by its user or an operator, or past its --deadline" in explanation


# -- a job_submit of the site's own that runs after ours


@contextmanager
def changed_after_ours(box: Sandbox, change: str) -> Iterator[None]:
    """The site's job_submit.lua wraps ours and makes this change to a job that ours has
    accepted.
    """
    path = box.dir / "etc" / "job_submit.lua"
    text = path.read_text()
    wrapped = f"""
local ours = slurm_job_submit
function slurm_job_submit(desc, parts, uid)
  local code = ours(desc, parts, uid)
  if code == slurm.SUCCESS and desc.partition == "malleable" then {change} end
  return code
end
return slurm.SUCCESS
"""
    _write(box, text.rpartition("return slurm.SUCCESS")[0] + wrapped)
    try:
        yield
    finally:
        _write(box, text)


def _write(box: Sandbox, text: str) -> None:
    """slurmctld compares whole seconds."""
    path = box.dir / "etc" / "job_submit.lua"
    stamp = path.stat().st_mtime + 2
    path.write_text(text)
    os.utime(path, (stamp, stamp))


def submitted(box: Sandbox, change: str) -> int:
    with changed_after_ours(box, change):
        return int(submit(box, "--malleable=1-3").stdout)


LOSES_THE_HOLD = "desc.priority = 4294967294"
GOES_ELSEWHERE = 'desc.partition = "main"'


@pytest.mark.parametrize("partition", ["main", "main,malleable"])
def test_a_job_that_is_moved_from_the_lane_never_starts_and_is_named(
    bench: Bench, partition: str
) -> None:
    job = submitted(bench.box, f'desc.partition = "{partition}"')
    line = f"job {job} of nobody waits with 3 elements in partition {partition}, which site."
    for _ in range(2):
        assert line in bench.malleable("reconcile").stdout
    assert line in bench.malleable("status").stderr
    assert elements(bench.box, "%P %T %Q") == [f"{partition} PENDING 0"]


def test_a_job_that_lost_lane_and_hold_is_named_while_it_runs(bench: Bench) -> None:
    """Slurm does not preempt it any more, and no tick can mend that."""
    job = submitted(bench.box, f"{LOSES_THE_HOLD} {GOES_ELSEWHERE}")
    wait_until(lambda: elements(bench.box, "%P %T") == ["main RUNNING"])
    said = bench.malleable("reconcile").stdout
    assert f"job {job} of nobody runs 3 elements in partition main, which site.part" in said
    assert not re.search(rf"\b(renew|hold|grow) {job}_", said)
    assert elements(bench.box, "%l") != ["UNLIMITED"]  # it ends with its lease


def test_a_job_that_lost_its_hold_is_taken_over_in_the_lane(bench: Bench) -> None:
    """It starts at once, but where it is preempted. The next tick holds the running fragments."""
    job = submitted(bench.box, LOSES_THE_HOLD)
    bench.until(job, has(3))
    bench.tick()
    assert elements(bench.box, "%P %T %Q") == ["malleable RUNNING 0"]
    bench.box.run(["scontrol", "requeue", f"{job}_1"])
    bench.until(job, has(1, FragmentState.HELD))


def test_a_job_without_its_mark_remains_held(bench: Bench) -> None:
    """For a tick it looks like an array that its user holds."""
    job = submitted(bench.box, 'desc.admin_comment = "approved"')
    assert f"{job}_0" not in bench.malleable("reconcile").stdout
    assert find_job(bench.observe(), job) is None
    assert elements(bench.box, "%P %r") == ["malleable JobHeldUser"]


@pytest.mark.parametrize(("array", "most"), [("5-7", 3), ("0-5", 3), ("0-1", 2), ("0-2%1", 1)])
def test_a_job_with_a_changed_array_runs_its_remaining_fragments(
    bench: Bench, array: str, most: int
) -> None:
    job = submitted(bench.box, f'desc.array_inx = "{array}"')
    bench.tick_until(job, has(most))
    bench.tick()
    assert has(most)(bench.job(job))
