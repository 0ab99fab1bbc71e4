"""The terms of our partitions: grace, exempt time and limit, as Slurm says them in several places.

The grace is that of the partition, or of the job's QOS where QOS decide who is preempted. The
exempt time is that of the partition's QOS, else of the job's own, else of slurm.conf. Where both
QOS set one, the longer counts here: a flag of the job's QOS may turn that order around.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Callable, Optional

from slurm_hooks.errors import CommandRefused, MissingProgram, RetryLater
from slurm_hooks.model import Terms
from slurm_hooks.slurm.lanes import is_by_qos
from slurm_hooks.slurm.qos import qos_of_partition
from slurm_hooks.slurm.scontrol import Words
from slurm_hooks.slurm.text import Command, parse_limit

LONGEST = timedelta(days=365)
"""Stands for what cannot be read: then a fragment counts as not reclaimable."""

_NOTHING = timedelta(0)
_UNSET = frozenset(("", "NONE", "N/A", "-1", "INFINITE", "UNLIMITED"))  # so slurmctld reads them
_FIELDS = ("Name", "GraceTime", "PreemptExemptTime")
_TAKEN = "taken as a year, so fragments keep away from nodes that planned jobs need"


@dataclass(frozen=True)
class ListedTerms:
    """The terms of a partition without regard to QOS, and the QOS that have a say: in its exempt
    time, and in its grace if one does."""

    terms: Terms
    exempt_by: tuple[str, ...] = ()
    grace_by: str = ""


@dataclass(frozen=True)
class QosTerms:
    """The terms that a QOS sets; no exempt time leaves the word to the next."""

    grace: timedelta
    exempt: Optional[timedelta]


def terms_command() -> Command:
    """The terms of all QOS, by one sacctmgr; every user may ask. slurmctld has them too, and no
    command prints them: `scontrol show assoc_mgr` leaves them out (22.05 to 26.05)."""
    asked = ("show", "qos", f"format={','.join(_FIELDS)}")
    return Command(("sacctmgr", "--noheader", "--parsable2", *asked))


def lane_terms(
    lanes: Iterable[str], partitions: Iterable[Words], config: Words, qos: str
) -> tuple[tuple[ListedTerms, ...], tuple[str, ...]]:
    """What scontrol says of our partitions, and a line for each value that is no time. `qos` is
    that of malleable jobs."""
    unknown: list[str] = []
    names = frozenset(lanes)
    ours = [words for words in partitions if words["PartitionName"] in names]
    exempt = _span("slurm.conf: PreemptExemptTime", config.get("PreemptExemptTime", ""), unknown)
    by_qos = is_by_qos(config)
    found = [_lane(words, exempt or _NOTHING, by_qos, unknown) for words in ours]
    if config.get("AccountingStorageType") == "accounting_storage/slurmdbd":
        found = [_with_qos(lane, words, qos, by_qos) for lane, words in zip(found, ours)]
    return tuple(found), tuple(unknown)


def _lane(words: Words, exempt: timedelta, by_qos: bool, unknown: list[str]) -> ListedTerms:
    name = words["PartitionName"]
    grace = _span(f"partition {name}: GraceTime", words.get("GraceTime", ""), unknown)
    most = _span(f"partition {name}: MaxTime", words.get("MaxTime", ""), unknown)
    return ListedTerms(Terms(name, _NOTHING if by_qos else grace or _NOTHING, exempt, most))


def _with_qos(lane: ListedTerms, words: Words, qos: str, by_qos: bool) -> ListedTerms:
    given = tuple(filter(None, (qos_of_partition(words), qos)))
    return replace(lane, exempt_by=given, grace_by=qos if by_qos else "")


def decide(
    lanes: tuple[ListedTerms, ...], read: Callable[[], str]
) -> tuple[tuple[Terms, ...], tuple[str, ...]]:
    """The terms that hold, and lines about what was not understood. `read` gives the answer to
    terms_command, and is called only where a QOS has a say."""
    if not any(lane.exempt_by or lane.grace_by for lane in lanes):
        return tuple(lane.terms for lane in lanes), ()
    unknown: list[str] = []
    try:
        rows, fault = _qos(read(), unknown), "sacctmgr named none"
    except (CommandRefused, RetryLater, MissingProgram) as error:
        rows, fault = {}, str(error)
    if not rows:
        unread = (f"the terms of QOS were not read: {fault}; {_TAKEN}",)
        worst = (replace(lane.terms, grace=LONGEST, exempt=LONGEST) for lane in lanes)
        return tuple(worst), unread
    return tuple(_decided(lane, rows) for lane in lanes), tuple(unknown)


def _decided(lane: ListedTerms, rows: Mapping[str, QosTerms]) -> Terms:
    set_by_qos = (rows[name].exempt for name in lane.exempt_by if name in rows)
    exempt = max((e for e in set_by_qos if e is not None), default=lane.terms.exempt)
    row = rows.get(lane.grace_by)
    return replace(lane.terms, grace=row.grace if row else lane.terms.grace, exempt=exempt)


def _qos(text: str, unknown: list[str]) -> dict[str, QosTerms]:
    found = {}
    for line in text.splitlines():
        name, grace, exempt = [*line.split("|"), "", ""][: len(_FIELDS)]
        found[name] = QosTerms(
            _span(f"QOS {name}: GraceTime", grace, unknown) or _NOTHING,
            _span(f"QOS {name}: PreemptExemptTime", exempt, unknown),
        )
    return found


def _span(what: str, text: str, unknown: list[str]) -> Optional[timedelta]:
    """A time as slurmctld and sacctmgr print it; None if it is not set."""
    if text.upper() in _UNSET:
        return None
    with contextlib.suppress(ValueError, OverflowError):
        found = parse_limit(text)
        if found is not None:
            return min(found, LONGEST)
    unknown.append(f"{what}={text[:40]}: not a time; {_TAKEN}")
    return LONGEST
