"""Jobs that wait for a limit, by Slurm's own words."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from fake_answers import row as squeue_row
from slurm_hooks.model import Counted, Waiter
from slurm_hooks.slurm.jobs import parse_jobs
from slurm_hooks.slurm.others import REASONS

MARK = "malleable{min=1,max=6,unit=1,engine=torchrun,frags=6,lease=120,hole=60"


def pending(job: str = "9", reason: str = "AssocGrpNodeLimit", **values: object) -> str:
    given = {"State": "PENDING", "PriorityLong": 5, "Partition": "main", "UserName": "bob"}
    return squeue_row(JobArrayID=job, Reason=reason, **{**given, **values})


def fragment(note: str = "") -> str:
    given = {"PriorityLong": 0, "Partition": "malleable", "admin_comment": f"{MARK}{note}}}"}
    return pending("7_0", "JobHeldUser", **given)


def waiting(*lines: str) -> tuple[Waiter, ...]:
    queue = parse_jobs("\n".join(lines), ["malleable"])
    assert not queue.unknown
    return queue.waiting


@pytest.mark.parametrize(
    ("reason", "counted"),
    [
        ("AssocGrpNodeLimit", Counted.ACCOUNT),
        ("AssocGrpCPURunMinutesLimit", Counted.ACCOUNT),
        ("AssocGrpMemRunMinutes", Counted.ACCOUNT),
        ("AssocMaxJobsLimit", Counted.USER),
        ("QOSGrpJobsLimit", Counted.QOS),
        ("QOSGrpMemoryRunMinutes", Counted.QOS),
        ("QOSMaxJobsPerUserLimit", Counted.QOS_USER),
        ("QOSMaxGRESPerUser", Counted.QOS_USER),
        ("MaxNodeRunMinsPerUser", Counted.QOS_USER),
        ("MaxJobsPerAccount", Counted.QOS_ACCOUNT),
        ("MaxCpuRunMinsPerAccount", Counted.QOS_ACCOUNT),
    ],
)
def test_the_jobs_that_a_limit_counts(reason: str, counted: Counted) -> None:
    assert waiting(pending(reason=reason)) == (Waiter("9", "bob", reason, counted),)


@pytest.mark.parametrize(
    "reason",
    [
        "AssocGrpSubmitJobsLimit",
        "AssocMaxSubmitJobLimit",
        "AssocGrpWallLimit",
        "AssocGrpCPUMinutesLimit",
        "AssocGrpNodeMinutes",
        "AssocGrpLicense",
        "AssocMaxNodePerJobLimit",
        "AssocMaxCpuMinutesPerJobLimit",
        "AssocMaxWallDurationPerJobLimit",
        "QOSMaxNodePerJobLimit",
        "QOSMinCpuNotSatisfied",
        "QOSNotAllowed",
        "QOSUsageThreshold",
        "MaxSubmitJobsPerAccount",
        "Resources",
        "Licenses",
    ],
)
def test_limits_that_no_end_of_a_fragment_relieves(reason: str) -> None:
    assert waiting(pending(reason=reason)) == ()


@pytest.mark.parametrize(
    "values",
    [
        {"PriorityLong": 0},  # held
        {"State": "RUNNING"},
        {"Partition": "malleable"},  # no ordinary job
    ],
)
def test_jobs_that_malleable_jobs_do_not_delay(values: dict[str, object]) -> None:
    assert waiting(pending(**values)) == ()


def test_our_own_fragments_are_left_out() -> None:
    assert waiting(fragment().replace("JobHeldUser", "AssocGrpNodeLimit")) == ()


@pytest.mark.parametrize(
    ("reason", "is_there"),
    [("Resources", True), ("Priority", True), ("None", True), ("Dependency", False)],
)
def test_the_job_for_which_a_fragment_left_is_remembered_while_it_waits(
    reason: str, is_there: bool
) -> None:
    lines = (fragment(",for=9_2"), pending("9_2", reason), pending("10", reason))
    assert [w.job_id for w in waiting(*lines)] == (["9_2"] if is_there else [])


def test_an_array_waits_by_its_elements() -> None:
    jobs = waiting(pending("9_1"), pending("9_2"), pending("12+0"))
    assert [w.job_id for w in jobs] == ["12+0", "9_1", "9_2"]


def _library() -> Path:
    squeue = shutil.which("squeue")
    linked = subprocess.run(["ldd", squeue or ""], capture_output=True, text=True, check=False)
    match = re.search(r"=> (\S*libslurm\S*)", linked.stdout)
    return Path(match.group(1)) if match else Path("/nonexistent")


@pytest.mark.slurm
def test_slurm_itself_has_these_words() -> None:
    """Words of releases that this host lacks are not checked."""
    library = _library()
    if not library.exists():
        pytest.skip("no libslurm here")
    words = set(re.findall(rb"[A-Za-z]{8,}", library.read_bytes()))
    later = {name for name in REASONS if "RunMins" in name}
    assert {name for name in REASONS if name.encode() not in words} <= later
