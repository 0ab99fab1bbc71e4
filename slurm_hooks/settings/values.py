"""The site's settings: reads TOML into frozen sections and reports every fault at once.

The documented file is etc/malleable.toml. A test compares the two.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any

from slurm_hooks.errors import SettingsError
from slurm_hooks.protocol.engines import ENGINES, offered

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


LONGEST_NOTICE_S = 600
_INSTEAD = {
    "mode.users": "write users in the section [site]",
    "mode.accounts": "write AllowAccounts=NAME at a partition of malleable jobs only, with "
    "EnforcePartLimits=ANY in slurm.conf; in a partition of others name users in site.users",
    "mode.nodes": "write Nodes=NAMES at a partition of malleable jobs only, in slurm.conf",
    "mode.max_nodes_per_user": "run sacctmgr modify qos NAME set MaxTRESPU=node=N",
    "mode.max_nodes_per_account": "run sacctmgr modify qos NAME set MaxTRESPA=node=N",
    **dict.fromkeys(
        ("tick.wake", "tick.shortest_s", "tick.share"),
        "delete this line: ticks come every tick.every_s",
    ),
}
"""What to write instead of a key that an earlier version had."""


def _number(default: float, low: float, high: float = math.inf) -> Any:
    return field(default=default, metadata={"low": low, "high": high})


def _names(*default: str) -> Any:
    return field(default=default, metadata={"names": True})


def _names_or_none() -> Any:
    return field(default=(), metadata={"names": True, "may_be_empty": True})


def _choice(default: str, *choices: str) -> Any:
    return field(default=default, metadata={"choices": choices})


def _switch(default: bool) -> Any:
    return field(default=default, metadata={"switch": True})


def _word(default: str) -> Any:
    return field(default=default, metadata={"word": True})


@dataclass(frozen=True)
class Site:
    """The partitions of malleable jobs, the users that may change their fragments, and the users
    that may submit them: all, or only those that `users` names.

    `part_nodes` is the partition in which fragments take parts of nodes, or the QOS with which they
    do. If it is empty, fragments take whole nodes only.
    """

    partitions: tuple[str, ...] = _names("malleable")
    part_nodes: str = _word("")
    operators: tuple[str, ...] = _names("root", "slurm")
    users: tuple[str, ...] = _names_or_none()
    qos: str = _word("")
    account: str = _word("")

    @property
    def parts_qos(self) -> str:
        """The QOS for parts of nodes, empty if `part_nodes` is a partition."""
        return "" if self.part_nodes in self.partitions else self.part_nodes

    def qos_of(self, takes_parts: bool) -> tuple[str, ...]:
        """Each QOS that fragments of a job may get. Parts of nodes get either of two."""
        return tuple(filter(None, (self.qos, self.parts_qos if takes_parts else "")))


@dataclass(frozen=True)
class Mode:
    """The limits on a tick: its actions and its size.

    0 nodes is no limit. A share of 0 is refused, because it could also mean no node at all.
    """

    level: str = _choice("observe", "observe", "on")
    max_nodes: int = _number(0, 0, 1_000_000)
    max_share: float = _number(1.0, 0.001, 1)


@dataclass(frozen=True)
class RequestLimits:
    """The limits of a request."""

    max_fragments: int = _number(64, 1, 10_000)
    max_workers: int = _number(1000, 1, 65_535)
    max_nodes: int = _number(1024, 1, 65_535)
    engines: tuple[str, ...] = _names(*ENGINES)


@dataclass(frozen=True)
class Lease:
    """The time that a fragment may use a node before its lease must be renewed."""

    length_s: int = _number(600, 60, 86_400)
    shortest_hole_s: int = _number(120, 60, 86_400)
    margin_s: int = _number(60, 0, 3_600)
    notice_s: int = _number(20, 1, LONGEST_NOTICE_S)
    farewell_s: float = _number(2, 0, 60)
    start_timeout_s: int = _number(60, 5, 3_600)


@dataclass(frozen=True)
class Planning:
    """The weights of the allocator's choices."""

    objective: str = _word("speedup")
    horizon_s: float = _number(120, 1, 86_400)
    grow_s: float = _number(10, 0, 3_600)
    shrink_s: float = _number(5, 0, 3_600)
    snooze_s: float = _number(60, 0, 3_600)
    patience_s: float = _number(3_600, 0, 604_800)
    gang_wait_s: float = _number(300, 30, 86_400)
    loss_s: float = _number(600, 0, 86_400)
    headroom_nodes: int = _number(0, 0, 1_000_000)
    headroom_gpus: int = _number(2, 0, 1_000_000)
    solve_limit_s: float = _number(5, 0.1, 600)
    gap: float = _number(1e-3, 0, 0.5)


