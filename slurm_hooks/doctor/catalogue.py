"""All checks in the order of the output, and the site's own checks.

A site's own checks come only from installed packages, through the entry point group
`slurm_malleable.checks`: never from a path, never from a module that a user names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from slurm_hooks.doctor.checks import (
    basics,
    ending,
    environments,
    hooks,
    job,
    limits,
    node,
    parts,
    plugin,
    preemption,
    python,
    running,
    scheduler,
    submission,
    tick,
)
from slurm_hooks.doctor.facts import Facts
from slurm_hooks.doctor.finding import Category, Check, Finding, error
from slurm_hooks.errors import UsageError, nearest
from slurm_hooks.tick.entry_points import entries

GROUP = "slurm_malleable.checks"
MODULES = (
    basics,
    preemption,
    parts,
    ending,
    limits,
    running,
    scheduler,
    submission,
    plugin,
    hooks,
    environments,
    tick,
    node,
    python,
    job,
)
CHECKS: tuple[Check, ...] = tuple(check for module in MODULES for check in module.TABLE)
_IDS = frozenset(check.id for check in CHECKS)
_ON_NODE = (Category.BASICS, Category.PLUGIN, Category.HOOKS, Category.NODE)
_ELSEWHERE = ("settings", "plugin-on-nodes", "slurmctld-hooks")  # not checks of a node
_ASKED_FOR = (Category.NODE, Category.PYTHON, Category.JOB)


@dataclass(frozen=True)
class Wish:
    """The object of the checks: named checks only, a node, an interpreter, a job, else the site.

    With `has_directory` a directory of the node was named.
    """

    names: tuple[str, ...] = ()
    is_node: bool = False
    has_directory: bool = False
    has_python: bool = False
    has_job: bool = False


def choose(wish: Wish, checks: Sequence[Check]) -> tuple[Check, ...]:
    """The checks for a wish, in order. Raises UsageError for an unknown name, and for an option
    that the named checks do not use."""
    known = {check.id for check in checks}
    strange = [name for name in wish.names if name not in known]
    if strange:
        raise UsageError(
            f"there is no check {', '.join(strange)}{nearest(strange[0].lower(), known)} "
            "(`malleable doctor --list` lists all checks)"
        )
    if wish.names:
        chosen = tuple(check for check in checks if check.id in wish.names)
        _raise_if_in_vain(wish, chosen)
        return chosen
    return tuple(check for check in checks if _is_wanted(check, wish))


def _raise_if_in_vain(wish: Wish, chosen: Sequence[Check]) -> None:
    there = {check.category for check in chosen}
    for option, is_given, category in (
        ("--directory", wish.has_directory, Category.NODE),
        ("--python", wish.has_python, Category.PYTHON),
        ("--job", wish.has_job, Category.JOB),
    ):
        if is_given and category not in there:
            raise UsageError(
                f"{option}: the checks {', '.join(wish.names)} do not use it; leave out the "
                "option, or the names of checks"
            )


def _is_wanted(check: Check, wish: Wish) -> bool:
    asked: Collection[Category] = [
        category
        for category, is_asked in ((Category.PYTHON, wish.has_python), (Category.JOB, wish.has_job))
        if is_asked
    ]
    if wish.is_node:
        is_here = check.category in _ON_NODE and check.id not in _ELSEWHERE
        return is_here or check.category in asked
    return check.category in asked if asked else check.category not in _ASKED_FOR


def site_checks() -> tuple[Check, ...]:
    """The checks of installed packages. A check that cannot be loaded reports that as a finding."""
    return tuple(check for entry in entries(GROUP) for check in _loaded(entry))


def _loaded(entry: Any) -> Iterator[Check]:
    try:
        loaded = entry.load()
        for check in [loaded] if isinstance(loaded, Check) else list(loaded):
            if not isinstance(check, Check):
                raise TypeError(f"{check!r} is not a Check")
            if check.id in _IDS:
                raise ValueError(
                    f"{check.id!r} is the id of a check of doctor: begin it with your site's name"
                )
            yield replace(check, category=Category.SITE, source=entry.value)
    except (Exception, SystemExit) as fault:  # code of another package
        yield _broken(entry, f"{type(fault).__name__}: {fault}")


def _broken(entry: Any, seen: str) -> Check:
    def look(_facts: Facts) -> Iterator[Finding]:
        yield error(
            f"{entry.value} of the group {GROUP} cannot be loaded: {seen}",
            advice="correct that package, or remove it",
        )

    return Check(entry.name, Category.SITE, f"{entry.name} can be loaded", "", look)
