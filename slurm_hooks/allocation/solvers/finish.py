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
from itertools import accumulate, compress
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
        """The price of so many nodes (class), with the headroom at the lowest price.

        As many nodes of classes with capacity stay idle as the headroom says. The best dual price
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
        menus = menus_of(gap * share)
        packing = _Packing(supply, len(menus))
        packed = {key: packing.menu(menu) for key, menu in {id(m): m for m in menus}.items()}
        rows = _search([packed[id(m)] for m in menus], packing, gap * share, most_steps)
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
        self._has_spare = supply.spare > 0
        self._most = list(self._counted(supply.caps))
        if self._has_spare:
            self._most[-1] -= supply.spare
        self._tops = [(cap * (jobs + 1)).bit_length() for cap in self._most]
        self._shifts = list(accumulate(self._tops, lambda at, top: at + top + 1, initial=0))[:-1]
        self.tops = self._packed([1 << top for top in self._tops])
        self.full = self.tops + self._packed(self._most)

    def _counted(self, row: Sequence[int]) -> Sequence[int]:
        return (*row, sum(row)) if self._has_spare else row

    def _packed(self, counts: Sequence[int]) -> int:
        return sum(map(lshift, counts, self._shifts))

    def menu(self, choices: Sequence[Choice]) -> _Menu:
        """The choices for which there are nodes, each with a packed number to subtract."""
        if len(self._most) == 1:  # a single count needs no packing, and a replay asks very often
            plain = [(loss, row[0], row) for loss, row in choices if row[0] <= self._most[0]]
            return _Menu(plain, max((n for _, n, _ in plain), default=0))
        counts = [self._counted(choice.row) for choice in choices]
        fitting = [all(map(le, row, self._most)) for row in counts]
        counts = list(compress(counts, fitting))
        offers = [
            (choice.loss, self._packed(row), choice.row)
            for choice, row in zip(compress(choices, fitting), counts)
        ]
        greatest = self._packed([*map(max, zip(*counts))])
        return _Menu(offers, greatest)

    def wasted(self, left: int) -> float:
        """The price of the nodes left, where counts below zero count as 0."""
        tops = [1 << top for top in self._tops]
        counts = [(left >> at & 2 * top - 1) - top for at, top in zip(self._shifts, tops)]
        nodes = [max(0, n) for n in counts[: len(self._supply.caps)]]
        return max(0.0, self._supply.worth(nodes))


_Offer = tuple[float, int, Row]  # loss, nodes packed, nodes


class _Menu(NamedTuple):
    """The choices of a job, and the most of each class among them, packed."""

    offers: list[_Offer]
    greatest: int


_Layer = dict[int, tuple[float, _Offer]]  # nodes left -> (loss so far, the last job's offer)


def _search(
    menus: Sequence[_Menu], packing: _Packing, allowed: float, most_steps: float
) -> Optional[list[Row]]:
    """The rows that lose least, if their loss is no more than `allowed`."""
    if not all(menu.offers for menu in menus):
        return None
    order = sorted(range(len(menus)), key=lambda at: len(menus[at].offers))
    layers = _layers([menus[at] for at in order], packing, allowed, most_steps)
    lost = {left: loss + packing.wasted(left) for left, (loss, _) in layers[-1].items()}
    best = min(lost, key=lambda left: (lost[left], -left), default=None)
    if best is None:
        return None
    placed = dict(zip(order, _trace(layers, best)))
    return [placed[at] for at in range(len(order))]


def _layers(
    menus: Sequence[_Menu], packing: _Packing, allowed: float, most_steps: float
) -> list[_Layer]:
    """For each number of jobs, the least loss by nodes left, as far as it can still win."""
    layers: list[_Layer] = [{packing.full: (0.0, (0.0, 0, ()))}]
    rest = sum(menu.greatest for menu in menus)
    for menu in menus:
        most_steps -= len(layers[-1]) * len(menu.offers)
        if most_steps < 0:
            raise TooLarge(f"job {len(layers)} of {len(menus)}: {len(layers[-1])} states")
        rest -= menu.greatest
        longer = _extended(layers[-1], menu.offers, packing.tops, allowed)
        if packing.full - rest & packing.tops:  # later jobs cannot take all nodes
            _drop_wasteful(longer, rest, packing, allowed)
        layers.append(longer)
    return layers


def _drop_wasteful(layer: _Layer, rest: int, packing: _Packing, allowed: float) -> None:
    """Drop the states that leave too much, even if later jobs take `rest`."""
    for left in [left for left in layer if left - rest & packing.tops]:
        if layer[left][0] + packing.wasted(left - rest) > allowed:
            del layer[left]


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


def _trace(layers: Sequence[_Layer], left: int) -> list[Row]:
    """The row of each job on the way to the nodes left."""
    rows = []
    for layer in reversed(layers[1:]):
        _, packed, row = layer[left][1]
        rows.append(row)
        left += packed
    return rows[::-1]
