"""Finds the exact answer by a full search, where prices leave few rows open.

An answer is worth the bound that prices prove, less its losses. Those are the loss of each row
against its job's best row at these prices, and the price of the leftover nodes. So a better answer
than the best known consists of rows that lose less than the gap between bound and value. The
dynamic programme runs over these few rows (Dudzinski and Walukiewicz 1987). No solver has to be
installed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import le, lshift
from typing import NamedTuple, Optional

from slurm_hooks.allocation.value import Row

SHARES = (1 / 256, 1 / 64, 1 / 16, 1 / 4, 1.0)
"""The shares of the gap to search, in this order. An answer within a share is the best of all, and
the work grows faster than the share.
"""


class TooLarge(Exception):
    """The search would take more steps than it may."""


class Choice(NamedTuple):
    """A row (class), and its loss against the best row of its job."""

    loss: float
    row: Row


Menus = Sequence[Sequence[Choice]]
"""The choices of each job, the least loss first."""


@dataclass(frozen=True)
class Supply:
    """The nodes of each class, their prices, and how many nodes have to be left."""

    caps: Sequence[int]
    prices: Sequence[float]
    spare: int = 0

    def worth(self, nodes: Sequence[int]) -> float:
        """The price of so many nodes (class), with the nodes above the ceiling at the lowest price.

        As many nodes of classes with capacity stay idle as the ceiling says. The best dual price
        of that rule, given the prices of the nodes, is the lowest of them.
        """
        lowest = min((p for p, cap in zip(self.prices, self.caps) if cap), default=0.0)
        return sum(p * n for p, n in zip(self.prices, nodes)) - self.spare * lowest


def best_rows(
    menus_of: Callable[[float], Menus], supply: Supply, gap: float, most_steps: float
) -> Optional[list[Row]]:
    """The row of each job in the best answer if it loses no more than `gap`, None otherwise.

    `menus_of` lists the rows up to a given loss. Jobs may share a list. Raises `TooLarge` where the
    search would take more than `most_steps` steps.
    """
    for share in SHARES if gap > 0 else ():
        rows = _search(menus_of(gap * share), supply, gap * share, most_steps)
        if rows:
            return rows
    return None


class _Packing:
    """Packs the nodes left of each class into a single integer, so that each step takes a row.

    A bit on top of each count is set unless the count is negative. Where nodes have to be left,
    another count holds all nodes.
    """

    def __init__(self, supply: Supply, jobs: int) -> None:
        self._supply = supply
        self._most = list(supply.caps)
        if supply.spare > 0:
            self._most.append(sum(supply.caps) - supply.spare)
        self._tops = [(cap * (jobs + 1)).bit_length() for cap in self._most]
        self._shifts = list(accumulate(self._tops, lambda at, top: at + top + 1, initial=0))[:-1]
        self.tops = self._packed([1 << top for top in self._tops])
        self.full = self.tops + self._packed(self._most)

    def _packed(self, counts: Sequence[int]) -> int:
        return sum(map(lshift, counts, self._shifts))

    def offers(self, choices: Sequence[Choice]) -> list[_Offer]:
        """The choices for which there are nodes, each with a packed number to subtract."""
        if len(self._most) == 1:  # a single count needs no packing, and a replay asks very often
            return [(loss, row[0], row) for loss, row in choices if row[0] <= self._most[0]]
        return [
            (loss, self._packed(row), row[: len(self._supply.caps)])
            for loss, row in ((loss, (*row, sum(row))) for loss, row in choices)
            if all(map(le, row, self._most))
        ]

    def wasted(self, left: int) -> float:
        """The price of the nodes left."""
        counts = [left >> at & (1 << top) - 1 for at, top in zip(self._shifts, self._tops)]
        return max(0.0, self._supply.worth(counts[: len(self._supply.caps)]))


_Offer = tuple[float, int, Row]  # loss, nodes packed, nodes
_Layer = dict[int, tuple[float, _Offer]]  # nodes left -> (loss so far, the last job's offer)


def _search(menus: Menus, supply: Supply, allowed: float, most_steps: float) -> Optional[list[Row]]:
    """The rows that lose least, if their loss is no more than `allowed`."""
    packing = _Packing(supply, len(menus))
    packed = {key: packing.offers(menu) for key, menu in {id(m): m for m in menus}.items()}
    if not all(packed.values()):
        return None
    offers = [packed[id(menu)] for menu in menus]
    order = sorted(range(len(menus)), key=lambda at: len(offers[at]))
    layers: list[_Layer] = [{packing.full: (0.0, (0.0, 0, ()))}]
    for at in order:
        most_steps -= len(layers[-1]) * len(offers[at])
        if most_steps < 0:
            raise TooLarge(f"job {len(layers)} of {len(menus)}: {len(layers[-1])} states")
        layers.append(_extended(layers[-1], offers[at], packing.tops, allowed))
    lost = {left: loss + packing.wasted(left) for left, (loss, _) in layers[-1].items()}
    best = min(lost, key=lambda left: (lost[left], -left), default=None)
    if best is None or lost[best] > allowed:
        return None
    rows: dict[int, Row] = {}
    for at, layer in zip(reversed(order), reversed(layers)):
        _, packed_row, rows[at] = layer[best][1]
        best += packed_row
    return [rows[at] for at in range(len(menus))]


def _extended(layer: _Layer, offers: Sequence[_Offer], tops: int, allowed: float) -> _Layer:
    """The layer with another job, each state with the offer that loses least."""
    longer: _Layer = {}
    for left, (lost, _) in layer.items():
        for offer in offers:
            loss = lost + offer[0]
            if loss > allowed:
                break
            now = left - offer[1]
            if now & tops == tops and (now not in longer or loss < longer[now][0]):
                longer[now] = (loss, offer)
    return longer
