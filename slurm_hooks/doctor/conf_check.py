"""The part of doctor that `malleable render lua --check` prints: a line for each fault in Slurm."""

from __future__ import annotations

from dataclasses import replace

from slurm_hooks.doctor.checks import ending, limits, parts, preemption, scheduler
from slurm_hooks.doctor.facts import Accounting, Facts, Host, Unread
from slurm_hooks.doctor.finding import Severity
from slurm_hooks.doctor.gather.slurm import ask_accounting, read_slurm
from slurm_hooks.doctor.remedies import Remedies
from slurm_hooks.doctor.run import Outcome, run
from slurm_hooks.doctor.text import one_liners
from slurm_hooks.errors import UnreadableOutput
from slurm_hooks.settings.values import Settings
from slurm_hooks.slurm.live import Port

# `render lua` itself says why jobs of a partition or of site.qos cannot be preempted.
_SAID_ALREADY = ("partition", "preempt-type", "preempt-mode")
_ERRORS_SAID = ("preempt-qos", "priority-tier")
CHECKS = tuple(
    check
    for module in (ending, preemption, parts, limits, scheduler)
    for check in module.TABLE
    if check.id not in _SAID_ALREADY
)


def check_conf(answer: str, settings: Settings, port: Port) -> tuple[str, ...]:
    """Warnings and errors in the answer to cluster_command, empty if it cannot be read. With
    preemption by QOS this asks the accounting database too, and raises the errors of the port.
    """
    try:
        slurm = read_slurm(answer, settings.site.partitions)
    except UnreadableOutput:
        return ()
    unread = Unread("not read here")
    by_qos = slurm.value("PreemptType") == "preempt/qos"
    accounting: Accounting | Unread = ask_accounting(port) if by_qos else unread
    facts = Facts(Host("", 0, ""), settings, slurm=slurm, accounting=accounting)
    outcomes = [_unsaid(outcome) for outcome in run(CHECKS, facts, is_before=False)]
    findings = [finding for outcome in outcomes for finding in outcome.findings]
    return one_liners(outcomes, Remedies(findings, slurm, unread))


def _unsaid(outcome: Outcome) -> Outcome:
    """The outcome without the errors that `render lua` has already printed."""
    if outcome.check.id not in _ERRORS_SAID:
        return outcome
    left = tuple(f for f in outcome.findings if f.severity is not Severity.ERROR)
    return replace(outcome, findings=left)
