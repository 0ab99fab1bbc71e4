"""The output of `malleable doctor --pre` at four sites with an existing lane."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from known_sites import GOOD

from guest_sites import ALIKE, DELTA, GPU_CLUSTER, QOS_LANE, SITES, GuestSite
from slurm_hooks.doctor.catalogue import CHECKS, Wish, choose
from slurm_hooks.doctor.facts import Accounting, Facts, Host, Unread
from slurm_hooks.doctor.finding import Paste
from slurm_hooks.doctor.gather.slurm import read_slurm
from slurm_hooks.doctor.run import closing, run
from slurm_hooks.settings.values import parse

# The missing parts of an installation are the same everywhere, and files are not read here.
ELSEWHERE = {"job-submit-plugin", "usage-factor", "plugin-on-nodes"}


def doctor(site: GuestSite, settings: str) -> list[str]:
    """All findings, and the last line."""
    chosen = parse(settings)
    slurm = read_slurm(site.answer(GOOD), chosen.site.partitions, 1795287648.0)
    accounting = Accounting(site.qos_rows, (), {}) if site.qos_rows else Unread("no slurmdbd")
    facts = Facts(Host("ctl", 0, "root"), chosen, slurm=slurm, accounting=accounting)
    wanted = [check for check in choose(Wish(), CHECKS) if check.id not in ELSEWHERE]
    outcomes = run(wanted, facts, is_before=True)
    printed = [
        f"{finding.severity.value} {outcome.check.id}: {finding.seen}"
        for outcome in outcomes
        for finding in outcome.findings
    ]
    return [*printed, re.sub(r"[:,] \d+ checks fine, \d+ skipped", "", closing(outcomes))]


GOLDEN = {
    "gpu cluster": [
        "warning release: Slurm 23.02.2 is not a release on which this was tested "
        "(22.05, 23.11, 24.11, 25.05, 25.11, 26.05)",
        "note longest-wait: partition lowest: a job may wait up to 11 min for a node with a "
        "fragment: grace 10 min, 30 s until Slurm's check, KillWait 30 s",
        "0 errors and 1 warning, 1 note: do as the lines above say, then run doctor again.",
    ],
    "delta": [
        "note longest-wait: partition gpuA100x4-preempt: a job may wait up to 16 min for a node "
        "with a fragment: PreemptExemptTime 10 min, grace 5 min, 30 s until Slurm's check, "
        "KillWait 30 s",
        "All is well, 1 note.",
    ],
    "qos lane": [
        "note longest-wait: partition gpu_b1: a job may wait up to 11 min for a node with a "
        "fragment: the longest lease 10 min, 30 s until Slurm's check, KillWait 30 s",
        "All is well, 1 note.",
    ],
    "alike": [
        "error priority-tier: PartitionName=preempt PriorityTier=1: no partition that shares its "
        "nodes has a higher tier, so no job can preempt there: gpu (1), debug (1)",
        "1 error and 0 warnings: do as the lines above say, then run doctor again.",
    ],
}


@pytest.mark.parametrize("name", SITES)
def test_the_findings_at_each_site(name: str) -> None:
    assert doctor(SITES[name], SITES[name].settings) == GOLDEN[name]


def test_longer_leases_show_the_terms() -> None:
    printed = doctor(QOS_LANE, QOS_LANE.settings + "[lease]\nlength_s = 86400\n")
    (line,) = (line for line in printed if "longest-wait" in line)
    assert "up to 2 h 30 s for a node with a fragment: PreemptExemptTime 2 h, KillWait 30 s" in line


def test_a_grace_that_leaves_no_time_to_train_is_reported() -> None:
    lane = "GraceTime=300 MaxTime="
    site = replace(DELTA, conf=DELTA.conf.replace(lane + "2-00:00:00", lane + "00:06:00"))
    printed = [line for line in doctor(site, site.settings) if "longest-wait" in line]
    assert (
        "warning longest-wait: partition gpuA100x4-preempt: MaxTime 6 min leaves less than 2 min "
        "before the notice (the grace, 5 min): fragments leave soon after they start"
    ) in printed


def test_the_other_lane_of_the_gpu_cluster_promises_at_once() -> None:
    printed = doctor(GPU_CLUSTER, '[site]\npartitions = ["scavenge"]\n')
    assert [line for line in printed if "release" not in line] == [
        "0 errors and 1 warning: do as the lines above say, then run doctor again."
    ]


@pytest.mark.parametrize(
    ("site", "lanes"),
    [
        (GPU_CLUSTER, "lowest, scavenge"),
        (DELTA, "gpuA100x4-preempt"),
        (QOS_LANE, ""),
        (ALIKE, ""),
    ],
)
def test_before_there_are_settings_the_lanes_are_named(site: GuestSite, lanes: str) -> None:
    slurm = read_slurm(site.answer(GOOD), ["malleable"])
    facts = Facts(Host("ctl", 0, "root"), slurm=slurm)
    (outcome,) = run([check for check in CHECKS if check.id == "partition"], facts, is_before=True)
    (finding,) = outcome.findings
    (paste,) = finding.fixes
    assert isinstance(paste, Paste)
    first = lanes.split(",", maxsplit=1)[0]
    own = "PartitionName=malleable Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE"
    if not lanes:
        assert (paste.file, finding.advice) == (slurm.conf, "")
        assert paste.line.startswith(own)
        return
    assert (paste.file, paste.line) == (facts.settings_path, f'partitions = ["{first}"]')
    assert finding.advice.startswith(
        f"malleable jobs can use a lane that you already have: {lanes}"
    )
    assert own in finding.advice


def test_without_settings_an_existing_lane_has_no_finding() -> None:
    """Its PreemptMode makes it a lane."""
    slurm = read_slurm(DELTA.answer(GOOD), ["malleable"])
    facts = Facts(Host("ctl", 0, "root"), slurm=slurm)
    wanted = [check for check in CHECKS if check.id == "others-preempt"]
    (outcome,) = run(wanted, facts, is_before=True)
    assert outcome.findings == ()


def test_a_lane_that_cancels_is_an_error() -> None:
    lane = "PartitionName=gpuA100x4-preempt "
    cancels = replace(DELTA, conf=DELTA.conf.replace(lane, f"{lane}PreemptMode=CANCEL "))
    assert doctor(cancels, cancels.settings)[0] == (
        "error preempt-mode: PartitionName=gpuA100x4-preempt PreemptMode=CANCEL: Slurm cancels "
        "jobs that it preempts there, so a fragment would be lost"
    )
