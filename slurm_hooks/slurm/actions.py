"""Intents as Slurm commands: equal changes share a command.

Fragments of a job that get the same lease and the same mark are released as a group. All other
nodes are excluded, so Slurm may start each fragment on any nodes of the group. A list of nodes for
each would take a command for each (no release takes ReqNodeList for a range), and tie the fragment
to names that may leave slurm.conf. A fragment gets a list only if its user's exclusion is unknown.

A fragment of a job that counts slots is released alone: in a group, Slurm could start two fragments
of a job on the same node. If its size changes, Slurm gets the size together with the node. In a
range only the first element would get the new GPUs (22.05 to 26.05).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple, Optional

from ClusterShell.RangeSet import RangeSet

from slurm_hooks.model import FragmentId, Intent, Mark, Resources, Verb
from slurm_hooks.slurm.mark import NO_NOTE, format_mark
from slurm_hooks.slurm.text import AllBut, Command, fold

Notes = Mapping[FragmentId, str]


@dataclass(frozen=True)
class Update:
    """A line for scontrol, word by word."""

    words: tuple[str, ...]

    @property
    def is_plain(self) -> bool:
        """True if scontrol's own line reader cannot split any word in two."""
        return all(re.fullmatch(r"[A-Za-z0-9_.,:=@+()\[\]{}/-]+", word) for word in self.words)


def commands(intents: Sequence[Intent], notes: Notes, nodes: Iterable[str] = ()) -> list[Command]:
    """Return the commands for all intents, in the order in which they must run.

    First hold fragments, then set leases and marks, then put fragments back, then release new
    fragments. If the tick is killed between two commands, the cluster is safe. Asking fragments to
    leave comes last: Slurm may take seconds to answer, and this plan does not wait for it. `notes`
    is the text of AdminComment beside our mark, by fragment. `nodes` are all that Slurm has."""
    done: list[Command] = []
    done += _scontrol(_holds(i for i in intents if i.is_held and not i.is_ended))
    done += _scontrol(_renewals(intents))
    done += _scontrol(_marks((i for i in intents if not i.has_late_mark), notes))
    back = [i for i in intents if i.verb is Verb.PUT_BACK or i.is_ended]
    done += _scontrol(_moves(i for i in intents if i.is_moved))
    done += _scontrol(_put_backs(back, notes))
    done += _cancels([i.fragment for i in intents if i.verb is Verb.CANCEL])
    done += _scontrol(_queued([i for i in intents if i.verb is Verb.QUEUE], notes))
    grows = [i for i in intents if i.verb is Verb.GROW]
    done += starts(grows, notes, AllBut(nodes)) if grows else []
    return done + _signals([i.fragment for i in intents if i.verb is Verb.NOTICE])


AT_A_TIME = 50
"""Lines of a command. Slurm takes 1 to 50 ms for each, and a command has a time limit."""


def _scontrol(lines: Sequence[Update]) -> list[Command]:
    """Return the commands for these lines, in order. Consecutive plain lines share a process."""
    done: list[Command] = []
    batch: list[Update] = []
    for line in lines:
        if line.is_plain:
            batch.append(line)
            continue
        done += [*_batch(batch), Command(("scontrol", *line.words))]
        batch = []
    return [*done, *_batch(batch)]


def _batch(lines: Sequence[Update]) -> list[Command]:
    done = []
    for first in range(0, len(lines), AT_A_TIME):
        some = lines[first : first + AT_A_TIME]
        text = "".join(" ".join(line.words) + "\n" for line in some)
        done.append(Command(("scontrol",), text, len(some)))
    return done


def ranges(fragments: Iterable[FragmentId]) -> list[str]:
    """Return a word for the fragments of each job: `7_3`, or `7_[0-2,5]`."""
    by_job: dict[int, RangeSet] = {}
    for fragment in fragments:
        by_job.setdefault(fragment.job_id, RangeSet()).add(fragment.index)
    return [
        f"{job}_{indices}" if len(indices) == 1 else f"{job}_[{indices}]"
        for job, indices in sorted(by_job.items())
    ]


