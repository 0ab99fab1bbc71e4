"""The terms of our partitions: grace, exempt time and limits, from several places in Slurm.

The partition sets the grace. If QOS decide which jobs are preempted, the job's QOS sets it. The
exempt time comes from the partition's QOS, else from the job's QOS, else from slurm.conf. If both
QOS set an exempt time, the longer counts here: a flag of the job's QOS may reverse that order.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Callable, Optional

from slurm_hooks.errors import CommandRefused, MissingProgram, RetryLater
from slurm_hooks.model import Limit, Terms
from slurm_hooks.slurm.lanes import is_by_qos
from slurm_hooks.slurm.qos import qos_of_partition
from slurm_hooks.slurm.scontrol import Words
from slurm_hooks.slurm.text import Command, parse_limit

LONGEST = timedelta(days=365)
"""Stands for a time that cannot be read: then a fragment counts as not reclaimable."""

_NOTHING = timedelta(0)
_UNSET = frozenset(("", "NONE", "N/A", "-1", "INFINITE", "UNLIMITED"))  # so slurmctld reads them
_LIMITS = ("MaxTRESPU", "MaxTRESPA", "GrpTRES")
_FIELDS = ("Name", "GraceTime", "PreemptExemptTime", *_LIMITS)
_TAKEN = "taken as a year, so fragments keep away from nodes that planned jobs need"


@dataclass(frozen=True)
class ListedTerms:
    """The terms of a lane in scontrol's answer, and the QOS that may change its exempt time or its
    grace. `decide` makes the final Terms of it, from which model.lane.Lane derives leases."""

    terms: Terms
    exempt_by: tuple[str, ...] = ()
    grace_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class QosTerms:
    """The terms that a QOS sets. Without an exempt time the next place decides."""

    grace: timedelta
    exempt: Optional[timedelta]
    limits: tuple[Limit, ...] = ()


def terms_command() -> Command:
    """Ask for the terms of all QOS, by a single sacctmgr. Every user may ask. slurmctld has them
    too, but `scontrol show assoc_mgr` leaves them out (22.05 to 26.05)."""
    words = ("show", "qos", f"format={','.join(_FIELDS)}")
    return Command(("sacctmgr", "--noheader", "--parsable2", *words))


def lane_terms(
    lanes: Iterable[str], partitions: Iterable[Words], config: Words, *qos: str
) -> tuple[tuple[ListedTerms, ...], tuple[str, ...]]:
    """Return the terms of our partitions in scontrol's answer, and a line for each value that is
    not a time. Malleable jobs have one of the QOS `qos`, and an empty name is none."""
    unknown: list[str] = []
    names = frozenset(lanes)
    ours = [words for words in partitions if words["PartitionName"] in names]
    exempt = _span("slurm.conf: PreemptExemptTime", config.get("PreemptExemptTime", ""), unknown)
    by_qos, qos = is_by_qos(config), tuple(filter(None, qos))
    listed = [_lane(words, exempt or _NOTHING, by_qos, unknown) for words in ours]
    if config.get("AccountingStorageType") == "accounting_storage/slurmdbd":
        listed = [_with_qos(lane, words, qos, by_qos) for lane, words in zip(listed, ours)]
    return tuple(listed), tuple(unknown)


def _lane(words: Words, exempt: timedelta, by_qos: bool, unknown: list[str]) -> ListedTerms:
    name = words["PartitionName"]
    grace = _span(f"partition {name}: GraceTime", words.get("GraceTime", ""), unknown)
    most = _span(f"partition {name}: MaxTime", words.get("MaxTime", ""), unknown)
    return ListedTerms(Terms(name, _NOTHING if by_qos else grace or _NOTHING, exempt, most))


def _with_qos(lane: ListedTerms, words: Words, qos: tuple[str, ...], by_qos: bool) -> ListedTerms:
    given = tuple(filter(None, (qos_of_partition(words), *qos)))
    return replace(lane, exempt_by=given, grace_by=qos if by_qos else ())


def decide(
    lanes: tuple[ListedTerms, ...], read: Callable[[], str]
) -> tuple[tuple[Terms, ...], tuple[str, ...]]:
    """Return the final terms, and lines about unreadable values. `read` gives the answer to
    terms_command. It is called only if a QOS may change the terms."""
    if not any(lane.exempt_by or lane.grace_by for lane in lanes):
        return tuple(lane.terms for lane in lanes), ()
    unknown: list[str] = []
    try:
        rows, fault = _qos(read(), unknown), "sacctmgr listed no QOS"
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
    limits: dict[tuple[str, str], Limit] = {}  # the partition's QOS comes first, as in Slurm
    for limit in (each for name in lane.exempt_by if name in rows for each in rows[name].limits):
        limits.setdefault((limit.name, limit.tres), limit)
    graces = (rows[name].grace for name in lane.grace_by if name in rows)
    grace = max(graces, default=lane.terms.grace)
    return replace(lane.terms, grace=grace, exempt=exempt, limits=tuple(limits.values()))


def _qos(text: str, unknown: list[str]) -> dict[str, QosTerms]:
    rows = {}
    for line in text.splitlines():
        name, grace, exempt, *most = [*line.split("|"), "", ""][: len(_FIELDS)]
        rows[name] = QosTerms(
            _span(f"QOS {name}: GraceTime", grace, unknown) or _NOTHING,
            _span(f"QOS {name}: PreemptExemptTime", exempt, unknown),
            tuple(limit for row in zip(_LIMITS, most) for limit in _limits(name, *row)),
        )
    return rows


def _limits(qos: str, name: str, text: str) -> Iterator[Limit]:
    """Read `node=2,gres/gpu=8`. The planner counts nodes and GPUs, and Slurm counts the rest."""
    for word in text.split(","):
        tres, _, most = word.rpartition("=")
        if tres in ("node", "gres/gpu") and most.isdigit():
            yield Limit(qos, name, tres, int(most))


def _span(place: str, text: str, unknown: list[str]) -> Optional[timedelta]:
    """Read a time as slurmctld and sacctmgr print it, or None if it is not set."""
    if text.upper() in _UNSET:
        return None
    with contextlib.suppress(ValueError, OverflowError):
        span = parse_limit(text)
        if span is not None:
            return min(span, LONGEST)
    unknown.append(f"{place}={text[:40]}: not a time; {_TAKEN}")
    return LONGEST
