"""Decide when a round stops for newcomers.

A growth is voluntary, and it costs all members a start. So it waits for a good moment: the round
has made a step, steps come as usual, the next workers are warm, and no further newcomer is worth a
wait. Each agent of a round judges by its own workers. All see the same steps, within a second. If
they disagree nevertheless, the first that decides waits some seconds for the others, and then all
stop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Optional

from slurm_hooks.elastic.liveness.watch import Unchanged
from slurm_hooks.elastic.rendezvous.rounds import is_known_complete, newcomers
from slurm_hooks.elastic.rendezvous.state import State

PATIENCE = 5.0  # times what a newcomer is worth: the longest that newcomers wait for others
LONGEST_S = 60.0
_SEEN_S = 2.0  # a step is seen so late, at most
_USUAL = 3  # a step that takes as many times as long is none of the usual steps


@dataclass(frozen=True)
class Training:
    """The training in a round, as an agent sees it at its own workers, in seconds.

    * `age_s`: since the round began.
    * `start_s`: from there to the first step, `None` before it.
    * `patience_s`: after so long without a step, a growth may begin all the same. The workers may
      hang, or make steps that nobody sees.
    * `idle_s`: since the newest step, of which one usually takes `step_s` (0: unknown).
    * `saved_s`: from the begin of the round to that of its newest complete checkpoint.
    """

    age_s: float
    start_s: Optional[float] = None
    patience_s: float = LONGEST_S
    idle_s: float = 0.0
    step_s: float = 0.0
    saved_s: Optional[float] = None


def may_begin(training: Training) -> bool:
    """Tell whether a growth may begin at this moment.

    It waits while the training makes no steps: during an evaluation, a checkpoint, and the work
    after the last step.
    """
    if training.start_s is None:
        return training.age_s >= training.patience_s
    return not training.step_s or training.idle_s <= _SEEN_S + _USUAL * training.step_s


def has_settled(
    state: State, settle_s: float, start_s: float, quiet_s: float, known_s: float
) -> bool:
    """Tell whether newcomers have waited long enough for others.

    `start_s`: a start took so long. `quiet_s`: since a newcomer joined or left. `known_s`: since
    the first newcomer. During this wait the others train and only newcomers wait. So a fragment on
    its way is worth a wait as long as a start. But a wanted agent may never start.
    """
    is_complete = is_known_complete(state)
    if is_complete is None:
        return quiet_s >= settle_s or known_s >= PATIENCE * settle_s
    longest_s = max(PATIENCE * settle_s, min(PATIENCE * start_s, LONGEST_S))
    each_s = max(PATIENCE * settle_s, start_s)
    return is_complete or quiet_s >= each_s or known_s >= longest_s


class Settling:
    """The wait during a round. `settle_s` as in has_settled. Times are time.monotonic()."""

    def __init__(self, settle_s: float) -> None:
        self._settle_s = settle_s
        self._quiet, self._known = Unchanged(), Unchanged()
        self._is_begun = False

    def is_over(
        self,
        state: State,
        now: float,
        training: Training,
        is_warming: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Tell whether to stop for the newcomers. Call it at each look.

        `is_warming`: the next workers would start cold now. They are worth a wait, since newcomers
        need as long for the same imports, and the others train meanwhile. A growth that has begun
        goes on, although workers that wait for it make no steps.
        """
        quiet_s = self._quiet.observe(now, newcomers(state))
        known_s = self._known.observe(now, bool(newcomers(state)))
        start_s = training.start_s or 0.0
        is_due = has_settled(state, self._settle_s, start_s, quiet_s, known_s)
        is_wanted = is_due and bool(newcomers(state))
        if is_wanted and not self._is_begun:
            is_cold = known_s < LONGEST_S and is_warming()
            self._is_begun = may_begin(training) and not is_cold
        self._is_begun = self._is_begun and is_wanted
        return self._is_begun
