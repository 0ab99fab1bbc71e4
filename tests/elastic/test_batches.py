"""Sample batches for any sizes, without torch: no sample is lost, and no sample is taken twice."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_hooks.elastic.script.batches import ElasticBatches, shuffled


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 700), st.integers(0, 2**64 - 1))
def test_a_permutation(samples: int, key: int) -> None:
    assert sorted(shuffled(p, samples, key) for p in range(samples)) == list(range(samples))


def test_epochs_and_seeds_give_different_shuffled_orders() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        return ElasticBatches(512, 512, 9, seed=seed, rank=0, world=1).batch_of(epoch)

    orders = [order(0, 0), order(0, 1), order(1, 0), list(range(512))]
    for n, one in enumerate(orders):
        for other in orders[:n]:
            assert sum(a == b for a, b in zip(one, other)) < 16


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 300),
    st.integers(8, 64),
    st.lists(st.tuples(st.integers(1, 8), st.integers(0, 12)), max_size=12),
)
def test_each_epoch_of_any_sizes_has_every_sample_once(
    samples: int, batch: int, course: list[tuple[int, int]]
) -> None:
    total = 2 * samples // batch + 1
    taken: list[int] = []
    step = 0
    for world, steps in [*course, (1, total)]:
        until = min(step + steps, total)
        shares = [
            list(ElasticBatches(samples, batch, until, start=step, rank=rank, world=world))
            for rank in range(world)
        ]
        for n in range(until - step):
            sizes = [len(share[n]) for share in shares]
            assert max(sizes) - min(sizes) <= 1
            assert sum(sizes) == batch
            here = sorted(index for share in shares for index in share[n])
            whole = ElasticBatches(samples, batch, 0, rank=0, world=1).batch_of(step + n)
            assert here == sorted(whole)
            taken += whole
        step = max(step, until)
    assert len(taken) == total * batch
    for first in range(0, len(taken) - samples + 1, samples):
        assert sorted(taken[first : first + samples]) == list(range(samples))


def test_random_access_is_free() -> None:
    far = ElasticBatches(10**9, 64, 10**12, start=10**11, rank=0, world=2)
    assert len(next(iter(far))) == 32
    assert len(far) == 10**12 - 10**11


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((0, 4, 1, 0, 0, 0, 1), "samples=0"),
        ((10, 4, 1, 0, 0, 0, 5), "5 processes share a batch of 4"),
        ((10, 4, 1, 0, 0, 2, 2), "rank 2 is out of range"),
    ],
)
def test_nonsense_is_refused(arguments: tuple[int, ...], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        ElasticBatches(*arguments)
