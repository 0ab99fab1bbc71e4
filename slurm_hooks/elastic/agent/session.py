"""The way of an agent through the training: join, wait for a round, stop for the next round, leave,
finish.

The session passes the state, the time and the facts of this agent to the decision functions. It
returns the action for its caller to carry out. Before it returns, it does these things itself:
* put this agent on the waiting list, for the first time or again after a round,
* announce that it leaves,
* remove other agents that are dead,
* take over the round to enter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Optional

from slurm_hooks.elastic.agent.actions import (
    UNTIL_ADMITTED,
    Action,
    Enter,
    Form,
    GiveUp,
    Leave,
    Outlived,
    Over,
    Patience,
    Rejoin,
    Wait,
    next_action,
)
from slurm_hooks.elastic.agent.evidence import Evidence
from slurm_hooks.elastic.agent.failure_reports import FailureReports
from slurm_hooks.elastic.agent.forewarning import Forewarning
from slurm_hooks.elastic.agent.forming import Forming
from slurm_hooks.elastic.agent.membership import Membership
from slurm_hooks.elastic.agent.options import Options
from slurm_hooks.elastic.agent.settling import Settling
from slurm_hooks.elastic.agent.sight import Sight
from slurm_hooks.elastic.batch.lease import Lease
from slurm_hooks.elastic.batch.own_element import OwnElement
from slurm_hooks.elastic.batch.remark import withdraw_trouble, write_remark
from slurm_hooks.elastic.liveness.apart import Apart
from slurm_hooks.elastic.liveness.watch import Unchanged
from slurm_hooks.elastic.log import debug, say, suppressed
from slurm_hooks.elastic.rendezvous.directory import DirectoryError
from slurm_hooks.elastic.rendezvous.rounds import (
    expected,
    has_finished_peer,
    has_running_peers,
    stop_reason,
)
from slurm_hooks.elastic.rendezvous.state import Admission, Outcome, Round, State, Stop, find
from slurm_hooks.elastic.signals import SignalListener
from slurm_hooks.protocol.comment import Standing

FIND_DEAD_S = 0.3
SLOW_S = 1.0


class Session:
    """`round` is the round this agent is or was in, `is_in` whether it has joined, `is_leaving`
    whether it has said that it will not be in the next round. `is_warming`: see Settling.

    Methods raise DirectoryError if the shared directory stays out of order.
    """

    def __init__(
        self,
        options: Options,
        membership: Membership,
        lease: Lease,
        signals: SignalListener,
        forewarning: Forewarning | None = None,
        own_element: OwnElement | None = None,
        sight: Sight | None = None,
    ) -> None:
        self.round: Round | None = None
        self.is_warming: Callable[[], bool] = lambda: False
        self._options = options
        self._membership = membership
        self._directory = membership.directory
        self._lease = lease
        self._signals = signals
        self._forewarning = forewarning or Forewarning(None, 0.0)
        self._own_element = own_element or OwnElement({}, signals)
        self._sight = sight or Sight(None, self._own_element, keep_state=False)
        self._failures = FailureReports()
        self._apart = Apart(str(options.directory))
        self._forming = Forming(options, membership, self._failures)
        self._evidence = Evidence(membership, self._forewarning, self._own_element, self._failures)
        self.is_in = self.is_leaving = self._is_stopping = False
        self._next_look = 0.0
        self._settling = Settling(options.settle_s)
        self.begin_wait()

    @property
    def rank(self) -> int:
        """This agent's rank in its round."""
        return self.round.order.index(self._membership.token) if self.round else 0

    @property
    def fragment(self) -> int:
        """The number of this fragment."""
        return self._membership.me.fragment

    @property
    def ends(self) -> int:
        """The end of this lease in epoch seconds, 0 if unknown."""
        return self._lease.ends

    # -- joining and waiting

    def begin_wait(self, exit_code: Optional[int] = None, is_seen: bool = True) -> None:
        """No workers run here, and a round is wanted.

        `exit_code` is the exit code of the workers: 0 if it is unknown or there were no workers. It
        is `None` if the wait goes on after a round that broke before it began, which is no failure.
        `is_seen` is false if a failure of the workers would show on another node only.
        """
        has_failed = exit_code is not None and self.round is not None and not self._is_stopping
        self._failed = 1 + (exit_code or 0) if has_failed else 0
        if has_failed:
            self._failures.look_here(self.fragment)
        self._sound = int(self._is_stopping and is_seen and exit_code == 0)
        self._leave_by: Optional[float] = None
        self._waits_since: Optional[float] = None  # set when it is on the waiting list
        self._quiet = Unchanged()

    def next_action(self) -> Action:
        """Return the next action on the way to the next round."""
        action = self._next_leave() or self._get_listed()
        if action:
            return action
        state = self._directory.read_patiently()
        action = next_action(
            state, self._membership.me, self.round, self._options.limits, self._patience(state)
        )
        if isinstance(action, Rejoin):
            return self._yield() or self._outlived(state) or action
        if isinstance(action, Enter):
            self._take_part(action.round, state)
        elif isinstance(action, Wait):
            self._find_dead(state)
            if self._is_before_first(state) and self._apart.wait(time.monotonic(), state):
                self._own_element.report(Standing.WAITING)
        elif isinstance(action, Form) and self._is_held_up(state):
            action = Wait(SLOW_S)
        return self._give_up() or action

    def _is_held_up(self, state: State) -> bool:
        """Tell whether the first round waits for fragments that seem to train in another
        directory.
        """
        return self._is_before_first(state) and self._apart.holds_up(time.monotonic(), state)

    def _is_before_first(self, state: State) -> bool:
        """Tell whether no round has begun. An agent that was in a round sees this when a new list
        has begun.
        """
        return self.round is None and not state.rounds

    def _give_up(self) -> Optional[GiveUp]:
        if not self._apart.why:
            return None
        self._own_element.report_apart()
        write_remark(self._apart.why)
        self._signals.wait_end(self._apart.linger_s)
        return GiveUp(self._apart.why)

    def _patience(self, state: State) -> Patience:
        now = time.monotonic()
        waited_s = now - (self._waits_since or now)
        quiet_s = self._quiet.observe(now, expected(state))
        return Patience(waited_s, quiet_s, self._options.wait_s, self._options.poll_s)

    def _get_listed(self) -> Optional[Action]:
        """Be on the waiting list. Return another action if there is no round to wait for."""
        if self._waits_since is not None:
            return None
        if (action := self._yield()) is not None:
            return action
        if self.is_in:
            return self._come_back()
        verdict = self._membership.ask_in(self._lease.ends)
        if verdict is Admission.WAIT:
            return UNTIL_ADMITTED
        if verdict is Admission.OUTLIVED:
            return Outlived()
        self.is_in, self._waits_since = True, time.monotonic()
        if verdict is Admission.NOTHING_LEFT:
            return Over()
        if verdict is Admission.RESTART:
            say(f"an earlier training in {self._options.directory} ended; this is a new one")
        return None

    def _yield(self) -> Optional[GiveUp]:
        """Give up for another agent of this fragment, if there is such an agent."""
        twin = self._membership.twin()
        return GiveUp(twin) if twin else None

    def _outlived(self, state: State) -> Optional[Outlived]:
        is_given_up = find(state, self._membership.token) is None
        return Outlived() if is_given_up and self._own_element.is_outlived() else None

    def _come_back(self) -> Optional[Outlived]:
        """Get on the list again. If the others have given this agent up, Slurm may have as well."""
        terms = self._lease.ends, self._failed, self._sound
        if not self._membership.rejoin_if_listed(*terms):
            if self._own_element.is_outlived():
                return Outlived()
            self._membership.rejoin(*terms)
        self._waits_since = time.monotonic()
        return None

    def note_launch(self, words: Sequence[str]) -> None:
        """Note the script and its arguments, before this agent joins."""
        self._membership.note_launch(words)

    @property
    def words(self) -> Sequence[str]:
        """The script and the arguments of this round, empty if they are unknown."""
        return self._membership.words

    def rejoin(self) -> None:
        """Carry Rejoin out."""
        self._membership.rejoin(self._lease.ends)

    def form(self, queue: tuple[str, ...], port: int) -> None:
        """Carry Form out, with the store at `port` of this node."""
        self._forming.form(queue, port)

    def _find_dead(self, state: State) -> None:
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + FIND_DEAD_S
            self._membership.find_dead(state)

    def _take_part(self, round_: Round, state: State) -> None:
        if self.round is None:
            self._own_element.report(Standing.JOINED)
            withdraw_trouble()
        if not state.crashes:
            self._failures.take_back()
        self._membership.follow_newest(state, round_)
        self._sight.begin_round(time.monotonic(), round_, is_first=self.round is None)
        self.round = round_
        self._is_stopping = False
        self._forewarning.clear()
        self._settling = Settling(self._options.settle_s)

    # -- stopping for another round

    def look(self) -> Stop:
        """Tell whether the healthy workers must stop: not (Stop.NO), alone (Stop.NOW), or together
        with the other agents of the round.
        """
        now = time.monotonic()
        is_news = self._signals.has_notice and not self.is_leaving
        is_news = is_news or self._forewarning.is_answered()
        if now < self._next_look and not is_news:
            return Stop.NO
        self._next_look = now + self._options.poll_s
        self._sight.look(now, self.rank)
        try:
            reason = self._look(now)
        except DirectoryError as error:
            self._directory.complain(error)  # training goes on without news
            reason = Stop.NO
        self._is_stopping = reason is not Stop.NO
        return reason

    def _look(self, now: float) -> Stop:
        state = self._announce_if_asked(self._directory.once.read())
        training = self._sight.training(now)
        self._evidence.hear_samples(state)
        self._evidence.see_checkpoint(state, training.saved_s)
        if find(state, self._membership.token):  # else a user has removed the directory
            self._apart.look(now, state)
        if self._apart.why:
            return Stop.NOW
        reason = self._reason(state)
        is_settled = self._settling.is_over(state, now, training, self.is_warming)
        may_grow = is_settled and not self.has_ended
        if reason is Stop.NO or (reason is Stop.GROW and not may_grow):
            self._forewarning.withdraw()
            return Stop.NO
        if reason is not Stop.NOW:
            self._announce_if_asked(state, together=True)
            if not self._forewarning.is_heard(reason, now):
                return Stop.NO  # the workers are on their way to a boundary
            self._evidence.see_planned_change(state)
        return reason

    @property
    def has_ended(self) -> bool:
        """True if the training has made its last step here, so that a growth is worth nothing."""
        return self._forewarning.has_ended()

    def call_off(self) -> None:
        """The workers here are not stopped for the change that `look` has seen."""
        self._is_stopping = False

    @property
    def is_training_paused(self) -> bool:
        """True if the workers wait at a boundary to be stopped."""
        return self._forewarning.is_answered()

    def hear_planned_change(self) -> None:
        """Others joined or left as planned, and the workers here trained on. Does not raise."""
        with suppressed(DirectoryError, doing="reading the state after a planned change"):
            self._evidence.see_planned_change(self._directory.once.read())

    def _reason(self, state: State) -> Stop:
        if state.outcome is Outcome.FAILED:
            return Stop.NOW
        return stop_reason(state, self._membership.token, self._options.limits)

    def is_broken(self) -> bool:
        """Tell whether the current round has lost a member. A wish to leave is announced as
        well.
        """
        try:
            state = self._announce_if_asked(self._directory.once.read())
            return self._reason(state) is Stop.NOW
        except DirectoryError as error:
            debug("looking whether the round is broken", error)
            return False

    def is_ending(self) -> bool:
        """Tell whether a member of the current round has finished. Does not raise."""
        with suppressed(DirectoryError, doing="looking whether the round is ending"):
            return has_finished_peer(self._directory.once.read(), self.round)
        return False

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

    def _next_leave(self) -> Optional[Action]:
        """Leave if this fragment is asked to, once the others have stopped as well."""
        if self._leave_by is None and not self.is_leaving and not self.is_asked_to_go():
            return None  # a leave that has begun goes on, even if the lease is renewed
        now = time.monotonic()
        self._leave_by = self._leave_by or now + self._options.leave_s
        if now < self._leave_by and self._is_awaited():
            return Wait(self._options.poll_s / 2)
        return Leave()

    def unwritten(self) -> str:
        """Return the file that this leaving agent must write from its node's memory. Does not
        raise.

        It writes a file if every agent before it in the order of its round is gone. Else the result
        is empty.
        """
        file = self._forewarning.file()
        if self.round is None or not file:
            return ""
        with suppressed(DirectoryError, doing="looking who is left"):
            state = self._directory.once.read()
            if any(find(state, token) for token in self.round.order[: self.rank]):
                return ""
        return file

    def leave(self) -> None:
        """Carry Leave out. Does not raise."""
        self._membership.depart(planned=True)
        self._sight.end()
        self.say_leave()

    def say_leave(self) -> None:
        """Write a line to the job's log: this fragment leaves, and why."""
        why = "as it was asked to" if self._signals.has_notice else "because its lease ends"
        say(f"fragment {self._membership.me.fragment} leaves {why}")

    def _is_awaited(self) -> bool:
        try:
            state = self._directory.once.read()
        except DirectoryError as error:
            debug("looking whether others wait for this fragment", error)
            return False
        return has_running_peers(state, self.round, self._membership.token)

    def skip(self) -> None:
        """Carry Over out. Raises DirectoryError."""
        if self.is_in:
            self._membership.skip()

    def succeed(self) -> None:
        """The workers of this agent finished the training. Does not raise."""
        self._membership.tell_success()

    def outcome(self) -> Optional[Outcome]:
        """See Membership."""
        return self._membership.outcome()

    def is_deserted(self) -> bool:
        """See Membership."""
        return self._membership.is_deserted()

    def close(self, is_failure: bool) -> None:
        """This agent ends. After a failure it is no longer a member. After a success it stays
        listed as done. Does not raise.
        """
        if is_failure:
            self._membership.depart(planned=False)
        self._membership.fall_silent()

    def is_over(self) -> bool:
        """Tell whether the training has ended, well or not."""
        return self._directory.read_patiently().outcome is not Outcome.OPEN
