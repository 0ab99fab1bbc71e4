"""Writes intents to Slurm, and starts no part of a gang that could not train.

If Slurm refuses a line, scontrol obeys the others and names the fragments of the refused line. So a
second command without those fragments is taken. The names are only a hint: nothing is released
before Slurm has taken every line of a command.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain, groupby

from ClusterShell.RangeSet import RangeSet, RangeSetException

from slurm_hooks.errors import CommandRefused
from slurm_hooks.model import (
    NOT_MOVED,
    REFUSED,
    FragmentId,
    Intent,
    Snapshot,
    Verb,
    Why,
    by_job,
    may_train,
)
from slurm_hooks.slurm.actions import AT_A_TIME, Notes, commands, groups, starts
from slurm_hooks.slurm.live import Port
from slurm_hooks.slurm.text import AllBut, Command

AT_ONCE = 32  # commands that run side by side
MADE_ALL_THE_SAME = "Requested partition configuration not available now"
"""Slurm's answer to a change of a job in an INACTIVE partition: it makes the change (22.05)."""
_TRIES = 8  # of a tick, to find refused lines
_NAMED = re.compile(r"\b(\d{1,10})_\[?(\d[\d,-]{0,999})\]?: (?!No error)", re.ASCII)

Write = Callable[[Iterable[Command]], list[CommandRefused]]


def apply(
    port: Port, seen: Snapshot, intents: Sequence[Intent], announce: Callable[[str], None]
) -> list[str]:
    """Write all intents. Return a line for each command that Slurm refused. The rest is written.

    `announce` is called before each command with its text, for progress and for tests that stop
    between any two writes. Raises RetryLater if Slurm stops answering. The next tick continues.
    """

    def write(some: Iterable[Command]) -> list[CommandRefused]:
        return list(_write(port, some, announce))

    notes = {f.id: f.note for job in seen.jobs for f in job.fragments}
    others = [i for i in intents if i.verb is not Verb.GROW]
    written = commands(others, notes)
    faults = write(c for c in written if not c.patience_s)
    vain = _not_moved(seen, others, faults)
    faults = [f for f in faults if vain or not _is_made(f)]
    faults += write(commands(vain, notes))
    if len(others) < len(intents):
        faults += _Starts(write, seen, intents, notes).run()
    faults += write(c for c in written if c.patience_s)
    return [str(fault) for fault in faults]


def _is_made(fault: CommandRefused) -> bool:
    return all(line.endswith(MADE_ALL_THE_SAME) for line in fault.said.splitlines())


