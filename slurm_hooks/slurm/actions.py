"""Actions as Slurm commands: equal changes share one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from ClusterShell.RangeSet import RangeSet

from slurm_hooks.model import (
    Action,
    Cancel,
    FragmentId,
    Grow,
    Hold,
    Mark,
    Notice,
    PutBack,
    Renew,
    SetMark,
)
from slurm_hooks.slurm.mark import NO_NOTE, format_mark
from slurm_hooks.slurm.text import Command, fold

Notes = Mapping[FragmentId, str]


@dataclass(frozen=True)
class Update:
    """One line for scontrol, word by word."""

    words: tuple[str, ...]

    @property
    def is_plain(self) -> bool:
        """True if no word could be read as more than one by scontrol's own line reader."""
        return all(re.fullmatch(r"[A-Za-z0-9_.,:=@+\[\]{}/-]+", word) for word in self.words)


def commands(actions: Sequence[Action], notes: Notes) -> list[Command]:
    """The commands for all actions, in the order in which they must happen.

    Fragments are held first, then leases are set, then fragments are asked to leave or put back,
    and only then are new ones released: killed anywhere, the rest is still safe. `notes` is what
    AdminComment says beside our mark, per fragment. The mark of a Notice is written by a SetMark.
    """
    done: list[Command] = []
    done += _scontrol(_holds(a for a in actions if isinstance(a, Hold)))
    done += _scontrol(_renewals(a for a in actions if isinstance(a, Renew)))
    marks = [a for a in actions if isinstance(a, SetMark)]
    done += _scontrol([_mark_line(a.fragment, a.mark, notes, a.summary) for a in marks])
    done += _signals([a.fragment for a in actions if isinstance(a, Notice)])
    done += _scontrol(_put_backs([a for a in actions if isinstance(a, PutBack)], notes))
    done += _cancels([f for a in actions if isinstance(a, Cancel) for f in a.fragments])
    done += _scontrol(_grows([a for a in actions if isinstance(a, Grow)], notes))
    return done


def _scontrol(lines: Sequence[Update]) -> list[Command]:
    """Lines for scontrol: the plain ones share a process, in order, up to the first other one."""
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
    if not lines:
        return []
    text = "".join(" ".join(line.words) + "\n" for line in lines)
    return [Command(("scontrol",), text, len(lines))]


def ranges(fragments: Iterable[FragmentId]) -> list[str]:
    """Fragments of one job as one word: `7_3`, or `7_[0-2,5]`."""
    by_job: dict[int, RangeSet] = {}
    for fragment in fragments:
        by_job.setdefault(fragment.job_id, RangeSet()).add(fragment.index)
    return [
        f"{job}_{found}" if len(found) == 1 else f"{job}_[{found}]"
        for job, found in sorted(by_job.items())
    ]


def _holds(actions: Iterable[Hold]) -> list[Update]:
    """As the user would: JobHeldAdmin is what an operator's own hold looks like."""
    return [Update(("uhold", word)) for word in ranges(a.fragment for a in actions)]


def _renewals(actions: Iterable[Renew]) -> list[Update]:
    """EndTime is set to the second, and all that end together share a line."""
    by_end: dict[int, list[FragmentId]] = {}
    for action in actions:
        by_end.setdefault(int(action.end.timestamp()), []).append(action.fragment)
    return [
        Update(("update", f"jobid={word}", f"EndTime=uts{end}"))
        for end, fragments in sorted(by_end.items())
        for word in ranges(fragments)
    ]


def _minutes(limit: timedelta) -> int:
    return int(limit.total_seconds() // 60)


def _comment(fragment: FragmentId, mark: Mark, notes: Notes, summary: str = "") -> str:
    text = format_mark(mark, notes.get(fragment, NO_NOTE), summary)
    return f"AdminComment={text}"


def _mark_line(fragment: FragmentId, mark: Mark, notes: Notes, summary: str = "") -> Update:
    return Update(("update", f"jobid={fragment}", _comment(fragment, mark, notes, summary)))


def _put_backs(actions: Sequence[PutBack], notes: Notes) -> list[Update]:
    """Not requeuehold: its "job requeued in held state" hides an operator's hold (22.05). What
    ended comes back with the reason of its end, which uhold replaces."""
    lines = []
    for action in actions:
        lines.append(Update(("requeue", str(action.fragment))))
        if action.is_ended and not action.is_paused:
            lines.append(Update(("uhold", str(action.fragment))))
        if action.mark is not None:
            lines.append(_mark_line(action.fragment, action.mark, notes))
    return lines


def _grows(actions: Sequence[Grow], notes: Notes) -> list[Update]:
    """Each fragment gets its node, then all of a job are released together: one by one they keep
    slurmctld from starting them. StartTime=now lifts the two minutes that Slurm makes a requeued
    job wait."""
    lines = []
    for action in actions:
        where = f"jobid={action.fragment}"
        limit = f"TimeLimit={_minutes(action.limit)}"
        comment = _comment(action.fragment, action.mark, notes)
        nodes = (f"ReqNodeList={fold(action.nodes)}", f"NumNodes={len(action.nodes)}")
        lines.append(Update(("update", where, *nodes, limit, "StartTime=now", comment)))
    return lines + [Update(("release", word)) for word in ranges(a.fragment for a in actions)]


_SCANCEL_THREADS = 10  # fragments that one scancel signals at a time
_PATIENCE_S = 2.0


def _signals(fragments: Sequence[FragmentId]) -> list[Command]:
    """SIGURG to every process of the fragments; the commands may run side by side.

    While two elements of the array are pending, slurmctld (22.05) delivers the signal and yet
    answers "Job can not be altered now", at which scancel sleeps and tries again for half a
    minute. So it is not waited for, and none gets more fragments than it signals at a time.
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
