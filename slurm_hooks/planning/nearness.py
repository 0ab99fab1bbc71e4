"""Turns counts into nodes: a job gets them on as few switches as its count allows.

No count changes for it, and a node with a longer hole still comes first.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence, Sized
from typing import NamedTuple, Optional

from slurm_hooks.planning.node_classes import ClassKey, Pool, natural

_Kind = tuple[ClassKey, int]  # nodes of a class with so many free units


class Room(NamedTuple):
    """A wanted node: its class, its free units, and the units taken of it."""

    key: ClassKey
    free: int
    taken: int


def take_near(pool: Pool, rooms: Sequence[Room], own: Counter[str], together: int) -> list[str]:
    """Take a node from the pool for each room.

    `together` rooms in a row belong to the same fragment. Switches where the job has nodes (`own`)
    come first, then the switch with most of its count. Of equal switches, the switch with the
    fewest other units comes first.
    """
    names = [""] * len(rooms)
    wanted: dict[_Kind, deque[int]] = {}
    for index, room in enumerate(rooms):
        wanted.setdefault((room.key, room.free), deque()).append(index)
    for step in sorted({together, 1}, reverse=True):
        while best := _nearest(pool, wanted, own, step):
            switch, numbers = best
            for kind, number in numbers.items():
                for index in (wanted[kind].popleft() for _ in range(number)):
                    names[index] = pool.free[kind[0]].take(kind[1], rooms[index].taken, switch)
    return names


def _nearest(
    pool: Pool, wanted: Mapping[_Kind, Sized], own: Counter[str], step: int
) -> Optional[tuple[str, dict[_Kind, int]]]:
    """The switch to take nodes from, and how many of each kind. None if no step fits a switch."""
    there: dict[str, dict[_Kind, int]] = {}
    free: Counter[str] = Counter()
    for kind, indexes in wanted.items():
        key, units = kind
        for switch, number in pool.free[key].by_switch(units).items() if indexes else ():
            free[switch] += number * units
            if number >= step <= len(indexes):
                there.setdefault(switch, {})[kind] = min(number, len(indexes)) // step * step

    def rank(switch: str) -> tuple[int, int, int, tuple[tuple[int, int, str], ...], str]:
        units = sum(number * units for (_, units), number in there[switch].items())
        is_own = own[switch] if switch else 0
        return -is_own, -units, free[switch] - units, natural(switch), switch

    best = min(there, key=rank, default=None)
    return None if best is None else (best, there[best])
