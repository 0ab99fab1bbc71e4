"""All checks in the order in which they are shown, and those of the site beside them.

A site's own come from installed packages only, through the entry point group
`slurm_malleable.checks`: never a path, never a module named by a user.
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
    learned,
    limits,
    mode,
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
from slurm_hooks.errors import UsageError
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
    learned,
    mode,
    node,
    python,
    job,
)
CHECKS: tuple[Check, ...] = tuple(check for module in MODULES for check in module.TABLE)
_ON_NODE = (Category.BASICS, Category.PLUGIN, Category.HOOKS, Category.NODE)
_ELSEWHERE = ("settings", "plugin-on-nodes", "slurmctld-hooks")  # not a matter of a node
_ASKED_FOR = (Category.NODE, Category.PYTHON, Category.JOB)


@dataclass(frozen=True)
class Wish:
    """What to look at: names alone, or a node, an interpreter, a job, else the whole site.

    With `has_directory` a directory of the node was named.
    """

    names: tuple[str, ...] = ()
    is_node: bool = False
    has_directory: bool = False
    has_python: bool = False
    has_job: bool = False


def choose(wish: Wish, checks: Sequence[Check]) -> tuple[Check, ...]:
    """The checks for a wish, in order. Raises UsageError for a name that no check has, and for an
    option that none of the named ones looks at."""
    known = {check.id for check in checks}
    strange = [name for name in wish.names if name not in known]
    if strange:
        raise UsageError(
            f"there is no check {', '.join(strange)}: `malleable doctor --list` shows them all"
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
                f"{option}: {', '.join(wish.names)} would not look at it; leave that option out, "
                "or the names of checks"
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
    """The checks that installed packages add; one that cannot be loaded says so when it is run."""
    return tuple(check for entry in entries(GROUP) for check in _loaded(entry))


def _loaded(entry: Any) -> Iterator[Check]:
    try:
        found = entry.load()
        for check in [found] if isinstance(found, Check) else list(found):
            if not isinstance(check, Check):
                raise TypeError(f"{check!r} is not a Check")
            yield replace(check, category=Category.SITE)
    except Exception as fault:  # somebody else's code
        yield _broken(entry, f"{type(fault).__name__}: {fault}")


def _broken(entry: Any, seen: str) -> Check:
    def look(_facts: Facts) -> Iterator[Finding]:
        yield error(
            f"{entry.value} of the group {GROUP} cannot be loaded: {seen}",
            advice="correct that package, or remove it",
        )

    return Check(entry.name, Category.SITE, f"{entry.name} can be loaded", "", look)
