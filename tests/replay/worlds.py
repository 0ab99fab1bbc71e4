"""Small recorded machines under the shipped planner, to be calculated by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from replay.machines import SIX_FOUR, two_nodes
from slurm_hooks.allocation.objectives import speedup
from slurm_hooks.model import Slurm
from slurm_hooks.replay.costs import Costs, Rescale
from slurm_hooks.replay.grain import Grain
from slurm_hooks.replay.outcome import Outcome
from slurm_hooks.replay.record import Record
from slurm_hooks.replay.work import Kind, Queue
from slurm_hooks.replay.world.calendar import calendar_of
from slurm_hooks.replay.world.member import Terms
from slurm_hooks.replay.world.planners import Planner, Shipped
from slurm_hooks.replay.world.world import World
from slurm_hooks.settings.values import Mode, Settings, Tick

SLURM = Slurm((23, 11, 4), timedelta(seconds=30), timedelta(seconds=300), 1001)
SIX_FOUR_COSTS = Costs(SIX_FOUR, latency_s=2.0)


@dataclass(frozen=True)
class Asked(Shipped):
    """The shipped planner, asked at each tick."""

    @property
    def asks_always(self) -> bool:
        return True


def settings_for(rescale: Rescale) -> Settings:
    """The shipped settings with a tick every half minute, and the costs of the jobs."""
    plan = replace(Settings().plan, grow_s=rescale.up_s, shrink_s=rescale.down_s)
    return Settings(mode=Mode("on"), tick=Tick(every_s=30), plan=plan)


def world(
    record: Record,
    jobs: int = 1,
    parts: Sequence[Kind] = (),
    costs: Costs = SIX_FOUR_COSTS,
    settings: Settings | None = None,
    planner: Planner | None = None,
    unit: int = 0,
    *,
    core: int = 0,
) -> World:
    """A world with an endless queue of toys, or of `parts`."""
    settings = settings or settings_for(costs.rescale)
    calendar = calendar_of(settings.plan.patience_s)
    grain = Grain(record.slots, unit)
    terms = Terms(settings, SLURM, calendar, grain, costs.redoes_planned, core=core)
    queue = grain.queue(Queue(tuple(parts) or (two_nodes(),)))
    return World(record, (queue, jobs), planner or Shipped(speedup), terms, costs)


def played(record: Record, jobs: int = 1, **choices: object) -> Outcome:
    """The same, run to the end of the record."""
    return world(record, jobs, **choices).run()  # type: ignore[arg-type]
