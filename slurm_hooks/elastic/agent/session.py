"""One agent's way through the training: join, wait for a round, stop for the next one,
leave, finish. It joins the pure decisions to the directory and the clock, and knows
nothing of torch: what needs a store is handed in.

It gives up by SystemExit, because that is what torchrun passes through quietly (a
RendezvousGracefulExitError from a custom handler ends in a stack trace). How a fragment
leaves or ends well is the handler's to do: Leave and Over say so.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import NoReturn

from slurm_hooks.elastic.agent.evidence import Evidence
from slurm_hooks.elastic.agent.failure_reports import FailureReports
from slurm_hooks.elastic.agent.forewarning import Forewarning
from slurm_hooks.elastic.agent.forming import Forming
from slurm_hooks.elastic.agent.membership import Leave, Membership
from slurm_hooks.elastic.agent.options import Options
from slurm_hooks.elastic.batch.lease import Lease
from slurm_hooks.elastic.batch.own_element import OwnElement
from slurm_hooks.elastic.batch.standing import Standing
from slurm_hooks.elastic.liveness.watch import Unchanged
from slurm_hooks.elastic.log import debug, say, suppressed
from slurm_hooks.elastic.rendezvous.directory import DirectoryError
from slurm_hooks.elastic.rendezvous.rounds import (
    expected,
    has_running_peers,
    has_settled,
    is_stranded,
    may_form,
    newcomers,
    pending,
    ranked,
    stop_reason,
)
from slurm_hooks.elastic.rendezvous.state import (
    Admission,
    Outcome,
    Phase,
    Round,
    State,
    Stop,
    find,
    is_superseded,
)
from slurm_hooks.elastic.signals import SignalListener

FIND_DEAD_S = 0.3


class Session:
    """`round` is the round this agent is or was in, `is_in` whether it has joined,
    `is_leaving` whether it has said that it will not be in the next one. Methods raise
    DirectoryError when the shared directory is lastingly out of order."""

    def __init__(
        self,
        options: Options,
        membership: Membership,
        lease: Lease,
        signals: SignalListener,
        forewarning: Forewarning | None = None,
        own_element: OwnElement | None = None,
        exit_code: Callable[[], int] = lambda: 0,
    ) -> None:
        self.round: Round | None = None
        self._options = options
        self._membership = membership
        self._directory = membership.directory
        self._lease = lease
        self._signals = signals
        self._forewarning = forewarning or Forewarning(None, 0.0)
        self._own_element = own_element or OwnElement({}, signals)
        self._exit_code = exit_code
        self._failures = FailureReports()
        self._forming = Forming(options, membership, self._failures)
        self._evidence = Evidence(membership, self._forewarning, self._own_element, self._failures)
        self.is_in = self.is_leaving = self._is_told = False
        self._next_look = 0.0
        self._newcomers, self._growth = Unchanged(), Unchanged()

    @property
    def rank(self) -> int:
        """This agent's rank in its round."""
        return self.round.order.index(self._membership.token) if self.round else 0

    @property
    def ends(self) -> int:
        """When this lease ends as far as is known, in epoch seconds; 0 if it is not."""
        return self._lease.ends

    # -- joining and waiting

    def enter(self, is_retry: bool = False) -> None:
        """Join the waiting list. Raises Leave, and Over if there is nothing to join."""
        self._leave_if_asked()
        if self.is_in:
            failed = self.round is not None and not self._is_told and not is_retry
            code = 1 + self._exit_code() if failed else 0
            self._membership.rejoin(self._lease.ends, code)
            return
        verdict = self._membership.ask_in(self._signals, self._lease.ends)
        while verdict is Admission.WAIT:
            time.sleep(1.0)
            self._leave_if_asked()
            verdict = self._membership.ask_in(self._signals, self._lease.ends)
        self.is_in = True
        if verdict is Admission.NOTHING_LEFT:
            self._membership.skip(self._signals)
        if verdict is Admission.RESTART:
            say(f"an earlier training in {self._options.directory} ended; this is a new one")

    def wait_for_round(self, open_store: Callable[[], int]) -> Round:
        """Block until this agent is in a new round. If it is to be rank 0, `open_store`
        is called for the port of the store it hosts. Raises Leave, Over."""
        started = time.monotonic()
        quiet = Unchanged()
        port = 0
        while True:
            self._leave_if_asked()
            state = self._directory.read_patiently()
            self._exit_if_over(state)
            found = self._new_round(state)
            if found:
                return found
            self._find_dead(state)
            now = time.monotonic()
            quiet_s = quiet.observe(now, expected(state))
            if self._is_to_form(state, quiet_s, now - started):
                port = port or open_store()
                self._forming.form(expected(state), port)
                continue
            if now - started > self._options.wait_s:
                self.give_up(f"fewer than {self._options.limits.smallest} fragments for too long")
            time.sleep(self._pause(state, quiet_s))

    def _find_dead(self, state: State) -> None:
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + FIND_DEAD_S
            self._membership.find_dead(state)

    def _new_round(self, state: State) -> Round | None:
        mine = find(state, self._membership.token)
        if mine is None:
            if is_superseded(state, self._membership.me):
                self.give_up("a newer run of this fragment has taken its place")
            self._membership.rejoin(self._lease.ends)  # taken for dead meanwhile
            return None
        if mine.phase is not Phase.ACTIVE or not state.round or not self._is_later(state.round):
            return None
        if mine.token not in state.round.order:  # the directory was removed, and begun anew
            self._membership.rejoin(self._lease.ends)
            return None
        if self.round is None:
            self._own_element.report(Standing.JOINED)
        if not state.crashes:
            self._failures.take_back()
        self.round = state.round
        self._is_told = False
        self._forewarning.clear()
        self._newcomers, self._growth = Unchanged(), Unchanged()
        return state.round

    def _is_later(self, found: Round) -> bool:
        """Whether a round was formed after the one this agent was in. Numbers begin anew where
        somebody has removed the directory meanwhile."""
        mine = self.round
        return mine is None or found.number > mine.number or found.formed_at > mine.formed_at

    def _is_to_form(self, state: State, quiet_s: float, waited_s: float) -> bool:
        if not may_form(state, self._options.limits, quiet_s, waited_s):
            return False
        return ranked(state, self._options.limits)[0].token == self._membership.token

    def _pause(self, state: State, quiet_s: float) -> float:
        is_lively = bool(pending(state)) or quiet_s < 10.0
        base = self._options.poll_s / 2 if is_lively else 1.0
        return base * random.uniform(0.8, 1.2)

    # -- stopping for another round

    def should_stop(self, meet: Callable[[Callable[[], bool]], None]) -> bool:
        """Whether the healthy workers must stop now. `meet(is_broken)` returns when all
        agents of the round are about to do the same, or `is_broken()` says it is vain."""
        now = time.monotonic()
        is_news = self._signals.has_notice and not self.is_leaving
        if now < self._next_look and not is_news:
            return False
        self._next_look = now + self._options.poll_s
        try:
            self._is_told = self._look(meet, now)
        except DirectoryError as error:
            self._directory.complain(error)  # training goes on without news
        return self._is_told

    def _look(self, meet: Callable[[Callable[[], bool]], None], now: float) -> bool:
        state = self._announce_if_asked(self._directory.once.read())
        self._evidence.hear_samples(state)
        reason = self._reason(state)
        if reason is Stop.NO or (reason is Stop.GROW and not self._has_settled(state)):
            return False
        if reason is not Stop.NOW:
            self._announce_if_asked(state, together=True)
            if not self._forewarning.is_heard(reason, now):
                return False  # the workers are on their way to a boundary
            meet(self.is_broken)
            self._evidence.see_planned_change(state)
        return True

    def hear_planned_change(self) -> None:
        """Others came or went as planned, and the workers here trained on. Does not raise."""
        with suppressed(DirectoryError, doing="reading the state after a planned change"):
            self._evidence.see_planned_change(self._directory.once.read())

    def _reason(self, state: State) -> Stop:
        if state.outcome is Outcome.FAILED:
            return Stop.NOW
        return stop_reason(state, self._membership.token, self._options.limits)

    def is_broken(self) -> bool:
        """Whether the current round has lost somebody; meanwhile wishes are announced."""
        try:
            state = self._announce_if_asked(self._directory.once.read())
            return self._reason(state) is Stop.NOW
        except DirectoryError as error:
            debug("looking whether the round is broken", error)
            return False

    def _has_settled(self, state: State) -> bool:
        now = time.monotonic()
        quiet_s = self._newcomers.observe(now, newcomers(state))
        known_s = self._growth.observe(now, True)
        return has_settled(state, self._options.settle_s, quiet_s, known_s)

    def _announce_if_asked(self, state: State, together: bool = False) -> State:
        if self.is_leaving or not self.is_asked_to_go(together):
            return state
        state = self._membership.announce_leave()
        self.is_leaving = True
        self._own_element.report(Standing.LEAVING)
        return state

    def is_asked_to_go(self, together: bool = False) -> bool:
        """Whether this fragment was given notice or its lease ends."""
        return self._signals.has_notice or self._lease.is_over(time.time(), together)

    # -- leaving, finishing
    def _leave_if_asked(self) -> None:
        if not self.is_leaving and not self.is_asked_to_go():
            return
        deadline = time.monotonic() + self._options.leave_s
        while time.monotonic() < deadline and self._is_awaited():
            time.sleep(self._options.poll_s / 2)
        self._membership.depart(self._signals, planned=True)
        self.say_leave()
        raise Leave

    def say_leave(self) -> None:
        """One line to the job's log: this fragment goes, and why."""
        why = "as it was asked to" if self._signals.has_notice else "because its lease ends"
        say(f"fragment {self._membership.me.fragment} leaves {why}")

    def _is_awaited(self) -> bool:
        try:
            state = self._directory.once.read()
        except DirectoryError as error:
            debug("looking whether others wait for this fragment", error)
            return False
        return has_running_peers(state, self.round, self._membership.token)

    def succeed(self) -> None:
        """The workers of this agent finished the training. Does not raise."""
        self._membership.tell_success()

    def await_end(self) -> Outcome:
        """Wait until everybody has finished, is gone, or this one must go (then the outcome
        is open). Does not raise."""
        return self._membership.await_end(self.is_asked_to_go, self._options.poll_s)

    def close(self, is_failure: bool) -> None:
        """The agent ends: after a failure it is no member any more, after a success it
        stays listed as done. Does not raise."""
        if is_failure:
            self._membership.depart(self._signals, planned=False)
        self._membership.fall_silent(self._signals)

    def is_over(self) -> bool:
        """Whether the training ended, well or not."""
        return self._directory.read_patiently().outcome is not Outcome.OPEN

    def _exit_if_over(self, state: State) -> None:
        if state.outcome is Outcome.FINISHED:
            self._membership.skip(self._signals)
        if state.outcome is Outcome.FAILED:
            self.give_up(
                f"the workers failed {state.crashes} times in a row though no fragment was lost; "
                "their messages are above"
            )
        mine = find(state, self._membership.token)
        if mine is None or not is_stranded(state, mine.token, self._options.limits):
            return
        if mine.failed:
            self.give_up("the workers failed here after other fragments had finished")
        self._membership.skip(self._signals)

    def give_up(self, why: str) -> NoReturn:
        """End the process: it counts as a failure of this fragment."""
        self._membership.depart(self._signals, planned=False)
        raise SystemExit(f"malleable: giving up: {why}")
