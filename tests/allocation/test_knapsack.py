"""The search for sizes against brute force, on tables of any shape."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_hooks.allocation.solvers.knapsack import Menu, best_sizes, menu_of

Table = dict[int, float]
WORTHS = st.lists(st.integers(-20, 60).map(float), max_size=5)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """The worth of 0 nodes, and of sizes in a row: many of them equal or on a line."""
    least = draw(st.integers(1, 4))
    return {0: 0.0, **dict(enumerate(draw(WORTHS), start=least))}


@settings(max_examples=150, deadline=None)
@given(st.lists(tables(), min_size=1, max_size=4), st.integers(0, 14))
def test_sizes_equal_the_sizes_of_brute_force(tables: list[Table], most: int) -> None:
    best = best_sizes([menu_of(table) for table in tables], most)
    assert sum(best) <= most
    worth = [
        sum(table[n] for table, n in zip(tables, sizes))
        for sizes in itertools.product(*tables)
        if sum(sizes) <= most
    ]
    assert sum(t[n] for t, n in zip(tables, best)) == pytest.approx(max(worth))


@pytest.mark.parametrize("corners", [[], [1, 2]])
def test_a_menu_without_0_nodes_is_refused(corners: list[int]) -> None:
    with pytest.raises(ValueError, match="size 0"):
        Menu(float, corners)
