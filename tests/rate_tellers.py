"""Jobs that report their speed, on a curve that the tests know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from build import make_fragment, make_job, make_request, make_snapshot, span
from slurm_hooks.model import Curve, FragmentState, MalleableJob, Pauses, Rate, Telemetry

TRUE = Curve(((0, 0.0), (1, 100.0), (2, 160.0), (4, 300.0), (8, 560.0), (16, 1000.0)))
ERROR = 0.01
NO_PAUSES = Pauses()


def rate(nodes: int, at: int = 0, per_s: float = 0.0, batch: float = 0.0) -> Rate:
    return Rate(nodes, per_s or TRUE(nodes), ERROR, at, batch)


def teller(
    job_id: int,
    *reports: Sequence[Rate],
    most: int = 16,
    unit: int = 1,
    pauses: Pauses = NO_PAUSES,
    user: str = "ada",
    name: str = "",
) -> MalleableJob:
    """A job with a fragment for each of these reports, and at least with a fragment."""
    request = replace(make_request(unit, most, unit), name=name)
    fragments = [
        make_fragment(
            index,
            FragmentState.RUNNING,
            [f"n{job_id}x{index}"],
            job_id=job_id,
            request=request,
            telemetry=Telemetry(tuple(rates), pauses=pauses) if rates else None,
        )
        for index, rates in enumerate(reports or [()])
    ]
    held = most - len(fragments)
    return replace(make_job(*fragments, held=held, job_id=job_id, request=request), user=user)


def moment(seconds: float) -> int:
    return int((make_snapshot().now + span(seconds)).timestamp())
