"""A job's report about its speed: an impossible report becomes no value."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_hooks.model import Curve, Learned, Pauses, Rate, Telemetry

ANY = st.floats(allow_nan=True, allow_infinity=True)


@given(st.integers(-5, 5), ANY, ANY, ANY)
def test_a_rate_is_finite_and_above_zero_or_no_rate(
    nodes: int, per_s: float, error: float, batch: float
) -> None:
    try:
        rate = Rate(nodes, per_s, error, at=0, batch=batch)
    except ValueError:
        is_sane = 1e-9 <= per_s <= 1e15 and 0 <= error < math.inf and 0 <= batch <= 1e15
        assert nodes < 1 or not is_sane
    else:
        assert rate.nodes >= 1
        assert rate.per_s > 0
        assert all(map(math.isfinite, (rate.per_s, rate.error, rate.batch)))


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf])
def test_pauses_are_seconds(seconds: float) -> None:
    with pytest.raises(ValueError, match="must be seconds"):
        Pauses(loss_s=seconds)


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan])
def test_waiting_for_others_takes_a_share_of_a_step(share: float) -> None:
    with pytest.raises(ValueError, match="not a share"):
        Telemetry(sync=share)


def test_the_spread_of_plausible_curves_shows_how_much_is_known() -> None:
    curves = tuple(Curve(((0, 0.0), (1, 1.0), (4, at_four))) for at_four in (2.0, 4.0))
    learned = Learned(curves[0], curves, sizes_seen=(1,))
    assert learned.spread(1) == 0
    assert learned.spread(4) == pytest.approx(1 / 3)
    assert learned.spread(2) < learned.spread(4)


def test_an_unobserved_job_has_no_telemetry() -> None:
    assert Learned().spread(1) == math.inf
