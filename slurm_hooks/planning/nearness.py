"""Turns counts into nodes: a job gets them on as few switches as its count allows.

No count changes for it, and a node with a longer hole still comes first.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from slurm_hooks.planning.node_classes import ClassKey, Pool, natural

_Kind = tuple[ClassKey, int]  # nodes of a class with so many free units
_Rank = tuple[int, int, int, tuple[tuple[int, int, str], ...], str]


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
    search = _Search(pool, rooms, own)
    for step in sorted({together, 1}, reverse=True):
        while search.take_longest(step):
            pass
    return search.names


class _Search:
    def __init__(self, pool: Pool, rooms: Sequence[Room], own: Counter[str]) -> None:
        self.names = [""] * len(rooms)
        self._pool, self._rooms, self._own = pool, rooms, own
        self._wanted: dict[_Kind, deque[int]] = {}
        for index, room in enumerate(rooms):
            self._wanted.setdefault((room.key, room.free), deque()).append(index)

    def take_longest(self, step: int) -> bool:
        """Take the wanted nodes that have the longest holes. Tell whether there were any."""
        there = self._on_switches()
        ranks = [self._rank(switch, there[switch], step) for switch in there]
        heapify(ranks)
        is_any = False
        while ranks:  # a switch only falls while others are taken, so check the first again
            switch = heappop(ranks)[-1]
            rank = self._rank(switch, there[switch], step)
            if ranks and rank > ranks[0]:
                heappush(ranks, rank)
            elif rank[1]:
                self._take(switch, there[switch], step)
                is_any = True
        return is_any

    def _on_switches(self) -> dict[str, dict[_Kind, int]]:
        """Count the wanted nodes of each kind on each switch."""
        numbers_by_switch: dict[str, dict[_Kind, int]] = {}
        for (key, free), wanted in self._wanted.items():
            numbers = self._pool.free[key].by_switch(free) if wanted else {}
            for switch, number in numbers.items():
                numbers_by_switch.setdefault(switch, {})[key, free] = number
        return numbers_by_switch

    def _rank(self, switch: str, there: Mapping[_Kind, int], step: int) -> _Rank:
        taken = self._count(there, step)
        units = sum(number * free for (_, free), number in taken.items())
        spare = sum(number * free for (_, free), number in there.items()) - units
        is_own = self._own[switch] if units and switch else 0
        return -is_own, -units, spare, natural(switch), switch

    def _count(self, there: Mapping[_Kind, int], step: int) -> dict[_Kind, int]:
        return {k: min(n, len(self._wanted[k])) // step * step for k, n in there.items()}

    def _take(self, switch: str, there: Mapping[_Kind, int], step: int) -> None:
        for (key, free), number in self._count(there, step).items():
            for _ in range(number):
                index = self._wanted[key, free].popleft()
                taken = self._rooms[index].taken
                self.names[index] = self._pool.free[key].take(free, taken, switch)
