"""The mark in AdminComment: `malleable{min=2,max=16,...}`, read and written.

Users cannot edit AdminComment, so the site has accepted its text. Text outside the braces belongs
to the site and is kept. plugins/lua/malleable_checks.lua writes the first version of the mark.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple, Optional

from ClusterShell.NodeSet import NodeSetParseError

from slurm_hooks.model import AvoidedNode, Mark, Request, Slot
from slurm_hooks.model.moments import moment
from slurm_hooks.slurm.text import expand, fold

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
    return Mark(Request(**_fields(_REQUEST, values)), **_fields(_NOTES, values))


def _fields(table: _Table, values: dict[str, str]) -> dict[str, Any]:
    return {name: form.read(values[key]) for key, name, form in table if key in values}


_SLOT = re.compile(
    r"(?:(gpu(?::[\w.-]+)?)(?:\+|$))?(?:cpu:(\d{1,7})(?:\+|$))?(?:mem:(\d{1,12}))?", re.A
)


def _slot(text: str) -> Slot:
    """Read `gpu:a100+cpu:8+mem:61440`. A resource that is not named is a share of the node."""
    match = _SLOT.fullmatch(text)
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
    with contextlib.suppress(NodeSetParseError):
        names = "" if text == _NO_NODES else text
        return expand(names.translate(str.maketrans(_WRITTEN, _MEANT)))
    return None


@lru_cache(maxsize=1024)
def _excluded_text(nodes: Optional[frozenset[str]]) -> str:
    if nodes is None:
        return ""
    return fold(nodes).translate(str.maketrans(_MEANT, _WRITTEN)) or _NO_NODES


def _sizes(text: str) -> frozenset[int]:
    return frozenset(int(n) for n in text.split("+") if n)


def _avoided(text: str) -> tuple[AvoidedNode, ...]:
    """Read `n1@1700000000+n2@...`. A node without a time is not avoided."""
    pairs = (word.split("@") for word in text.split("+") if "@" in word)
    return tuple(sorted(AvoidedNode(name, _moment(since)) for name, since in pairs))


def _avoided_text(avoided: tuple[AvoidedNode, ...]) -> str:
    return "+".join(f"{a.node}@{int(a.since.timestamp())}" for a in sorted(avoided))


def _moment(text: str) -> datetime:
    return moment(int(text))


class _Form(NamedTuple):
    """How a value stands in the mark. A value that is written as "" has no entry."""

    read: Callable[[str], Any] = str
    write: Callable[[Any], object] = str


def _seconds(text: str) -> timedelta:
    return timedelta(seconds=int(text))


def _whole_s(span: timedelta) -> int:
    return int(span.total_seconds())


_TEXT, _NUMBER, _SPAN = _Form(), _Form(int), _Form(_seconds, _whole_s)
_COUNT = _Form(int, lambda count: count or "")
_TIME = _Form(_moment, lambda when: int(when.timestamp()) if when else "")
_FLAG = _Form(lambda _: True, lambda flag: 1 if flag else "")
_NODES = _Form(_avoided, _avoided_text)
_Table = tuple[tuple[str, str, _Form], ...]
_REQUEST: _Table = (  # key in the mark, field of the Request, form
    ("min", "min_nodes", _NUMBER),
    ("max", "max_nodes", _NUMBER),
    ("unit", "unit", _NUMBER),
    ("engine", "engine", _TEXT),
    ("traits", "traits", _TEXT),
    ("core", "core", _COUNT),
    ("end", "ends_all", _Form(lambda text: text == "finish", lambda all_: "finish" * all_)),
    ("lane", "lane", _TEXT),
    ("launch", "launch", _TEXT),
    ("frags", "fragments", _NUMBER),
    ("lease", "lease", _SPAN),
    ("hole", "shortest_hole", _SPAN),
    ("name", "name", _TEXT),
    ("not", "excluded", _Form(_excluded, _excluded_text)),
    ("slot", "slot", _Form(_slot, _slot_text)),
    ("allow", "allowed", _Form(_sizes, lambda sizes: "+".join(map(str, sorted(sizes))))),
    ("prefer", "preferred", _COUNT),
    ("keep", "min_run", _Form(_seconds, lambda span: _whole_s(span) or "")),
)
_NOTES: _Table = (  # key in the mark, field of the Mark, form
    ("at", "released", _TIME),
    ("run", "run", _COUNT),
    ("leave", "noticed", _TIME),
    ("fails", "failures", _COUNT),
    ("gone", "gone", _COUNT),
    ("avoid", "deaths", _NODES),
    ("unfit", "unfit", _NODES),
    ("vain", "vain", _COUNT),
    ("why", "obstacle", _Form(str, lambda text: re.sub(r"[^A-Za-z0-9_]", "_", text)[:40])),
    ("prio", "priority", _COUNT),
    ("for", "gave_way_to", _TEXT),
    ("apart", "is_apart", _FLAG),
    ("hold", "is_on_hold", _FLAG),
    ("done", "is_finished", _FLAG),
    ("idle", "idle", _TIME),
    ("dep", "depended", _TIME),
    ("stop", "stopped", _TEXT),
    ("slots", "slots", _COUNT),
    ("qos", "qos", _TEXT),
    ("spent", "is_spent", _FLAG),
)


def format_mark(mark: Mark, rest: str = NO_NOTE, summary: str = "") -> str:
    """Return the comment with the mark in its place. `rest` comes from parse_mark."""
    rest = with_summary(rest, summary) if summary else rest
    tables: tuple[tuple[object, _Table], ...] = (mark.request, _REQUEST), (mark, _NOTES)
    inner = ",".join(
        f"{key}={text}"
        for of, table in tables
        for key, name, (_, write) in table
        if (text := write(getattr(of, name))) != ""
    )
    return rest.replace(NO_NOTE, f"malleable{{{inner}}}", 1)


def with_summary(rest: str, summary: str) -> str:
    """Return the rest of a comment with this line at its end, in place of an older summary."""
    kept = _SUMMARY.sub("", rest)
    return f"{kept} {summary}" if summary else kept
