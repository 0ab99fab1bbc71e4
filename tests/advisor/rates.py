"""True and false rates that jobs could report."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable

from hypothesis import strategies as st

from slurm_hooks.learning.throughput import Shape
from slurm_hooks.model import Rate

ANY_RATES = st.builds(
    Rate,
    nodes=st.one_of(st.integers(1, 64), st.integers(1, 10**9)),
    per_s=st.one_of(st.floats(1e-9, 1e15), st.floats(1.0, 1e4)),
    error=st.floats(0, 1e300),
    at=st.integers(-(10**12), 10**12),
    batch=st.one_of(st.just(0.0), st.floats(0, 1e15)),
)


def rates_of(
    shape: Shape, sizes: Iterable[int], noise: float = 0.0, seed: int = 1, at: int = 0
) -> list[Rate]:
    """The reports of a job of that shape, a minute apart."""
    draw = random.Random(seed)
    return [
        Rate(
            n,
            1000 * n / shape.slowdown(n) * math.exp(draw.gauss(0, noise)),
            max(noise, 0.01),
            at + 60 * k,
        )
        for k, n in enumerate(sizes)
    ]