@dataclass(frozen=True)
class Failures:
    """When to stop a job that keeps dying, and to limit a job whose fragments do not meet."""

    limit: int = _number(3, 1, 1_000)
    avoid_s: int = _number(3_600, 0, 604_800)
    join_s: int = _number(60, 10, 3_600)


@dataclass(frozen=True)
class Tick:
    """The way in which the reconciler runs."""

    lock: str = field(default="/run/slurm-malleable/tick.lock", metadata={"path": True})
    every_s: float = _number(10, 1, 600)
    command_timeout_s: float = _number(10, 1, 300)
    slurm_bin: str = field(default="", metadata={"path": True})
    state_dir: str = field(default="/var/lib/slurm-malleable", metadata={"path": True})
    port: str = _choice("commands", "commands", "pyslurm")


@dataclass(frozen=True)
class Ledger:
    """The record of past ticks, for the report and the metrics."""

    enabled: bool = _switch(True)
    keep_days: float = _number(90, 1, 3_650)
    max_mib: int = _number(256, 4, 65_536)
    summary: bool = _switch(True)


@dataclass(frozen=True)
class Metrics:
    """The metrics for Prometheus."""

    textfile: str = field(default="", metadata={"path": True})
    by_user: bool = _switch(False)


@dataclass(frozen=True)
class Learn:
    """Whether ticks learn how jobs scale."""

    enabled: bool = _switch(True)


@dataclass(frozen=True)
class Settings:
    """All sections. `Settings()` has the shipped values."""

    site: Site = field(default_factory=Site)
    mode: Mode = field(default_factory=Mode)
    request: RequestLimits = field(default_factory=RequestLimits)
    lease: Lease = field(default_factory=Lease)
    plan: Planning = field(default_factory=Planning)
    failures: Failures = field(default_factory=Failures)
    tick: Tick = field(default_factory=Tick)
    ledger: Ledger = field(default_factory=Ledger)
    metrics: Metrics = field(default_factory=Metrics)
    learn: Learn = field(default_factory=Learn)


def parse(text: str, source: str = "settings") -> Settings:
    """Read settings from TOML text. Raises SettingsError with every fault, each with its key."""
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise SettingsError([f"{source}: not valid TOML: {error}"]) from error
    faults: list[str] = []
    sections: dict[str, Any] = {}
    known = {f.name: f for f in fields(Settings)}
    for name, value in data.items():
        if name not in known:
            faults.append(f"{source}: unknown section [{name}]; known: {', '.join(known)}")
        elif not isinstance(value, Mapping):
            faults.append(f"{source}: {name} = {value!r} is a key outside a section")
        else:
            section = known[name].default_factory
            sections[name] = _section(section, name, value, faults)
    settings = Settings(**{k: v for k, v in sections.items() if v is not None})
    faults += _contradictions(settings)
    if faults:
        raise SettingsError([_prefixed(source, fault) for fault in faults])
    return settings


def state_dir_in(text: str) -> str:
    """Return `tick.state_dir` of a text whose other keys may be wrong. Raises ValueError if it is
    not TOML."""
    section = tomllib.loads(text).get("tick")
    path = section.get("state_dir") if isinstance(section, Mapping) else None
    is_path = isinstance(path, str) and path.startswith("/")
    return str(path) if is_path else Tick().state_dir


