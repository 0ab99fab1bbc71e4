"""Jobs that report their speed, on a curve that the tests know."""

from __future__ import annotations

from dataclasses import replace

from build import make_fragment, make_job, make_request, make_snapshot, span
from slurm_hooks.learning.store.tick import recall, remember
from slurm_hooks.model import (
    Curve,
    FragmentState,
    Learned,
    MalleableJob,
    Rate,
    Snapshot,
    Telemetry,
)
from slurm_hooks.settings.values import Settings

TRUE = Curve(((0, 0.0), (1, 100.0), (2, 160.0), (4, 300.0), (8, 560.0), (16, 1000.0)))
ERROR = 0.01


def rate(nodes: int, at: int = 0, per_s: float = 0.0, batch: float = 0.0) -> Rate:
    return Rate(nodes, per_s or TRUE(nodes), ERROR, at, batch)


def teller(
    job_id: int, *rates: Rate, user: str = "ada", name: str = "train.sh", most: int = 16
) -> MalleableJob:
    """A job on as many nodes as its newest rate has, or on 1 node."""
    request = replace(make_request(1, most), name=name)
    nodes = rates[-1].nodes if rates else 1
    telemetry = Telemetry(rates) if rates else None
    fragments = [
        make_fragment(
            index,
            FragmentState.RUNNING,
            [f"n{job_id}x{index}"],
            job_id=job_id,
            request=request,
            telemetry=telemetry if index == 0 else None,
        )
        for index in range(nodes)
    ]
    return make_job(*fragments, held=most - nodes, job_id=job_id, request=request, user=user)


def seen_at(seconds: float, *jobs: MalleableJob) -> Snapshot:
    snapshot = make_snapshot(*jobs)
    return replace(snapshot, now=snapshot.now + span(seconds))


def one_tick(
    settings: Settings, seconds: float, *jobs: MalleableJob
) -> tuple[dict[int, Learned], tuple[str, ...]]:
    """The curves of this tick's plan, and the warnings behind it."""
    seen = recall(seen_at(seconds, *jobs), settings)
    return seen.learned, remember(seen, settings)


def tell(settings: Settings, seconds: float, job_id: int, *sizes: int, **who: str) -> None:
    """Report these sizes of a job, without a fault."""
    rates = [rate(nodes, at=moment(seconds) - len(sizes) + i) for i, nodes in enumerate(sizes)]
    _, warnings = one_tick(settings, seconds, teller(job_id, *rates, **who))  # type: ignore[arg-type]
    assert warnings == ()


def moment(seconds: float) -> int:
    return int((make_snapshot().now + span(seconds)).timestamp())
