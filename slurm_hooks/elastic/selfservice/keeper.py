"""Keep a job up from within an element, where no tick does it.

* Slurm keeps a requeued element back for two minutes. The user may end that, so elements that run
  wake the others. They requeue what was killed, or what Slurm has cancelled to take its nodes.
* Below MIN nobody keeps a node: an element waits a while for the others, then all rest.
* An element leaves before its lease ends, at its own moment.

Each of n elements looks every n minutes on average. So the job asks Slurm about once a minute,
however large it is. A leave is noted in the shared directory, and makes one of the others look at
once. So does a look that is overdue, since most elements may have been lost.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Optional

from slurm_hooks.elastic.agent.options import knob
from slurm_hooks.elastic.batch.standing import is_other_run, run_of, run_request
from slurm_hooks.elastic.log import debug, say
from slurm_hooks.elastic.selfservice import upkeep
from slurm_hooks.elastic.selfservice.notes import Notes
from slurm_hooks.elastic.selfservice.plan import Plan
from slurm_hooks.elastic.selfservice.upkeep import Row

MEET_S = 60.0  # so long an element waits for the others below MIN
REST_S = 300.0  # so long they rest then
MEET_EACH_S = 5.0  # for each element that waits
FIRST_LOOK_S = 20.0
LIST_S = 5.0  # between two looks for notes of the others
EARLY_S, EARLY_MOST_S = 2.0, 120.0  # until a look after a leave, first and at most
OUTLIVED_S = 60.0  # in less time Slurm does not give a node up
AGAIN_S = 20.0  # until a command that had no effect is given again
MOST_FAILURES = 3
LATE_S = 3600.0  # so long an element is put off that has ended early so often
FOREVER = float("inf")


class Slurm(NamedTuple):
    """How to reach Slurm. `ask` returns squeue's answer, empty without one. `tell` runs a command,
    and returns why it failed.
    """

    ask: Callable[[Sequence[str]], str]
    tell: Callable[..., str]


class Ended(Exception):
    """Slurm has ended this run of the element. Where this node was cut off, Slurm may have begun
    the next on another.
    """


class Hopeless(Exception):
    """Too few elements are left for MIN, so the job is cancelled."""


class Keeper:
    """Keeps the job `array` up from its element `array`_`fragment`, which began a moment ago.

    A command that fails is given again later.
    """

    def __init__(
        self,
        plan: Plan,
        env: Mapping[str, str],
        notes: Notes,
        slurm: Slurm,
        clock: Callable[[], float] = time.time,
        dice: Optional[random.Random] = None,
    ) -> None:
        self._plan = plan
        self._notes = notes
        self._slurm, self._tell = slurm, slurm.tell
        self._clock = clock
        self._dice = dice or random.Random()
        self._array = int(env["SLURM_ARRAY_JOB_ID"])
        self._fragment = int(env["SLURM_ARRAY_TASK_ID"])
        self.name = f"{self._array}_{self._fragment}"
        self._run = run_of(env)
        self._fewest = plan.wanted.fewest if plan.wanted.engine.is_gang else 1
        self._meet_s = knob(env, "meet_s", MEET_S)
        self._rest_s = knob(env, "rest_s", REST_S)
        self._running = 1
        self._began = clock()
        self._short_since: Optional[float] = None
        self._share = self._dice.random()
        self._set_lease(self._began + plan.lease_s, plan.lease_s)
        self._next_look = self._began + FIRST_LOOK_S * self._dice.uniform(0.5, 1.5)
        self._next_listing, self._early_look, self._early_s = 0.0, FOREVER, EARLY_S
        self._each_s = upkeep.EACH_S

    def _set_lease(self, ends: float, lease_s: float) -> None:
        self._leave_at = upkeep.leave_at(ends, lease_s, self._share)
        self._requeue_at = ends - upkeep.LAST_S  # whether the agent leaves or not

    # -- the beginning

    def may_begin(self) -> Optional[bool]:
        """Tell whether the script may begin. It is `None` while this element has to ask again,
        after `pause_s`. False: the element must go back. Raises Hopeless.
        """
        now = self._clock()
        if self._fewest < 2:
            return True
        known = self.rows()
        self._running = max(1, upkeep.running(known))
        if not known or self._running >= self._fewest:
            return True
        if now < self._notes.rests_until():
            return False
        self._wake(known)
        if now - self._began < self._meet_s:
            return None
        self.rest(known)
        return False

    @property
    def pause_s(self) -> float:
        """So long to wait between two calls of `may_begin`: all elements that wait ask."""
        return min(MEET_EACH_S * self._running, self._meet_s / 4)

    def rest(self, known: Sequence[Row]) -> None:
        """Too few run. All others rest too. Slurm keeps this element back when it goes. Raises
        Hopeless.
        """
        left = sum(not row.is_over for row in known) + len(upkeep.lost(known))
        if left < self._fewest:
            self.cancel(known)
            raise Hopeless(
                f"the job ends: {left} of its elements are left, and MIN needs {self._fewest}"
            )
        until = self._clock() + self._rest_s
        self._notes.rest(until)
        say(
            f"{upkeep.running(known)} of at least {self._fewest} elements run: fragment "
            f"{self._fragment} gives its node back, and comes again in {self._rest_s:.0f} s"
        )
        back = [*self._waiting(upkeep.pending(known)), *self._bring_back(known)]
        self._update(back, f"StartTime=now+{self._rest_s:.0f}")

    # -- while the script runs

    def attend(self) -> None:
        """Do what is due. Called about twice a second. Raises Hopeless, Ended."""
        now = self._clock()
        if now >= self._requeue_at:
            self._requeue_at = now + AGAIN_S
            self.requeue()
        elif now >= self._leave_at:
            self._leave_at = max(now + AGAIN_S, (now + self._requeue_at) / 2)
            self._tell("scancel", "--quiet", "--signal=URG", "--full", self.name)
        if now >= self._next_listing:
            self._next_listing = now + LIST_S
            self._see_notes(now)
        if now >= min(self._next_look, self._early_look):
            self._look(now)

    def requeue(self) -> None:
        """Have Slurm end this run of the element, or notice that it has. Raises Ended."""
        if self.is_outlived():
            raise Ended
        if why := self._tell("scontrol", "requeue", self.name):
            debug(f"scontrol requeue {self.name}: {why}")

    def is_outlived(self) -> bool:
        """Tell whether Slurm has ended this run of the element, which takes it a while. It is False
        without an answer.
        """
        if self._clock() - self._began < OUTLIVED_S:
            return False
        return is_other_run(self._slurm.ask(run_request(self.name)), self._run)

    def _see_notes(self, now: float) -> None:
        """Look soon after another element has left, if a look is overdue, unless one of the others
        has done so, and while others rest. An element that stays on its way makes the looks rarer.
        """
        is_overdue = now - max(self._began, self._notes.looked_at()) > 2 * self._each_s
        is_rest = self._fewest > 1 and now < self._notes.rests_until()
        if not (is_overdue or is_rest or self._notes.left()):
            self._early_look, self._early_s = FOREVER, EARLY_S
        elif self._early_look == FOREVER:
            self._early_look = now + self._early_s * (1 + self._dice.random() * self._running)
            self._early_s = min(EARLY_MOST_S, 2 * self._early_s)

    def _look(self, now: float) -> None:
        self._notes.look(now)
        known = self.rows()
        took_s = self._clock() - now if known else upkeep.SLOW
        self._running = max(1, upkeep.running(known)) if known else self._running
        self._each_s = upkeep.each_s(took_s)
        share = self._dice.expovariate(1.0)  # 1 on average
        self._next_look = now + share * self._each_s * self._running
        self._early_look = FOREVER
        if known:
            self._see(known, now)
        else:
            self._early_s = EARLY_MOST_S

    def _see(self, known: Sequence[Row], now: float) -> None:
        own = self.own(known)
        if own is None or not own.is_here:  # perhaps another run: only `requeue` finds out
            return
        if own.ends and own.starts:
            lease_s = min(self._plan.lease_s, own.ends - own.starts)
            self._set_lease(own.ends, lease_s)
            if not own.has_agent:  # nobody hears the signal, and others may have begun with it
                self._requeue_at -= self._share * lease_s / 4
        if own.has_trained(self._run) and now - self._began >= upkeep.MUCH_S:
            self._notes.forget_failures(self._fragment)
        if any(row.has_finished for row in known) or self._notes.has_finished():
            return
        if self._is_short(known, now):
            self.rest(known)
            self._requeue_at = now
        else:
            self._wake(known)

    def _is_short(self, known: Sequence[Row], now: float) -> bool:
        """Tell whether fewer than MIN have run for a while, or run and others rest already."""
        if upkeep.running(known) >= self._fewest:
            self._short_since = None
            return False
        self._short_since = self._short_since or now
        self._next_look = min(self._next_look, now + self._meet_s / 2)
        is_rest = now < self._notes.rests_until()
        return is_rest or now - self._short_since >= self._meet_s

    def _wake(self, known: Sequence[Row]) -> None:
        """Let the others start again, unless all rest."""
        is_rest = self._clock() < self._notes.rests_until()
        if not is_rest or upkeep.running(known) >= self._fewest:
            back = [*self._waiting(upkeep.kept_back(known)), *self._bring_back(known)]
            self._update(back, "StartTime=now")
        self._notes.meet(upkeep.settled(known))

    def _bring_back(self, known: Sequence[Row]) -> list[Row]:
        """Requeue elements that have ended, while Slurm knows them. Return those that may start."""
        now = self._clock()
        mine = [row for row in upkeep.lost(known) if self._notes.claim(row.fragment, row.ends, now)]
        if mine and (why := self._tell("scontrol", "requeue", upkeep.name(mine))):
            debug(f"scontrol requeue {upkeep.name(mine)}: {why}")
        late = [row for row in mine if self._put_off(row, now)]
        self._update(late, f"StartTime=now+{LATE_S:.0f}")
        return [row for row in mine if row not in late]

    def _put_off(self, row: Row, now: float) -> bool:
        """Count an early end. Tell whether the element comes again late: its node may be broken,
        and would use all elements up.
        """
        if not row.has_failed or self._notes.fail(row.fragment, row.ends) < MOST_FAILURES:
            return False
        self._notes.put_off(row.fragment, now + LATE_S)
        say(
            f"fragment {row.fragment} rests for an hour: it has ended early {MOST_FAILURES} times "
            f"({row.state})"
        )
        return True

    def _waiting(self, rows: Sequence[Row]) -> list[Row]:
        """Return those of these elements that are not put off."""
        late = self._notes.late(self._clock())
        return [row for row in rows if row.fragment not in late]

    # -- the job

    def rows(self) -> list[Row]:
        """Return the elements of this job, none without an answer."""
        return upkeep.rows(self._slurm.ask(upkeep.request(self._array)))

    def own(self, known: Sequence[Row]) -> Optional[Row]:
        """Return the row of this element."""
        return next((row for row in known if row.fragment == self._fragment), None)

    def cancel(self, known: Sequence[Row], only_pending: bool = False) -> None:
        """Cancel the other elements."""
        kinds = [row for row in known if not row.is_over and row != self.own(known)]
        chosen = upkeep.pending(kinds) if only_pending else kinds
        if chosen and (why := self._tell("scancel", "--quiet", upkeep.name(chosen))):
            say(f"scancel failed: {why}")

    def _update(self, rows: Sequence[Row], word: str) -> None:
        name = upkeep.name(rows) if rows else ""
        if name and (why := self._tell("scontrol", "update", f"jobid={name}", word)):
            debug(f"{name} {word}: {why}")
