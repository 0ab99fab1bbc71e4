"""The part of doctor that `malleable render lua --check` prints: what slurm.conf says, a line each.

Pure: it needs Slurm's answer and the settings alone.
"""

from __future__ import annotations

from slurm_hooks.doctor.checks import ending, limits, preemption, scheduler
from slurm_hooks.doctor.facts import Facts, Host, Unread
from slurm_hooks.doctor.gather.slurm import read_slurm
from slurm_hooks.doctor.remedies import Remedies
from slurm_hooks.doctor.run import run
from slurm_hooks.doctor.text import one_liners
from slurm_hooks.errors import UnreadableOutput
from slurm_hooks.settings.values import Settings

# `render lua` itself says which partitions are missing or cannot be preempted.
_SAID_ALREADY = ("partition", "preempt-type", "preempt-mode")
CHECKS = tuple(
    check
    for module in (ending, preemption, limits, scheduler)
    for check in module.TABLE
    if check.id not in _SAID_ALREADY
)


def check_conf(answer: str, settings: Settings) -> tuple[str, ...]:
    """Warnings and errors in the answer to cluster_command; none if it cannot be read."""
    try:
        slurm = read_slurm(answer, settings.site.partitions)
    except UnreadableOutput:
        return ()
    unread = Unread("not read here")
    facts = Facts(Host("", 0, ""), settings, slurm=slurm, accounting=unread)
    outcomes = run(CHECKS, facts, is_before=False)
    findings = [found for outcome in outcomes for found in outcome.findings]
    return one_liners(outcomes, Remedies(findings, slurm, unread))
