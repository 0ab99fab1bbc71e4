"""One agent's way through the training: join, wait for a round, stop for the next one,
leave, finish. It joins the pure decisions to the directory and the clock, and knows
nothing of torch: what needs a store is handed in.

It ends the process by SystemExit, because that is what torchrun passes through quietly
(a RendezvousGracefulExitError from a custom handler ends in a stack trace).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import NoReturn

from .directory import DirectoryError
from .forewarn import Forewarning
from .lease import Lease
from .membership import Membership
from .notice import Notice
from .options import Options, say
from .rounds import (
    expected,
    form,
    has_running_peers,
    has_settled,
    is_stranded,
    may_form,
    newcomers,
    pending,
    ranked,
    stop_reason,
)
from .rounds_log import describe, record
from .state import Admission, Outcome, Phase, Round, State, Stop, find, is_superseded
from .watch import Quiet

SEEK_S = 0.3


class Session:
    """`round` is the round this agent is or was in, `is_in` whether it has joined,
    `is_leaving` whether it has said that it will not be in the next one. Methods raise
    DirectoryError when the shared directory is lastingly out of order."""

    def __init__(
        self,
        options: Options,
        membership: Membership,
        lease: Lease,
        notice: Notice,
        forewarning: Forewarning | None = None,
    ) -> None:
        self.round: Round | None = None
        self._options = options
        self._membership = membership
        self._directory = membership.directory
        self._lease = lease
        self._notice = notice
        self._forewarning = forewarning or Forewarning(None, 0.0)
        self.is_in = False
        self._is_told = False
        self.is_leaving = False
        self._next_look = 0.0
        self._newcomers = Quiet()
        self._growth = Quiet()

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
        """Join the waiting list; ends the process if there is nothing to join."""
        self._leave_if_asked()
        if self.is_in:
            failed = self.round is not None and not self._is_told and not is_retry
            self._membership.rejoin(self._lease.ends, failed)
            return
        verdict = self._membership.ask_in(self._notice, self._lease.ends)
        while verdict is Admission.WAIT:
            time.sleep(1.0)
            self._leave_if_asked()
            verdict = self._membership.ask_in(self._notice, self._lease.ends)
        self.is_in = True
        if verdict is Admission.NOTHING_LEFT:
            self._exit_finished()
        if verdict is Admission.RESTART:
            say(f"an earlier training in {self._options.directory} ended; this is a new one")

    def wait_for_round(self, open_store: Callable[[], int]) -> Round:
        """Block until this agent is in a new round. If it is to be rank 0, `open_store`
        is called for the port of the store it hosts."""
        started = time.monotonic()
        quiet = Quiet()
        port = 0
        while True:
            self._leave_if_asked()
            state = self._directory.read()
            self._exit_if_over(state)
            found = self._new_round(state)
            if found:
                return found
            self._seek_dead(state)
            now = time.monotonic()
            quiet_s = quiet.observe(now, expected(state))
            if self._is_to_form(state, quiet_s, now - started):
                port = port or open_store()
                self._form(expected(state), port)
                continue
            if now - started > self._options.wait_s:
                self._give_up(f"fewer than {self._options.limits.smallest} fragments for too long")
            time.sleep(self._pause(state, quiet_s))

    def _seek_dead(self, state: State) -> None:
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + SEEK_S
            self._membership.seek_dead(state)

    def _new_round(self, state: State) -> Round | None:
        mine = find(state, self._membership.token)
        if mine is None:
            if is_superseded(state, self._membership.me):
                self._give_up("a newer run of this fragment has taken its place")
            self._membership.rejoin(self._lease.ends)  # taken for dead meanwhile
            return None
        last = self.round.number if self.round else 0
        if mine.phase is not Phase.ACTIVE or not state.round or state.round.number <= last:
            return None
        self.round = state.round
        self._is_told = False
        self._forewarning.clear()
        self._newcomers, self._growth = Quiet(), Quiet()
        return state.round

    def _is_to_form(self, state: State, quiet_s: float, waited_s: float) -> bool:
        if not may_form(state, self._options.limits, quiet_s, waited_s):
            return False
        return ranked(state, self._options.limits)[0].token == self._membership.token

    def _form(self, queue: tuple[str, ...], port: int) -> None:
        before: list[State] = []

        def change(state: State) -> State:
            before[:] = [state]
            is_open = state.outcome is Outcome.OPEN and expected(state) == queue
            first = ranked(state, self._options.limits)[:1]  # by now it may be formed, or another's
            if not is_open or [m.token for m in first] != [self._membership.token]:
                return state
            return form(state, self._options.limits, self._options.host, port, int(time.time()))

        after = self._directory.update(change)
        if after.round is not None and after.round != before[0].round:
            self._report(before[0].round, after.round)

    def _report(self, old: Round | None, new: Round) -> None:
        if self._options.is_told:
            say(describe(old, new))
        try:
            self._directory.plain.log_round(record(new, self._membership.restarts))
        except DirectoryError as error:
            self._directory.complain(error)

    def _pause(self, state: State, quiet_s: float) -> float:
        is_lively = bool(pending(state)) or quiet_s < 10.0
        base = self._options.poll_s / 2 if is_lively else 1.0
        return base * random.uniform(0.8, 1.2)

    # -- stopping for another round

    def should_stop(self, meet: Callable[[Callable[[], bool]], None]) -> bool:
        """Whether the healthy workers must stop now. `meet(is_broken)` returns when all
        agents of the round are about to do the same, or `is_broken()` says it is vain."""
        now = time.monotonic()
        is_news = self._notice.is_given and not self.is_leaving
        if now < self._next_look and not is_news:
            return False
        self._next_look = now + self._options.poll_s
        try:
            self._is_told = self._look(meet, now)
        except DirectoryError as error:
            self._directory.complain(error)  # training goes on without news
        return self._is_told

    def _look(self, meet: Callable[[Callable[[], bool]], None], now: float) -> bool:
        state = self._announce_if_asked(self._directory.plain.read())
        reason = self._reason(state)
        if reason is Stop.NO or (reason is Stop.GROW and not self._has_settled(state)):
            return False
        if reason is not Stop.NOW:
            self._announce_if_asked(state, together=True)
            if not self._forewarning.is_heard(reason, now):
                return False  # the workers are on their way to a boundary
            meet(self.is_broken)
        return True

    def _reason(self, state: State) -> Stop:
        if state.outcome is Outcome.FAILED:
            return Stop.NOW
        return stop_reason(state, self._membership.token, self._options.limits)

    def is_broken(self) -> bool:
        """Whether the current round has lost somebody; meanwhile wishes are announced."""
        try:
            state = self._announce_if_asked(self._directory.plain.read())
            return self._reason(state) is Stop.NOW
        except DirectoryError:
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
        return state

    def is_asked_to_go(self, together: bool = False) -> bool:
        """Whether this fragment was given notice or its lease ends."""
        return self._notice.is_given or self._lease.is_over(time.time(), together)

    # -- leaving, finishing
    def _leave_if_asked(self) -> None:
        if not self.is_leaving and not self.is_asked_to_go():
            return
        deadline = time.monotonic() + self._options.leave_s
        while time.monotonic() < deadline and self._is_awaited():
            time.sleep(self._options.poll_s / 2)
        self._membership.depart(self._notice, planned=True)
        why = "as it was asked to" if self._notice.is_given else "because its lease ends"
        say(f"fragment {self._membership.me.fragment} leaves {why}")
        raise SystemExit(0)

    def _is_awaited(self) -> bool:
        try:
            state = self._directory.plain.read()
        except DirectoryError:
            return False
        return has_running_peers(state, self.round, self._membership.token)

    def succeed(self) -> None:
        """The workers of this agent finished the training. Does not raise."""
        self._membership.tell_success()

    def await_end(self) -> None:
        """Wait until everybody has finished, is gone, or this one must go. Does not raise."""
        self._membership.await_end(self.is_asked_to_go, self._options.poll_s)

    def close(self, is_failure: bool) -> None:
        """The agent ends: after a failure it is no member any more, after a success it
        stays listed as done. Does not raise."""
        if is_failure:
            self._membership.depart(self._notice, planned=False)
        self._membership.fall_silent(self._notice)

    def is_over(self) -> bool:
        """Whether the training ended, well or not."""
        return self._directory.read().outcome is not Outcome.OPEN

    def _exit_if_over(self, state: State) -> None:
        if state.outcome is Outcome.FINISHED:
            self._exit_finished()
        if state.outcome is Outcome.FAILED:
            self._give_up(
                f"the workers failed {state.crashes} times in a row though no fragment was lost; "
                "their messages are above"
            )
        mine = find(state, self._membership.token)
        if mine is None or not is_stranded(state, mine.token, self._options.limits):
            return
        if mine.failed:
            self._give_up("the workers failed here after other fragments had finished")
        self._exit_finished()

    def _exit_finished(self) -> NoReturn:
        self._membership.pass_stage()
        self._membership.depart(self._notice, planned=True)
        fragment = self._membership.me.fragment
        say(f"the training has already finished; fragment {fragment} has nothing to do")
        raise SystemExit(0)

    def _give_up(self, why: str) -> NoReturn:
        self._membership.depart(self._notice, planned=False)
        raise SystemExit(f"malleable: giving up: {why}")