def _holds(intents: Iterable[Intent]) -> list[Update]:
    """Hold as the user would. JobHeldAdmin would look like an operator's own hold."""
    return [Update(("uhold", word)) for word in ranges(i.fragment for i in intents)]


def _shared(asked: Iterable[tuple[FragmentId, tuple[str, ...]]]) -> list[Update]:
    """Update fragments. Those of a job that get the same words share a line."""
    sharing: dict[tuple[int, tuple[str, ...]], list[FragmentId]] = {}
    for fragment, words in asked:
        sharing.setdefault((fragment.job_id, words), []).append(fragment)
    return [
        Update(("update", f"jobid={word}", *words))
        for (_, words), fragments in sharing.items()
        for word in ranges(fragments)
    ]


def _renewals(intents: Iterable[Intent]) -> list[Update]:
    """Set EndTime to the second, the earliest first."""
    ends = sorted((int(i.end.timestamp()), i.fragment) for i in intents if i.end is not None)
    return _shared((fragment, (f"EndTime=uts{end}",)) for end, fragment in ends)


def _minutes(limit: timedelta) -> int:
    return int(limit.total_seconds() // 60)


def _comment(intent: Intent, notes: Notes) -> tuple[str, ...]:
    """Return the word that writes the mark, if the intent has a new mark."""
    if intent.mark is None:
        return ()
    text = format_mark(intent.mark, notes.get(intent.fragment, NO_NOTE), intent.summary)
    return (f"AdminComment={text}",)


def _marks(intents: Iterable[Intent], notes: Notes) -> list[Update]:
    return _shared((i.fragment, words) for i in intents if (words := _comment(i, notes)))


def _moves(intents: Iterable[Intent]) -> list[Update]:
    """Move fragments to the lane. A new QOS would bring its own time limit (25.11)."""
    return _shared((i.fragment, tuple(_lane_words(i))) for i in intents)


def _lane_words(intent: Intent) -> Iterator[str]:
    yield f"Partition={intent.lane}"
    yield f"TimeLimit={_minutes(intent.limit)}"
    yield from (f"QOS={intent.qos}",) if intent.qos else ()
    yield from (f"Account={intent.account}",) if intent.account else ()


def _queued(intents: Sequence[Intent], notes: Notes) -> list[Update]:
    """Release fragments into the ordinary queue, with the partition, the limit and the QOS of their
    user. There they wait as long as any requeued job."""
    released = (Update(("release", word)) for word in ranges(i.fragment for i in intents))
    return [*_marks(intents, notes), *released]


def _put_backs(intents: Sequence[Intent], notes: Notes) -> list[Update]:
    """Requeue, then hold. requeuehold's "job requeued in held state" hides an operator's hold
    (22.05). A fragment that ended comes back with the reason of its end, which uhold replaces."""
    ended = [i for i in intents if i.is_ended]
    back = [Update(("requeue", word)) for word in ranges(i.fragment for i in intents)]
    return [*back, *_holds(i for i in ended if i.is_held), *_marks(ended, notes)]


def starts(
    grows: Sequence[Intent],
    notes: Notes,
    machine: AllBut,
    tied: Collection[FragmentId] = (),
) -> list[Command]:
    """Give fragments their nodes, then release all of a job together, by the last command.

    Single releases keep slurmctld from starting the fragments. Without its update a fragment would
    start anywhere, with its last limit. For fragments in `tied` Slurm has a list of nodes, which
    the update empties.
    """
    updates = [_start(group, notes, machine, tied) for group in groups(grows, notes, tied)]
    released = [Update(("release", word)) for word in ranges(a.fragment for a in grows)]
    return [*_scontrol(updates), *_batch(released)]


def groups(
    grows: Iterable[Intent], notes: Notes, tied: Collection[FragmentId] = ()
) -> list[list[Intent]]:
    """Return the fragments that get their nodes together."""
    by_key: dict[object, list[Intent]] = {}
    for grow in grows:
        is_alone = _has_slots(grow) or not _is_exchangeable(grow) or grow.fragment in tied
        key = grow.fragment if is_alone else _group(grow, notes)
        by_key.setdefault(key, []).append(grow)
    return list(by_key.values())


class _Group(NamedTuple):
    """The common properties of fragments that are released together. A fragment that did not start
    the last time is `alone`: Slurm would not say which nodes of a group do not fit."""

    job_id: int
    limit: timedelta
    comment: tuple[str, ...]
    alone: Optional[FragmentId]


def _group(grow: Intent, notes: Notes) -> _Group:
    alone = grow.fragment if grow.mark is not None and grow.mark.vain else None
    return _Group(grow.fragment.job_id, grow.limit, _comment(grow, notes), alone)


def _is_exchangeable(grow: Intent) -> bool:
    return grow.mark is not None and grow.mark.request.is_exchangeable


def _has_slots(grow: Intent) -> bool:
    return grow.mark is not None and grow.mark.request.slot is not None


def _start(
    group: Sequence[Intent], notes: Notes, machine: AllBut, tied: Collection[FragmentId]
) -> Update:
    """StartTime=now lifts the two minutes that Slurm makes a requeued job wait."""
    first = group[0]
    names = frozenset(name for grow in group for name in grow.nodes)
    if _is_exchangeable(first):
        nodes = [f"ExcNodeList={machine.listed(names)}"]
        nodes += ["ReqNodeList="] if first.fragment in tied else []
    else:
        nodes = [f"ReqNodeList={fold(names)}", f"NumNodes={len(names)}"]
    limit = f"TimeLimit={_minutes(first.limit)}"
    size = _size(first.asks, first.mark) if first.is_resized else []
    size += [f"Partition={first.lane}"] if first.lane else []
    size += [f"QOS={first.qos}"] if first.qos else []
    size += [f"Account={first.account}"] if first.account else []
    (where,) = ranges(grow.fragment for grow in group)
    comment = _comment(first, notes)
    return Update(("update", f"jobid={where}", *nodes, limit, *size, "StartTime=now", *comment))


def _size(asks: Resources, mark: Optional[Mark]) -> list[str]:
    """Return the words for the fragment's share of its node, as a single task that has all of it.

    Slurm obeys only all of these words together. Without MinCPUsNode or NumCPUs it keeps the
    processors of the last run, without CpusPerTask it gives 1 (24.11). It accepts TresPerNode=gpu:4
    silently and gives the old number (22.05). `Gres` works.
    """
    slot = None if mark is None else mark.request.slot
    gres = [f"Gres={slot.gres}:{asks.count(slot.gres)}"] if slot is not None and slot.gres else []
    cpus = [f"{key}={asks.cpus}" for key in ("CpusPerTask", "NumCPUs", "MinCPUsNode")]
    return [*gres, *cpus, f"MinMemoryNode={asks.memory_mib}"]


_SCANCEL_THREADS = 10  # fragments that one scancel signals at a time
_PATIENCE_S = 2.0


def _signals(fragments: Sequence[FragmentId]) -> list[Command]:
    """Send SIGURG to every process of the fragments. The commands may run side by side.

    While two elements of the array are pending, slurmctld (22.05) delivers the signal but answers
    "Job can not be altered now". Then scancel sleeps and tries again for half a minute. So no
    command is waited for, and each gets at most as many fragments as it signals at a time.
    """
    done = []
    for first in range(0, len(fragments), _SCANCEL_THREADS):
        some = sorted(fragments)[first : first + _SCANCEL_THREADS]
        argv = ("scancel", "--quiet", "--signal=URG", "--full", *ranges(some))
        done.append(Command(argv, rpcs=len(some), patience_s=_PATIENCE_S))
    return done


def _cancels(fragments: Sequence[FragmentId]) -> list[Command]:
    words = ranges(fragments)
    return [Command(("scancel", "--quiet", *words), rpcs=len(fragments))] if words else []
