"""Limits the units that the jobs of a user or an account may have together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from slurm_hooks.model import MalleableJob
from slurm_hooks.planning.modes import Ceiling, Mandate


class Use(NamedTuple):
    """The units of a job: `held` units are in the allocator's hands, `kept` units are not.

    A fragment is on `taken` units, or on its way.
    """

    job: MalleableJob
    held: int
    kept: int
    taken: int


@dataclass
class Quota:
    """The ceiling of a user or an account, for its `jobs`, by their ids.

    The allocator may give them `most` units together, and `room` units are left now. A fragment on
    its way out takes up room. The quota `is_above` if the allocator has to take something back.
    """

    ceiling: Ceiling
    jobs: frozenset[int]
    most: int
    room: int
    is_above: bool = False


def quotas_of(mandate: Mandate, per_node: int, uses: Iterable[Use]) -> tuple[Quota, ...]:
    """A quota for each user with a ceiling, then for each account. A node is `per_node` units."""
    by_ceiling: dict[Ceiling, list[Use]] = {}
    for use in uses:
        for ceiling in mandate.ceilings_of(use.job):
            by_ceiling.setdefault(ceiling, []).append(use)
    ranked = sorted(
        by_ceiling, key=lambda each: (each.user is None, each.user or each.account or "")
    )
    return tuple(_quota(ceiling, per_node, by_ceiling[ceiling]) for ceiling in ranked)


def _quota(ceiling: Ceiling, per_node: int, uses: list[Use]) -> Quota:
    units = ceiling.nodes * per_node
    most = max(0, units - sum(use.kept for use in uses))
    room = max(0, units - sum(use.taken for use in uses))
    is_above = sum(use.held for use in uses) > most
    return Quota(ceiling, frozenset(use.job.job_id for use in uses), most, room, is_above)
