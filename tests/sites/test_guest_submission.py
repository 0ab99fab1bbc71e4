"""Submission at sites as they are: several partitions, limits that count elements, short lanes, and
a job_submit of the site that runs after ours.

Needs MariaDB and slurmdbd, which `make test-sites` installs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from promises.bench import Bench, has
from sites.admin import skip_without_database, submit
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
    bench.box.run(["scancel", "--user=nobody"], check=False)


def elements(box: Sandbox, fields: str) -> list[str]:
    """What squeue says of all elements that are not over, each once."""
    said = box.run(["squeue", "--noheader", "--array", "--sort=i", f"--format={fields}"]).stdout
    return list(dict.fromkeys(said.splitlines()))


# -- several partitions


def test_a_job_of_several_partitions_is_taken_to_the_lane(bench: Bench) -> None:
    said = submit(bench.box, "--malleable=1-2", "-p", "main,malleable,long")
    told = "note: --partition=main,malleable,long: a malleable job runs in malleable only"
    assert said.stderr.count(told) == 1
    assert elements(bench.box, "%P %r") == ["malleable JobHeldUser"]
    bench.tick_until(int(said.stdout), has(2))


def test_several_partitions_without_a_lane_are_refused_with_its_name(bench: Bench) -> None:
    said = submit(bench.box, "--malleable=1-2", "-p", "main,long")
    assert said.returncode != 0
    assert "--partition=main,long: malleable jobs run in malleable; drop" in said.stderr


# -- a job_submit of the site's own that runs after ours


@contextmanager
def changed_after_ours(box: Sandbox, change: str) -> Iterator[None]:
    """The site's job_submit.lua wraps ours and makes this change to what ours has accepted."""
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
    """Slurm preempts it no more than any job of its user: no tick can mend that."""
    job = submitted(bench.box, f"{LOSES_THE_HOLD} {GOES_ELSEWHERE}")
    wait_until(lambda: elements(bench.box, "%P %T") == ["main RUNNING"])
    said = bench.malleable("reconcile").stdout
    assert f"job {job} of nobody runs 3 elements in partition main, which site.part" in said
    assert not re.search(rf"\b(renew|hold|grow) {job}_", said)
    assert elements(bench.box, "%l") == ["10:00"]  # and ends with its lease


def test_a_job_that_lost_its_hold_is_taken_over_in_the_lane(bench: Bench) -> None:
    """It starts at once, but where it is preempted; the next tick holds what runs."""
    job = submitted(bench.box, LOSES_THE_HOLD)
    bench.until(job, has(3))
    bench.tick()
    assert elements(bench.box, "%P %T %Q") == ["malleable RUNNING 0"]
    bench.box.run(["scontrol", "requeue", f"{job}_1"])
    bench.until(job, has(1, FragmentState.HELD))


def test_a_job_without_its_mark_stays_held(bench: Bench) -> None:
    """No tick can tell it from an array that its user holds."""
    job = submitted(bench.box, 'desc.admin_comment = "approved"')
    assert f"{job}_0" not in bench.malleable("reconcile").stdout
    assert find_job(bench.observe(), job) is None
    assert elements(bench.box, "%P %r") == ["malleable JobHeldUser"]


@pytest.mark.parametrize(("array", "most"), [("5-7", 3), ("0-5", 3), ("0-1", 2), ("0-2%1", 1)])
def test_a_job_whose_array_was_changed_runs_on_what_is_left_of_it(
    bench: Bench, array: str, most: int
) -> None:
    job = submitted(bench.box, f'desc.array_inx = "{array}"')
    bench.tick_until(job, has(most))
    bench.tick()
    assert has(most)(bench.job(job))