@dataclass
class _Starts:
    """The starts among the intents of a tick."""

    write: Write
    seen: Snapshot
    intents: Sequence[Intent]
    notes: Notes
    tries: Iterator[int] = field(default_factory=lambda: iter(range(_TRIES)))
    faults: list[CommandRefused] = field(default_factory=list)

    def __post_init__(self) -> None:
        fragments = [f for job in self.seen.jobs for f in job.fragments]
        self.jobs = {job.job_id: job for job in self.seen.jobs}
        self.tied = frozenset(f.id for f in fragments if f.is_tied)
        self.machine = AllBut((*(node.name for node in self.seen.nodes), *self.seen.hidden))
        self.of_job = by_job(self.intents)

    def run(self) -> list[CommandRefused]:
        """Release each batch at once, in case the next is too late. Return the refusals.

        A refused release counts as a release in vain: the next tick would be refused too.
        """
        vain: list[Intent] = []
        for batch in self._batches():
            bad = self._refused(batch)
            for job_id in {fragment.job_id for fragment in bad}:
                bad |= self._too_few(job_id, bad)
            taken = [i for i in batch if i.fragment not in bad]
            self.faults += self.write(self._commands(taken)[-1:] if taken else ())
            vain += (self._in_vain(i) for i in batch if i.fragment in bad)
        return [*self.faults, *self.write(commands(vain, self.notes))]

    def _batches(self) -> Iterator[list[Intent]]:
        """Yield batches of about AT_A_TIME lines. A gang is not split."""
        batch: list[Sequence[Intent]] = []
        for job in self.seen.jobs:
            mine = groups(self._grows(job.job_id), self.notes, self.tied)
            most = max(len(mine), 1) if job.way.needs_min else AT_A_TIME
            for first in range(0, len(mine), most):
                part = mine[first : first + most]
                if batch and len(batch) + len(part) > AT_A_TIME:
                    yield list(chain(*batch))
                    batch = []
                batch += part
        if batch:
            yield list(chain(*batch))

    def _grows(self, job_id: int) -> list[Intent]:
        return [i for i in self.of_job.get(job_id, ()) if i.verb is Verb.GROW]

    def _refused(self, batch: Sequence[Intent]) -> set[FragmentId]:
        """Send the updates of a batch. Return the fragments that Slurm does not give their nodes.

        If Slurm names no fragment, each half is tried separately.
        """
        faults = self.write(self._commands(batch)[:-1])
        if not faults:
            return set()
        self.faults += faults
        named = {fragment for fault in faults for fragment in _named(fault.said)}
        bad = {i.fragment for i in batch if i.fragment in named}
        rest = groups((i for i in batch if i.fragment not in named), self.notes, self.tied)
        if not bad and len(rest) == 1:
            return {i.fragment for i in batch}
        half = 0 if bad else len(rest) // 2
        for part in filter(None, (rest[:half], rest[half:])):
            again = list(chain(*part))
            is_tried = next(self.tries, None) is not None
            bad |= self._refused(again) if is_tried else {i.fragment for i in again}
        return bad

    def _too_few(self, job_id: int, bad: Collection[FragmentId]) -> set[FragmentId]:
        """The starts of a job, if it could not train with those that are not `bad`."""
        job, intents = self.jobs[job_id], self.of_job[job_id]
        if may_train(job, (i for i in intents if i.fragment not in bad)):
            return set()
        return {i.fragment for i in self._grows(job_id)}

    def _commands(self, grows: Sequence[Intent]) -> list[Command]:
        return starts(grows, self.notes, self.machine, self.tied)

    def _in_vain(self, grow: Intent) -> Intent:
        assert grow.mark is not None, "every start has a mark"
        mark = grow.mark.in_vain(self.seen.now, REFUSED)
        return Intent(grow.fragment, Why.NOT_STARTED, mark=mark)


def _not_moved(
    seen: Snapshot, intents: Iterable[Intent], faults: Iterable[CommandRefused]
) -> list[Intent]:
    """Notes on the fragments that Slurm did not move to their lane."""
    named = {fragment for fault in faults for fragment in _named(fault.said)}
    refused = {i.fragment for i in intents if i.is_moved and i.fragment in named}
    fragments = (f for job in seen.jobs for f in job.fragments if f.id in refused)
    return [Intent(f.id, Why.TO_LANE, mark=f.mark.in_vain(seen.now, NOT_MOVED)) for f in fragments]


def _named(said: str) -> Iterator[FragmentId]:
    """Yield the fragments in scontrol's refusals: `7_0: Invalid ...`, `7_2-3,5: Invalid ...`."""
    for job_id, indices in _NAMED.findall(said):
        with contextlib.suppress(RangeSetException):
            yield from (FragmentId(int(job_id), int(i)) for i in RangeSet(indices))


def _write(
    port: Port, written: Iterable[Command], announce: Callable[[str], None]
) -> Iterator[CommandRefused]:
    """Run commands in order. Yield the refusals."""
    for is_quick, group in groupby(written, lambda c: c.patience_s > 0):
        batch = list(group)
        for command in batch:
            announce(" ".join(command.argv))
            if not is_quick:
                try:
                    port.ask(command)
                except CommandRefused as error:
                    yield error
        if is_quick:
            _ask_together(port, batch)


def _ask_together(port: Port, batch: Sequence[Command]) -> None:
    """Run commands side by side, within bounds. Their answers do not matter."""
    if len(batch) == 1:
        port.ask(batch[0])
        return
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        for _ in pool.map(port.ask, batch):
            pass