def _prefixed(source: str, fault: str) -> str:
    return fault if fault.startswith(source) else f"{source}: {fault}"


def _section(kind: Any, name: str, data: Mapping[str, Any], faults: list[str]) -> Any:
    known = {f.name: f for f in fields(kind)}
    values = {}
    before = len(faults)
    for key, value in data.items():
        if key not in known:
            hint = _INSTEAD.get(f"{name}.{key}") or f"known: {', '.join(known)}"
            faults.append(f"unknown key {name}.{key}; {hint}")
            continue
        fault = _fault(known[key], value)
        if fault:
            faults.append(f"{name}.{key} = {value!r}: {fault}")
        values[key] = tuple(value) if isinstance(value, list) else value
    return kind(**values) if len(faults) == before else None


def _fault(spec: Field[Any], value: Any) -> str:
    """The fault of a value, in words that name the allowed values. Empty if there is no fault."""
    meta = spec.metadata
    if "low" in meta:
        return _number_fault(spec, value)
    if "names" in meta:
        is_names = isinstance(value, list) and all(isinstance(v, str) and v for v in value)
        if meta.get("may_be_empty"):
            return "" if is_names else "must be a list of names"
        return "" if is_names and value else "must be a list of at least one name"
    if "word" in meta:
        is_word = isinstance(value, str) and re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]{0,63}", value)
        is_fine = is_word or value == spec.default
        return "" if is_fine else "must be a name of letters, digits and any of _ . -"
    if "switch" in meta:
        return "" if isinstance(value, bool) else "must be true or false"
    if "choices" in meta:
        return "" if value in meta["choices"] else f"must be one of {', '.join(meta['choices'])}"
    may_be_empty = spec.default == ""
    if not isinstance(value, str) or not (value.startswith("/") or (may_be_empty and not value)):
        return "must be an absolute path"
    return ""


def _number_fault(spec: Field[Any], value: Any) -> str:
    low, high = spec.metadata["low"], spec.metadata["high"]
    whole = "int" in str(spec.type)
    kind = "a whole number" if whole else "a number"
    allowed = f"{kind} from {low:g} to {high:g}" if high < math.inf else f"{kind} from {low:g}"
    is_kind = isinstance(value, int) or (isinstance(value, float) and not whole)
    if isinstance(value, bool) or not is_kind or not low <= value <= high:
        return f"must be {allowed}"
    return ""


def _contradictions(settings: Settings) -> list[str]:
    """Return faults of keys that are valid alone but not together."""
    lease = settings.lease
    faults = []
    if lease.shortest_hole_s > lease.length_s:
        faults.append(
            f"lease.shortest_hole_s = {lease.shortest_hole_s}: "
            f"must not be longer than lease.length_s = {lease.length_s}"
        )
    if lease.notice_s >= lease.length_s:
        faults.append(
            f"lease.notice_s = {lease.notice_s}: "
            f"must be shorter than lease.length_s = {lease.length_s}"
        )
    lead_s = lease.notice_s + settings.tick.every_s
    if lease.shortest_hole_s <= lead_s:
        faults.append(
            f"lease.shortest_hole_s = {lease.shortest_hole_s}: must be longer than "
            f"lease.notice_s + tick.every_s = {lead_s:g}; otherwise a fragment would have to leave "
            "as soon as it starts"
        )
    try:
        offered(settings.request.engines)
    except ValueError as error:
        faults.append(f"request.engines: {error}")
    site = settings.site
    whole = (site.partitions[0], site.qos)  # a lane for parts is a second one
    if site.part_nodes and (site.part_nodes in whole or (site.parts_qos and not site.qos)):
        faults.append(
            f'site.part_nodes = "{site.part_nodes}": must be in site.partitions, but not the '
            "first, which is for whole nodes; add a second partition with a lower PriorityTier, or "
            "with preempt/qos name a second QOS beside site.qos (see Shared nodes in the "
            "administrators' pages)"
        )
    return faults
