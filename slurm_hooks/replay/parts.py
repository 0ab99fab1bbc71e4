"""Idle GPUs and CPUs by place: on idle nodes, on partly used nodes, or stranded.

If the sizes of nodes are unknown, the most that jobs had of a node at once counts as its size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from slurm_hooks.model.resources import GPU, NO_RESOURCES, Resources
from slurm_hooks.model.unused import amount, usable
from slurm_hooks.replay.record import Record, Use

LONG_S = 3600.0
SEVERAL = (2, 4)
"""For jobs that cannot use a single GPU."""


@dataclass
class Idle:
    """Seconds of a resource, such as GPU-seconds: all, and idle by place.

    Of `part_s`, `long_s` are in holes of an hour or more, and `beside_s[n]` on nodes with n or more
    free. A hole lasts while its number of GPUs or CPUs is free on the node.
    """

    all_s: float = 0.0
    on_idle_s: float = 0.0
    part_s: float = 0.0
    stranded_s: float = 0.0
    long_s: float = 0.0
    beside_s: dict[int, float] = field(default_factory=lambda: dict.fromkeys(SEVERAL, 0.0))

    @property
    def idle_s(self) -> float:
        """The sum of all idle seconds."""
        return self.on_idle_s + self.part_s + self.stranded_s

    def part_share(self, seconds: float) -> float:
        """These seconds as a share of the idle seconds on partly used nodes."""
        return seconds / self.part_s if self.part_s else 0.0


@dataclass(frozen=True)
class _Stretch:
    """A time without a change on a node: its number of jobs, and the resources that they have."""

    start_s: float
    end_s: float
    jobs: int
    used: Resources

    @property
    def length_s(self) -> float:
        """Its length."""
        return self.end_s - self.start_s


def by_node(uses: Iterable[Use]) -> dict[int, list[Use]]:
    """The uses of each node."""
    nodes: dict[int, list[Use]] = {}
    for use in uses:
        nodes.setdefault(use.node, []).append(use)
    return nodes


def size_of(uses: Sequence[Use]) -> Resources:
    """The most that jobs had of a node at once."""
    size = NO_RESOURCES
    for stretch in _stretches(uses, float("-inf"), float("inf")):
        size = _most(size, stretch.used)
    return size


def _most(one: Resources, other: Resources) -> Resources:
    gpus = max(one.gpus, other.gpus)
    cpus, memory = max(one.cpus, other.cpus), max(one.memory_mib, other.memory_mib)
    return Resources(cpus, memory, ((GPU, gpus),) if gpus else ())


def idle_parts(record: Record, name: str) -> Idle:
    """The idle GPUs or CPUs on all nodes of the record with a known size."""
    total, uses = Idle(), by_node(record.uses)
    for node, size in sizes_of(record).items():
        stretches = _stretches(uses.get(node, []), record.from_s, record.to_s)
        _add_node(total, name, size, tuple(stretches))
    return total


def sizes_of(record: Record) -> dict[int, Resources]:
    """The sizes in the record, or the sizes guessed from jobs."""
    if record.sizes:
        return dict(enumerate(record.sizes))
    return {node: size_of(uses) for node, uses in by_node(record.uses).items()}


def _add_node(total: Idle, name: str, size: Resources, stretches: Sequence[_Stretch]) -> None:
    holes = _Holes()
    for stretch in stretches:
        free, s = size - stretch.used, stretch.length_s
        there = amount(name, free)
        to_have = usable(name, free, size) if stretch.jobs else there
        holes.change(to_have, stretch.start_s)
        total.all_s += amount(name, size) * s
        if not stretch.jobs:
            total.on_idle_s += there * s
            continue
        holes.part_s += s
        total.part_s += to_have * s
        total.stranded_s += (there - to_have) * s
        for least in SEVERAL:
            total.beside_s[least] += to_have * s if to_have >= least else 0.0
    holes.change(0, stretches[-1].end_s)
    total.long_s += holes.long_s


class _Holes:
    """The holes of a node, a hole for each free GPU or CPU: the newest holes close first.

    `part_s` is the time in which the node was partly used so far, `long_s` the part of that time in
    holes of an hour or more.
    """

    def __init__(self) -> None:
        self.part_s = self.long_s = 0.0
        self._open: list[tuple[int, float, float]] = []  # how many, since when, and `part_s` then
        self._count = 0

    def change(self, count: int, now: float) -> None:
        """Set the number that is free from now on."""
        if count > self._count:
            self._open.append((count - self._count, now, self.part_s))
        while self._count > count:
            many, since, part_s = self._open.pop()
            closed = min(many, self._count - count)
            if many > closed:
                self._open.append((many - closed, since, part_s))
            self._count -= closed
            self.long_s += closed * (self.part_s - part_s) if now - since >= LONG_S else 0.0
        self._count = count


def _stretches(uses: Sequence[Use], from_s: float, to_s: float) -> Iterator[_Stretch]:
    """The time from `from_s` to `to_s` on a node. At a moment jobs end before others start."""
    changes = [(use.start_s, 1, use.taken) for use in uses]
    changes += [(use.end_s, -1, use.taken) for use in uses]
    at, jobs, used = from_s, 0, NO_RESOURCES
    for moment, step, taken in sorted(changes, key=lambda change: change[:2]):
        now = min(max(moment, from_s), to_s)
        if now > at:
            yield _Stretch(at, now, jobs, used)
            at = now
        jobs += step
        used = used + taken if step > 0 else used - taken
    if at < to_s:
        yield _Stretch(at, to_s, jobs, used)
