"""The policy for job_submit as text, and what an administrator should know before using it."""

from __future__ import annotations

import pwd
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slurm_hooks.settings import Settings
from slurm_hooks.slurm.cluster import Cluster, cluster_command, parse_cluster
from slurm_hooks.slurm.live import Port
from slurm_hooks.slurm.lua_policy import render_policy


@dataclass(frozen=True)
class SitePolicy:
    """The text of malleable_policy.lua, its faults, and the answer of Slurm that it is made of."""

    text: str
    faults: tuple[str, ...]
    answer: str


def render_site(settings: Settings, port: Port) -> SitePolicy:
    """Ask Slurm once and render. Raises RetryLater, CommandRefused, UnreadableOutput."""
    answer = port.ask(cluster_command())
    cluster = parse_cluster(answer)
    known = find_uids(settings.site.operators)
    missing = [name for name in settings.site.operators if name not in known]
    return SitePolicy(
        text=render_policy(settings, cluster, known),
        faults=(*_unfit(settings.site.partitions, cluster), *map(_stranger, missing)),
        answer=answer,
    )


def find_uids(names: Sequence[str]) -> dict[str, int]:
    """The uids of those names that this host knows, each looked up alone.

    A list of all users would leave out those of a directory service that does not list them.
    """
    found = {}
    for name in names:
        try:
            found[name] = pwd.getpwnam(name).pw_uid
        except (KeyError, ValueError):  # ValueError: a NUL in the name
            continue
    return found


def _unfit(partitions: Sequence[str], cluster: Cluster) -> Iterator[str]:
    for name in partitions:
        if not cluster.preemptible.get(name):
            known = name in cluster.preemptible
            why = "cannot be preempted by requeue" if known else "is unknown"
            yield f"partition {name} {why}: jobs there will be refused"


def _stranger(name: str) -> str:
    return (
        f"operator {name} is not a user of this host and could not change malleable jobs; "
        "correct site.operators"
    )
