"""The site's rules as a Lua table, for the check that runs inside slurmctld.

job_submit may not start processes or read TOML, so the values are rendered once, here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from slurm_hooks.model import Slurm, Terms
from slurm_hooks.model.lane import Lane, strictest
from slurm_hooks.model.resources import GPU
from slurm_hooks.protocol.engines import ENGINES, LAUNCHERS, Engine, offered
from slurm_hooks.settings.values import Settings
from slurm_hooks.slurm.scontrol import Words
from slurm_hooks.slurm.text import parse_gres

HEADER = "-- Written by `malleable render lua`; edit malleable.toml and render again.\n"

Kinds = Mapping[str, Sequence[int]]
"""By `gpu` or `gpu:a100`: how many of these the nodes of a partition have, from few to many. Nodes
without any do not count."""


@dataclass(frozen=True)
class Submits:
    """Limits on submitted jobs, by QOS, for a `user`, an `account` or `all`. The limits of a
    partition's QOS count before the limits of the job's QOS, except for QOS in `over`."""

    of_qos: Mapping[str, Mapping[str, int]]
    qos_of_partition: Mapping[str, str]
    over: frozenset[str]


@dataclass(frozen=True)
class Largest:
    """The most CPUs and the most memory that any node of a partition has."""

    cpus: int
    memory_mib: int


NO_LIMITS = Submits({}, {}, frozenset())


@dataclass(frozen=True)
class Rules:
    """Slurm's limits on submissions, and for our partitions: their terms, the reasons why no
    malleable job can run in some of them or with the QOS for parts of nodes, the GPUs of their
    nodes, and the largest nodes. `users` are the uids of the names in site.users."""

    submits: Submits = NO_LIMITS
    terms: Sequence[Terms] = ()
    unfit: Mapping[str, str] = field(default_factory=dict)
    gpus: Mapping[str, Kinds] = field(default_factory=dict)
    largest: Mapping[str, Largest] = field(default_factory=dict)
    users: Mapping[str, int] = field(default_factory=dict)


NO_RULES = Rules()


def render_policy(
    settings: Settings, slurm: Slurm, operators: Mapping[str, int], rules: Rules = NO_RULES
) -> str:
    """Return the text of malleable_policy.lua. `operators` maps user names to uids."""
    request, lease = settings.request, settings.lease
    engines = offered(request.engines)
    site = settings.site
    parts_qos = site.parts_qos if slurm.preempts_by_qos else ""
    of_parts = {"parts_qos": parts_qos, "part_nodes": "" if site.parts_qos else site.part_nodes}
    names = {"qos": site.qos, "account": site.account, **of_parts}
    given = [f"{key} = {_text(name)}," for key, name in names.items() if name]
    notices = _notices(settings, rules.terms)
    if notices:
        given.append(f"notices = {notices},")
    if slurm.preempts_by_qos:
        given.append("by_qos = true,")
    submits = rules.submits
    if submits.of_qos:
        given.append(
            f"submit_limits = {_rows({q: _limits(each) for q, each in submits.of_qos.items()})},"
        )
        given.append(
            f"part_qos = {_rows({p: _text(q) for p, q in submits.qos_of_partition.items()})},"
        )
        given.append(f"over_qos = {_flags(dict.fromkeys(sorted(submits.over), True))},")
    if rules.gpus:
        gpus = {name: _kinds(kinds) for name, kinds in rules.gpus.items()}
        given.append(f"gpus = {_rows(gpus)},")
    if rules.largest:
        sizes = {
            name: f"{{cpus = {each.cpus}, memory = {each.memory_mib}}}"
            for name, each in rules.largest.items()
        }
        given.append(f"largest = {_rows(sizes)},")
    if site.users:
        given.append(f"users = {_uids(rules.users)},")
    lines = [
        f"partitions = {{{', '.join(_text(p) for p in site.partitions)}}},",
        f"unfit = {_rows({name: _text(why) for name, why in rules.unfit.items()})},",
        f"gres = {_text(_gres_prefix(slurm.version))},",
        f"operators = {_uids(operators)},",
        *given,
        f"engines = {_traits(engines.values())},",
        f"foreign = {_traits(row for name, row in engines.items() if name not in ENGINES)},",
        f"launchers = {_flags(dict.fromkeys(LAUNCHERS, True))},",
        f"max_fragments = {request.max_fragments},",
        f"max_workers = {request.max_workers},",
        f"max_nodes = {request.max_nodes},",
        f"max_array_size = {slurm.max_array_size},",
        f"lease_s = {lease.length_s},",
        f"hole_s = {lease.shortest_hole_s},",
        f"notice_s = {lease.notice_s},",
        f"farewell_s = {lease.farewell_s:g},",
        f"appends = {'true' if slurm.appends else 'false'},",
    ]
    return HEADER + "return {\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


def gpus_of(nodes: Iterable[Words], partitions: Iterable[str]) -> dict[str, Kinds]:
    """Return the GPUs of the nodes, which are Slurm's records, in each of these partitions that has
    any. A partition that is down counts too."""
    numbers: dict[str, dict[str, set[int]]] = {name: {} for name in partitions}
    for words in nodes:
        for name in numbers.keys() & words.get("Partitions", "").split(","):
            for kind, count in parse_gres(words.get("Gres", "")):
                if kind.partition(":")[0] == GPU and count:
                    numbers[name].setdefault(kind, set()).add(count)
    return {
        name: {kind: sorted(counts) for kind, counts in sorted(kinds.items())}
        for name, kinds in numbers.items()
        if kinds
    }


def largest_of(nodes: Iterable[Words], partitions: Iterable[str]) -> dict[str, Largest]:
    """Return the size of the largest node in each of these partitions that has nodes.

    `nodes` are Slurm's records of all nodes: without a record, a node could be larger.
    """
    largest: dict[str, Largest] = dict.fromkeys(partitions, Largest(0, 0))
    for words in nodes:
        for name in largest.keys() & words.get("Partitions", "").split(","):
            cpus, memory_mib = (int(words.get(key, "0")) for key in ("CPUTot", "RealMemory"))
            most = largest[name]
            largest[name] = Largest(max(most.cpus, cpus), max(most.memory_mib, memory_mib))
    return {name: each for name, each in largest.items() if each.cpus}


def _notices(settings: Settings, terms: Sequence[Terms]) -> str:
    """Return the notice in seconds of each partition whose grace makes it longer. A job with parts
    of nodes may be in any partition."""
    lanes = {t.partition: Lane(t, settings.lease) for t in terms}
    if settings.site.part_nodes in lanes:
        lanes[settings.site.part_nodes] = Lane(strictest(terms), settings.lease)
    longer = {p: lane.notice for p, lane in lanes.items() if lane.beyond}
    pairs = (f"[{_text(p)}] = {notice.total_seconds():.0f}" for p, notice in longer.items())
    return "{" + ", ".join(pairs) + "}" if longer else ""


def _gres_prefix(version: tuple[int, ...]) -> str:
    """Return the prefix of a GPU's name in a job, in the older form if the release is unknown."""
    return "gres/" if version >= (23,) else "gres:"


def _traits(rows: Iterable[Engine]) -> str:
    """Return the traits of each engine, which the plugin cannot know."""
    return _rows({row.name: _text(row.traits) for row in rows})


def _uids(users: Mapping[str, int]) -> str:
    return "{" + ", ".join(f"[{uid}] = true" for uid in sorted(set(users.values()))) + "}"


def _kinds(kinds: Kinds) -> str:
    return _rows({kind: f"{{{', '.join(map(str, counts))}}}" for kind, counts in kinds.items()})


def _limits(values: Mapping[str, int]) -> str:
    return "{" + ", ".join(f"{key} = {value}" for key, value in values.items()) + "}"


def _flags(values: Mapping[str, bool]) -> str:
    return _rows({key: "true" if on else "false" for key, on in values.items()})


def _rows(values: Mapping[str, str]) -> str:
    """Return a table with these names as keys. The values are already in Lua."""
    return "{" + ", ".join(f"[{_text(key)}] = {value}" for key, value in values.items()) + "}"


def _text(value: str) -> str:
    return json.dumps(
        value, ensure_ascii=False
    )  # a JSON string of plain characters is a Lua string
