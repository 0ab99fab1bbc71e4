"""The nodes of fragments that were released together and have not started.

Slurm keeps only the list of nodes that each is excluded from. squeue shows that list in another
format than the rest. So the question is asked only while such fragments wait.
"""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple, Optional

from ClusterShell.NodeSet import NodeSetParseError

from slurm_hooks.model import (
    LIVE_STATES,
    Fragment,
    FragmentId,
    FragmentState,
    MalleableJob,
    Node,
    NodeState,
    Request,
)
from slurm_hooks.slurm.text import Command, expand

_ROW = re.compile(r"(\d{1,10})_(\d{1,10})\|([^\s|]*)\|([^\s|]*)", re.ASCII)


class Place(NamedTuple):
    """The nodes on which an element may not start, and those on which it has."""

    excluded: frozenset[str]
    nodes: frozenset[str] = frozenset()


def places_command(partitions: Sequence[str]) -> Command:
    """Ask for the nodes that elements are excluded from, and the nodes of started elements."""
    words = ("squeue", "--noheader", "--all", "--array", "--states=PENDING,RUNNING,COMPLETING")
    return Command((*words, f"--partition={','.join(partitions)}", "--format=%i|%x|%N"))


def parse_places(text: str) -> dict[FragmentId, Place]:
    """Return places by element. Other rows are skipped."""
    listed = lru_cache(maxsize=None)(expand)  # the members of a group have one list
    places = {}
    for job, index, excluded, nodes in filter(None, map(_cells, text.splitlines())):
        with contextlib.suppress(NodeSetParseError):
            place = Place(listed(excluded), listed(nodes))
            places[FragmentId(int(job), int(index))] = place
    return places


def _cells(line: str) -> Optional[tuple[str, ...]]:
    row = _ROW.fullmatch(line)
    return row.groups() if row else None


def is_unplaced(job: MalleableJob) -> bool:
    """True if a fragment waits for any nodes of its group. Also true if Slurm finds all of them
    unfit and the mark does not have that yet."""
    return job.request.is_exchangeable and any(map(_waits, job.fragments))


def _waits(fragment: Fragment) -> bool:
    if fragment.is_core:
        return False
    since = fragment.mark.released
    if since is None or fragment.has_run or fragment.nodes:
        return False
    is_news = not any(a.since > since for a in fragment.mark.unfit)
    is_unfit = fragment.reason == "BadConstraints" and is_news
    return fragment.state is FragmentState.PENDING or is_unfit


def placed(
    job: MalleableJob, places: Mapping[FragmentId, Place], nodes: Iterable[Node]
) -> MalleableJob:
    """Return the job with nodes for each fragment of a group that had not started when it was read.

    The group has as many nodes left as its fragments need. It does not matter which fragment gets
    which node. Free nodes come first. A fragment that has started since has its own nodes. A
    fragment that counts slots has a single node, which it may share with others of its job. If the
    core has taken its node, the fragment waits for it, as for a node of another job.
    """
    if not is_unplaced(job):
        return job
    waiting = [(f, places[f.id]) for f in job.fragments if _waits(f) and f.id in places]
    nodes_of = {f.id: place.nodes for f, place in waiting if place.nodes}
    there = (f for f in job.fragments if f.state in LIVE_STATES and not f.is_core)
    taken = {name for f in there for name in f.nodes}
    taken = taken.union(*nodes_of.values())
    left = [name for _, name in sorted((n.state is not NodeState.FREE, n.name) for n in nodes)]
    for excluded, group in _groups(waiting).items():
        names = [name for name in left if name not in excluded]
        given = _given(job.request, [name for name in names if name not in taken], len(group))
        if job.request.slot is not None:
            given += [frozenset(names[:1])] * (len(group) - len(given))
        nodes_of.update((f.id, nodes) for f, nodes in zip(group, given) if nodes)
        taken.update(*given)  # a node that has joined since is open to every group
    fragments = (replace(f, nodes=nodes_of.get(f.id, f.nodes)) for f in job.fragments)
    return replace(job, fragments=tuple(fragments))


def _given(request: Request, names: Sequence[str], count: int) -> list[frozenset[str]]:
    """Return the nodes of `count` fragments, or of fewer if the names run out."""
    unit = request.unit if request.slot is None else 1
    return [frozenset(names[i : i + unit]) for i in range(0, min(count * unit, len(names)), unit)]


def _groups(waiting: Iterable[tuple[Fragment, Place]]) -> dict[frozenset[str], list[Fragment]]:
    groups: defaultdict[frozenset[str], list[Fragment]] = defaultdict(list)
    for fragment, place in waiting:
        if not place.nodes:
            groups[place.excluded].append(fragment)
    return groups
