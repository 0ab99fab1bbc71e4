"""The nodes of fragments that were released together and have not started.

Slurm keeps no list of theirs, only of the nodes that they are excluded from, which it shows in
another format of squeue's than all else: so this is asked for only while such fragments wait.
"""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ClusterShell.NodeSet import NodeSetParseError

from slurm_hooks.model import (
    ON_NODES,
    Fragment,
    FragmentId,
    FragmentState,
    MalleableJob,
    Node,
    NodeState,
)
from slurm_hooks.slurm.text import Command, expand

_ROW = re.compile(r"(\d{1,10})_(\d{1,10})\|(\S*)", re.ASCII)


def exclusions_command(partitions: Sequence[str]) -> Command:
    """The nodes that pending elements are excluded from."""
    where = f"--partition={','.join(partitions)}"
    return Command(
        ("squeue", "--noheader", "--all", "--array", "--states=PENDING", where, "--format=%i|%x")
    )


def parse_exclusions(text: str) -> dict[FragmentId, str]:
    """Host lists by element; empty for those that are excluded from no node."""
    rows = filter(None, map(_ROW.fullmatch, text.splitlines()))
    return {FragmentId(int(row.group(1)), int(row.group(2))): row.group(3) for row in rows}


def is_unplaced(job: MalleableJob) -> bool:
    """True if a fragment waits for any of its group's nodes, or was found unfit for all of them."""
    return job.request.is_exchangeable and any(map(_waits, job.fragments))


def _waits(fragment: Fragment) -> bool:
    is_released = fragment.mark.released is not None and not fragment.has_run
    is_unfit = fragment.reason == "BadConstraints"
    is_waiting = fragment.state is FragmentState.PENDING or is_unfit
    return is_released and is_waiting and not fragment.nodes


def placed(
    job: MalleableJob, excluded: Mapping[FragmentId, str], nodes: Iterable[Node]
) -> MalleableJob:
    """The job with a node for each fragment of a group that has not started.

    As many nodes are left to the group as fragments: which of them gets which is not known, nor
    does it matter. Those that are free come first.
    """
    if not is_unplaced(job):
        return job
    taken = {name for f in job.fragments if f.state in ON_NODES for name in f.nodes}
    left = sorted((n.state is not NodeState.FREE, n.name) for n in nodes if n.name not in taken)
    found: dict[FragmentId, frozenset[str]] = {}
    for text, group in _groups(job, excluded).items():
        with contextlib.suppress(NodeSetParseError):
            barred = expand(text)
            names = (name for _, name in left if name not in barred)
            found.update((f.id, frozenset((name,))) for f, name in zip(group, names))
    fragments = (replace(f, nodes=found.get(f.id, f.nodes)) for f in job.fragments)
    return replace(job, fragments=tuple(fragments))


def _groups(job: MalleableJob, excluded: Mapping[FragmentId, str]) -> dict[str, list[Fragment]]:
    groups: defaultdict[str, list[Fragment]] = defaultdict(list)
    for fragment in filter(_waits, job.fragments):
        if fragment.id in excluded:
            groups[excluded[fragment.id]].append(fragment)
    return groups
