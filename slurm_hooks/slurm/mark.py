"""The mark in AdminComment: `malleable{min=2,max=16,...}`, read and written.

Users cannot edit AdminComment, so the site has accepted its text. Text outside the braces belongs
to the site and is kept. plugins/lua/malleable_checks.lua writes the first version of the mark.
"""

from __future__ import annotations

import contextlib
import re
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Optional

from ClusterShell.NodeSet import NodeSetParseError

from slurm_hooks.model import AvoidedNode, Mark, Request, Slot
from slurm_hooks.model.moments import moment
from slurm_hooks.slurm.text import expand, fold
from slurm_hooks.words.engines import DEFAULT

MARK = "malleable{"  # the beginning of each mark
_MARK = re.compile(r"malleable\{([^{}]*)\}")
_PAIR = re.compile(r"([a-z]+)=([A-Za-z0-9_.:@+()-]+)")
_SUMMARY = re.compile(
    r" malleable: [0-9.]+ node-h, [0-9]+ interruptions, [0-9]+-[0-9]+ (?:node|GPU|task)s"
)
NO_NOTE = "\0"  # where the mark stood in the rest of the comment


@lru_cache(maxsize=1 << 16)  # most fragments share a mark, and had the same in the last tick
def parse_mark(comment: str) -> Optional[tuple[Mark, str]]:
    """Return the mark and the rest of the comment, or None if there is no mark.

    Raises ValueError if the mark cannot be read.
    """
    match = _MARK.search(comment)
    if not match:
        return None
    pairs = [_PAIR.fullmatch(part) for part in match.group(1).split(",")]
    if not all(pairs):
        raise ValueError(f"the mark {match.group(0)!r} is not a list of key=value")
    values = {pair.group(1): pair.group(2) for pair in pairs if pair}
    rest = comment[: match.start()] + NO_NOTE + comment[match.end() :]
    try:
        return _mark(values), rest
    except (OverflowError, OSError) as error:
        raise ValueError(f"the mark {match.group(0)!r} holds an impossible number") from error


def _mark(values: dict[str, str]) -> Mark:
    missing = {"min", "max", "frags", "lease", "hole"} - set(values)
    if missing:
        raise ValueError(f"the mark lacks {', '.join(sorted(missing))}")
    request = Request(
        min_nodes=int(values["min"]),
        max_nodes=int(values["max"]),
        fragments=int(values["frags"]),
        lease=timedelta(seconds=int(values["lease"])),
        shortest_hole=timedelta(seconds=int(values["hole"])),
        unit=int(values.get("unit", "1")),
        engine=values.get("engine", DEFAULT),
        traits=values.get("traits", ""),
        launch=values.get("launch", ""),
        name=values.get("name", ""),
        excluded=_excluded(values.get("not", "")),
        slot=_slot(values.get("slot", "")),
        core=int(values.get("core", "0")),
        ends_all=values.get("end", "") == "finish",
        lane=values.get("lane", ""),
        allowed=frozenset(int(n) for n in values.get("allow", "").split("+") if n),
        preferred=int(values.get("prefer", "0")),
        min_run=timedelta(seconds=int(values.get("keep", "0"))),
    )
    return Mark(
        request=request,
        released=_time(values.get("at")),
        run=int(values.get("run", "0")),
        noticed=_time(values.get("leave")),
        failures=int(values.get("fails", "0")),
        gone=int(values.get("gone", "0")),
        deaths=_avoided(values.get("avoid", "")),
        unfit=_avoided(values.get("unfit", "")),
        vain=int(values.get("vain", "0")),
        obstacle=values.get("why", ""),
        priority=int(values.get("prio", "0")),
        gave_way_to=values.get("for", ""),
        is_apart="apart" in values,
        is_on_hold="hold" in values,
        is_finished="done" in values,
        idle=_time(values.get("idle")),
        depended=_time(values.get("dep")),
        stopped=values.get("stop", ""),
        slots=int(values.get("slots", "0")),
        is_spent="spent" in values,
    )


_SLOT = re.compile(
    r"(?:(gpu(?::[\w.-]+)?)(?:\+|$))?(?:cpu:(\d{1,7})(?:\+|$))?(?:mem:(\d{1,12}))?", re.A
)


