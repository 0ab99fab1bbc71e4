"""Decide how long newcomers wait, and whether a round should stop for them."""

from __future__ import annotations

from slurm_hooks.elastic.liveness.watch import Unchanged
from slurm_hooks.elastic.rendezvous.rounds import has_settled, newcomers
from slurm_hooks.elastic.rendezvous.state import State


class Settling:
    """The wait during a round. `settle_s` as in has_settled. Times are time.monotonic()."""

    def __init__(self, settle_s: float) -> None:
        self._settle_s = settle_s
        self._quiet, self._known = Unchanged(), Unchanged()

    def is_over(self, state: State, now: float) -> bool:
        """Tell whether to stop for the newcomers. Call it at each look."""
        quiet_s = self._quiet.observe(now, newcomers(state))
        known_s = self._known.observe(now, bool(newcomers(state)))
        return has_settled(state, self._settle_s, quiet_s, known_s)
