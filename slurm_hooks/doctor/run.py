"""Run checks on facts, and return their outcomes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from slurm_hooks.doctor.facts import CannotLook, Facts
from slurm_hooks.doctor.finding import Check, Finding, Severity, warning
from slurm_hooks.errors import Exit
from slurm_hooks.model.moments import plural

_ORDER = (Severity.NOTE, Severity.WARNING, Severity.ERROR)
ALL_WELL, HAS_WARNINGS, HAS_ERRORS = Exit.DONE, Exit.FOUND, Exit.ERRORS
HAS_STEPS = Exit.TO_DO
ON_NODES = "plugin-on-nodes"  # the check that tells what it cannot see from here


@dataclass(frozen=True)
class Outcome:
    """A check with its findings, or with the reason why it was skipped."""

    check: Check
    findings: tuple[Finding, ...] = ()
    skipped: str = ""

    @property
    def word(self) -> str:
        """ok, skipped, or the worst severity found."""
        if self.skipped:
            return "skipped"
        worst = max((f.severity for f in self.findings), key=_ORDER.index, default=None)
        return "ok" if worst is None else worst.value


def run(checks: Sequence[Check], facts: Facts, is_before: bool) -> tuple[Outcome, ...]:
    """Run all checks on the same facts.

    With `is_before` the package is not installed yet, so its missing parts are not faults.
    """
    return tuple(_look(check, facts, is_before) for check in checks)


def _look(check: Check, facts: Facts, is_before: bool) -> Outcome:
    try:
        findings = tuple(check.look(facts))
    except CannotLook as reason:
        return Outcome(check, skipped=str(reason))
    except (Exception, SystemExit) as fault:  # a site's own code, or an answer of a new kind
        seen = f"this check failed: {type(fault).__name__}: {fault}"
        return Outcome(check, (warning(seen, advice=_after_fault(check)),))
    if is_before and check.is_ours:
        findings = tuple(
            replace(each, severity=Severity.NOTE, is_missing=each.is_to_do) for each in findings
        )
    return Outcome(check, findings)


def _after_fault(check: Check) -> str:
    if check.source:
        return f"correct the package that has {check.source}, or remove it"
    return "report it with `malleable bundle`"


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """0 if all is well (notes do not count), 1 with warnings or if no check could run, 2 with
    errors, 3 if only steps of the installation are left."""
    words = {outcome.word for outcome in outcomes}
    if words == {"skipped"}:
        return HAS_WARNINGS  # no check could run, which is not good news
    if Severity.ERROR.value in words:
        return HAS_ERRORS
    if Severity.WARNING.value in words:
        return HAS_WARNINGS
    return HAS_STEPS if _waiting(outcomes) else ALL_WELL


def _waiting(outcomes: Sequence[Outcome]) -> int:
    """The number of checks that wait for a step of the installation."""
    return sum(any(f.is_missing for f in outcome.findings) for outcome in outcomes)


def closing(outcomes: Sequence[Outcome]) -> str:
    """A sentence that sums the outcomes up."""
    count = Counter(f.severity for outcome in outcomes for f in outcome.findings)
    words = Counter(outcome.word for outcome in outcomes)
    rest = f"{plural(words['ok'], 'check')} fine, {words['skipped']} skipped"
    notes = f", {plural(count[Severity.NOTE], 'note')}" if count[Severity.NOTE] else ""
    if set(words) == {"skipped"}:
        return f"No check could run: {rest}."
    left = f"{plural(_waiting(outcomes), 'check')} waiting for the steps above"
    if exit_code(outcomes) == HAS_STEPS:
        return f"To do: {left}. There is no other fault: {rest}."
    if not (count[Severity.ERROR] or count[Severity.WARNING]):
        is_here_only = any(o.check.id == ON_NODES and o.findings for o in outcomes)
        where = " on this host, and no compute node was checked" if is_here_only else ""
        return f"All is well{where}: {rest}{notes}."
    return (
        f"{plural(count[Severity.ERROR], 'error')} and "
        f"{plural(count[Severity.WARNING], 'warning')}, "
        f"{rest}{notes}: do as the lines above say, then run doctor again."
    )