def _slot(text: str) -> Optional[Slot]:
    """Read `gpu:a100+cpu:8+mem:61440`. A resource that is not named is a share of the node."""
    match = _SLOT.fullmatch(text)
    if not text:
        return None
    if not match or text.endswith("+"):
        raise ValueError(f"slot {text!r} is not gpu, cpu and mem")
    gres, cpus, memory = match.groups()
    return Slot(gres or "", int(cpus or 0), int(memory or 0))


def _slot_text(slot: Optional[Slot]) -> str:
    if slot is None:
        return ""
    counts = (("cpu", slot.cpus), ("mem", slot.memory_mib))
    return "+".join(filter(None, (slot.gres, *(f"{name}:{n}" for name, n in counts if n))))


_NO_NODES = "-"
_WRITTEN, _MEANT = "(+)", "[,]"  # a host list, as commas and brackets cannot stand in a mark


@lru_cache(maxsize=1024)
def _excluded(text: str) -> Optional[frozenset[str]]:
    """Return the nodes of --exclude, or None if the mark has no list (too long) or an unreadable
    list.

    All marks of a job share the same set. For 10,000 nodes it takes 1.1 MiB and 9 ms.
    """
    if not text:
        return None
    with contextlib.suppress(NodeSetParseError):
        names = "" if text == _NO_NODES else text
        return expand(names.translate(str.maketrans(_WRITTEN, _MEANT)))
    return None


@lru_cache(maxsize=1024)
def _excluded_text(nodes: Optional[frozenset[str]]) -> str:
    if nodes is None:
        return ""
    return fold(nodes).translate(str.maketrans(_MEANT, _WRITTEN)) or _NO_NODES


def _avoided(text: str) -> tuple[AvoidedNode, ...]:
    """Read `n1@1700000000+n2@...`. A node without a time is not avoided."""
    pairs = (word.split("@") for word in text.split("+") if "@" in word)
    return tuple(sorted(AvoidedNode(name, _moment(since)) for name, since in pairs))


def _time(text: Optional[str]) -> Optional[datetime]:
    return _moment(text) if text else None


def _moment(text: str) -> datetime:
    return moment(int(text))


def format_mark(mark: Mark, rest: str = NO_NOTE, summary: str = "") -> str:
    """Return the comment with the mark in its place. `rest` comes from parse_mark."""
    rest = with_summary(rest, summary) if summary else rest
    request = mark.request
    pairs = {
        "min": request.min_nodes,
        "max": request.max_nodes,
        "unit": request.unit,
        "engine": request.engine,
        "traits": request.traits,
        "core": request.core or "",
        "end": "finish" if request.ends_all else "",
        "lane": request.lane,
        "launch": request.launch,
        "frags": request.fragments,
        "lease": int(request.lease.total_seconds()),
        "hole": int(request.shortest_hole.total_seconds()),
        "name": request.name,
        "not": _excluded_text(request.excluded),
        "slot": _slot_text(request.slot),
        "allow": "+".join(map(str, sorted(request.allowed))),
        "prefer": request.preferred or "",
        "keep": int(request.min_run.total_seconds()) or "",
        "at": _epoch(mark.released),
        "run": mark.run or "",
        "leave": _epoch(mark.noticed),
        "fails": mark.failures or "",
        "gone": mark.gone or "",
        "avoid": _avoided_text(mark.deaths),
        "unfit": _avoided_text(mark.unfit),
        "vain": mark.vain or "",
        "why": re.sub(r"[^A-Za-z0-9_]", "_", mark.obstacle)[:40],
        "prio": mark.priority or "",
        "for": mark.gave_way_to,
        "apart": 1 if mark.is_apart else "",
        "hold": 1 if mark.is_on_hold else "",
        "done": 1 if mark.is_finished else "",
        "idle": _epoch(mark.idle),
        "dep": _epoch(mark.depended),
        "stop": mark.stopped,
        "slots": mark.slots or "",
        "spent": 1 if mark.is_spent else "",
    }
    inner = ",".join(f"{key}={value}" for key, value in pairs.items() if value != "")
    return rest.replace(NO_NOTE, f"malleable{{{inner}}}", 1)


def _avoided_text(avoided: tuple[AvoidedNode, ...]) -> str:
    return "+".join(f"{a.node}@{int(a.since.timestamp())}" for a in sorted(avoided))


def _epoch(when: Optional[datetime]) -> object:
    return int(when.timestamp()) if when else ""


def with_summary(rest: str, summary: str) -> str:
    """Return the rest of a comment with this line at its end, in place of an older summary."""
    kept = _SUMMARY.sub("", rest)
    return f"{kept} {summary}" if summary else kept
