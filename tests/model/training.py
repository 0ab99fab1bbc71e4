"""The truth about a job in the model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional

from fake_parts import REQUEUE_WAIT_S, Element, Script

ENDED = frozenset({"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL"})
RACE_S = 10  # between a cancel and a put-back at the same moment
FAILURES = 3  # failures.limit as shipped


@dataclass
class Training:
    """A job as its user sees it. `code` and `age_s` say how each of its runs fails, if it does.

    The first fragments, of `core` nodes together, run in the ordinary queue for `core_min` minutes.
    Once each of them has `spent` that time, the job ends if it `ends_with_core`.

    `deaths` are the deaths since the last progress. `is_over` is set once the tick has ended the
    job rightly. `cancelled` are the elements that its user has cancelled, `ended` the elements that
    the tick has.
    """

    job: int
    low: int
    high: int
    unit: int
    script: Script
    core: int = 0
    ends_with_core: bool = False
    code: Optional[int] = None
    age_s: int = 0
    is_over: bool = False
    is_cancelled: bool = False
    cancelled_at: Optional[int] = None  # when its user last cancelled some of it
    seems_cancelled: bool = False  # an element was, when no other element was alive
    seems_finished: bool = False  # unless an agent of it reports before the next tick reads
    is_finished: bool = False
    deaths: int = 0
    cancelled: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    spent: set[str] = field(default_factory=set)
    must_be_spent: set[str] = field(default_factory=set)  # not only may
    requeued_by_user: dict[str, int] = field(default_factory=dict)  # or its agent: when
    exits: dict[str, int] = field(default_factory=dict)  # of ends in the next second

    @property
    def gone(self) -> set[str]:
        """The elements that the user or the tick cancelled."""
        return self.cancelled | self.ended

    def is_core(self, element: Element) -> bool:
        """True until its time in the ordinary queue is over."""
        return element.index * self.unit < self.core and element.name not in self.spent

    def is_core_over(self, left: list[Element]) -> bool:
        """True if the job ends with its core, and the core has ended."""
        has_ended = bool(self.spent) and self.ends_with_core
        return has_ended and not any(self.is_core(e) for e in left if e.state != "CANCELLED")

    @property
    def is_failing(self) -> bool:
        return self.code is not None

    def outcome(self, element: Element, ran_s: int, has_agent: bool) -> Optional[int]:
        """How a run ends by itself, if it does now (see FakeSlurm)."""
        if element.run.said == "trained":
            self.deaths = 0
        if element.name in self.exits:
            code = self.exits.pop(element.name)
        elif self.code is not None and ran_s >= self.age_s:
            code = self.code
        else:
            return None
        if code == 0 and not has_agent:
            self.seems_finished = True
            self.is_finished = not self.script.joins
        self.deaths += not self.is_finished
        return code

    def seems_cancelled_to(self, left: list[Element]) -> bool:
        """True if all remaining elements were put back, or lost their node, around a cancel of the
        rest.

        Then the job looks as if it was cancelled as a whole. Elements that their own agent put back
        do not count.
        """
        alive = [e for e in left if e.state not in ENDED]
        return bool(alive) and all(self._was_thrown_back(e) for e in alive)

    def _was_thrown_back(self, element: Element) -> bool:
        if self.cancelled_at is None:
            return False
        back = (element.eligible or 0) - REQUEUE_WAIT_S
        own = self.requeued_by_user.get(element.name, 0)
        return abs(back - self.cancelled_at) <= RACE_S and own < self.cancelled_at - RACE_S

    def may_be_ended(self, left: list[Element]) -> bool:
        """True if the tick may cancel the job: `left` are its elements that Slurm knows."""
        seems_cancelled = self.seems_cancelled or self.seems_cancelled_to(left)
        is_cancelled = self.is_cancelled or seems_cancelled
        if is_cancelled or self.seems_finished or self.script.is_done or self.is_short(left):
            return True
        if self.is_core_over(left):
            return True
        trains = any(e.state == "RUNNING" and e.run.said == "trained" for e in left)
        return self.deaths >= FAILURES and not trains

    def is_short(self, left: list[Element]) -> bool:
        """True if too many elements were cancelled, or forgotten by Slurm, for it to run again."""
        return sum(e.state != "CANCELLED" for e in left) * self.unit < self.low

    def is_open(self, left: list[Element]) -> bool:
        """True if any element of it could still run."""
        return any(e.state not in ENDED for e in left)

    def is_at_rest(self, left: list[Element], free: int) -> bool:
        """True if the job is where it has to be without further disturbance.

        With too few `free` nodes it may wait: the planner decides which job has most use of the
        nodes.
        """
        if self.is_over or self.is_cancelled or self.is_finished or self.is_short(left):
            return not any(self._is_restless(e) for e in left)
        if self.script.is_done and not self.is_open(left):
            return True
        if self.seems_finished and all(e.state in ("RUNNING", *ENDED) for e in left):
            return True  # it was ended, and there was no element to cancel
        running = [e for e in left if e.state == "RUNNING" and e.signalled is None]
        must_end = self.is_failing or self.script.is_done
        if not must_end and len(running) * self.unit >= self._enough:
            return True
        return not self._holds_nodes(left) and free < self.low

    def _is_restless(self, element: Element) -> bool:
        """Tell whether it still has to change. Scripts of a finished job may run to their end."""
        return element.state not in ENDED and not (self.is_finished and element.state == "RUNNING")

    @property
    def _enough(self) -> int:
        """Without rounds every fragment would train alone, so such a job is kept to 1 fragment."""
        return self.low if self.script.joins else self.unit

    def _holds_nodes(self, left: list[Element]) -> bool:
        return any(e.state in ("RUNNING", "COMPLETING") for e in left)
