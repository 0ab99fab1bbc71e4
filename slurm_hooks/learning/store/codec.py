"""Writes fits and learned knowledge as text, and reads them back."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, Optional

from slurm_hooks.books.storage.database import Damaged
from slurm_hooks.learning.prior import Fit
from slurm_hooks.model import Curve, Learned


def learned_text(learned: Learned) -> str:
    """The text that a row keeps."""
    data = {
        "curve": learned.curve and _points(learned.curve),
        "plausible": [_points(curve) for curve in learned.plausible],
        "seen": learned.sizes_seen,
        "shared": learned.is_shared,
    }
    return json.dumps(data, separators=(",", ":"))


def learned_from(text: str) -> Learned:
    """Read such a text. Raises Damaged if it is malformed."""
    try:
        data = json.loads(text)
        return Learned(
            curve=_curve(data["curve"]) if data["curve"] else None,
            plausible=tuple(_curve(points) for points in data["plausible"]),
            sizes_seen=tuple(data["seen"]),
            is_shared=data["shared"],
        )
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Damaged(f"not a job's learned rates: {text[:80]!r}") from error


def fit_text(fit: Fit) -> str:
    """Write a fit as four numbers."""
    numbers = (fit.cliff, fit.slope, fit.cliff_sd, fit.slope_sd)
    return " ".join(f"{value:.6g}" for value in numbers)


def fit_from(text: str) -> Fit:
    """Read such a text. Raises Damaged if it is malformed."""
    try:
        numbers = [float(word) for word in text.split()]
        if all(map(math.isfinite, numbers)):
            return Fit(*numbers)
    except (TypeError, ValueError) as error:
        raise Damaged(f"not a fit: {text[:80]!r}") from error
    raise Damaged(f"not a finite fit: {text[:80]!r}")


def shortened(curve: Optional[Curve], nodes: int) -> Optional[Curve]:
    """The curve up to so many nodes."""
    if curve is None or curve.points[-1][0] <= nodes:
        return curve
    kept = tuple(point for point in curve.points if point[0] < nodes)
    return Curve((*kept, (nodes, curve(nodes))))


def _points(curve: Curve) -> list[tuple[int, float]]:
    return [(nodes, float(f"{value:.7g}")) for nodes, value in curve.points]


def _curve(points: Sequence[Any]) -> Curve:
    """Read a curve.

    JSON allows numbers of any length. Raises ValueError, TypeError, OverflowError.
    """
    return Curve(tuple((int(float(nodes)), float(value)) for nodes, value in points))
