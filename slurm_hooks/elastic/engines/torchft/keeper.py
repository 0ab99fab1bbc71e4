"""The part of an agent in a torchft training. The agent announces its replica group, passes the
group's connections on to the lighthouse, and keeps the lighthouse when it is its turn.

Replica groups need no rounds: torchft admits and releases them between two steps. But they need a
lighthouse, and the job must be able to lose any of its hosts. So the agent with the longest lease
keeps it. The next agent takes over before it leaves, or when it dies.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Optional

from slurm_hooks.elastic.agent.actions import UNTIL_ADMITTED, Action, GiveUp, Over
from slurm_hooks.elastic.agent.membership import Membership
from slurm_hooks.elastic.agent.options import Options
from slurm_hooks.elastic.engines.torchft.keeper_state import KeeperState
from slurm_hooks.elastic.engines.torchft.lighthouse import (
    Lighthouse,
    LighthouseError,
    LighthouseTiming,
)
from slurm_hooks.elastic.engines.torchft.relay import Relay, Target
from slurm_hooks.elastic.engines.torchft.succession import (
    at_work,
    begin_term,
    difference,
    enlist,
    first_quorum,
    keeper,
    successors,
)
from slurm_hooks.elastic.liveness.ping import Answer, ping
from slurm_hooks.elastic.log import endured, say
from slurm_hooks.elastic.rendezvous.causes import Cause, CauseKind, is_loss, text_of
from slurm_hooks.elastic.rendezvous.directory import DirectoryError
from slurm_hooks.elastic.rendezvous.rounds_log import describe_groups, record_groups
from slurm_hooks.elastic.rendezvous.state import (
    Admission,
    Outcome,
    Phase,
    Round,
    State,
    find,
    is_superseded,
)

LOST_POLL_S = 0.05
TURN_S = 2.0  # for each successor; then it is the turn of the next
HAND_OVER_S = 10.0


class Keeper:
    """A Companion. Between the calls it works in its own thread."""

    def __init__(
        self,
        options: Options,
        timing: LighthouseTiming,
        membership: Membership,
    ) -> None:
        self._options = options
        self._timing = timing
        self._membership = membership
        self._directory = membership.directory
        self._shared = KeeperState()
        self._relay = Relay(self._shared.lose)
        self._met_term = 0  # the last term whose keeper has answered
        self._logged: tuple[int, ...] = ()
        self._peers: tuple[int, ...] = ()  # the fragments at work at the last look
        self._is_fit = True  # to keep the lighthouse
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        """The lighthouse's address for the training processes of this node."""
        return f"http://127.0.0.1:{self._relay.port}"

    def begin_wait(self) -> None:
        """See Companion."""
        self._membership.restarts += self._thread is not None

    def enter(self, ends: int) -> Optional[Action]:
        """See Companion."""
        if self._thread is not None:
            return None
        if twin := self._membership.twin():
            return GiveUp(twin)
        verdict = self._membership.ask_in(ends)
        if verdict is Admission.WAIT:
            return UNTIL_ADMITTED
        if verdict is Admission.NOTHING_LEFT:
            self._membership.skip()
            return Over()
        self._directory.update_patiently(lambda s: enlist(s, self._membership.token))
        self._thread = threading.Thread(target=self._run, name="malleable-keeper", daemon=True)
        self._thread.start()
        return None

    # -- in the background

    def _run(self) -> None:
        is_endured = endured("keeping the lighthouse")
        while not self._shared.is_stopped:
            with is_endured:
                self._try_to_look()
            is_urgent = self._shared.is_urgent()
            self._shared.wait(LOST_POLL_S if is_urgent else self._options.poll_s)

    def _try_to_look(self) -> None:
        try:
            self._look(self._directory.once.read())
        except DirectoryError as error:
            self._directory.complain(error)
        except LighthouseError as error:
            say(str(error))
            self._is_fit = False  # it is the turn of the next

    def _look(self, state: State) -> None:
        if state.outcome is not Outcome.OPEN or self._shared.is_stopped:
            return
        self._stay_listed(state)
        kept_by = keeper(state, self._shared.lost_term)
        if kept_by is None:
            if self._is_my_turn(state):
                self._take_over()
            return
        self._shared.find()
        if kept_by.token != self._membership.token and not self._shared.is_leaving:
            self._shared.serve(None)  # taken for dead: its clients move, too
        self._tell(state)
        self._see_change(state)
        self._point(state)

    def _see_change(self, state: State) -> None:
        now, mine = at_work(state), self._membership.me.fragment
        if mine in self._peers and mine in now and now != self._peers:
            self._shared.note_change(not is_loss(difference(self._peers, now, state)))
        self._peers = now

    def take_planned_change(self) -> bool:
        """See Companion."""
        return self._shared.take_planned_change()

    def _point(self, state: State) -> None:
        there = sum(1 for m in state.members if m.phase is not Phase.READY)
        term = state.round
        if term is None or there < self._options.limits.smallest:
            self._relay.point_at(None, abruptly=True)
            return
        if term.number == self._met_term or self._meets(state, term):
            self._met_term = term.number
            is_dead = is_loss(term.causes)  # of the last keeper
            self._relay.point_at(Target(term.number, term.host, term.port), abruptly=is_dead)

    def _meets(self, state: State, term: Round) -> bool:
        """Tell whether the keeper's agent lives and is the right agent. A port alone may by now
        belong to the lighthouse of another job.
        """
        member = find(state, term.order[0])
        if member is None or not member.ping_port:
            return False
        answer = ping(member.host, member.ping_port, member.token)
        if answer is Answer.GONE:
            self._shared.lose(term.number)
        return answer is Answer.ALIVE

    def _stay_listed(self, state: State) -> None:
        me = self._membership.me
        if find(state, me.token) or self._shared.is_leaving or is_superseded(state, me):
            return
        self._membership.rejoin(me.ends)  # it was taken for dead
        self._directory.update_patiently(lambda s: enlist(s, me.token))

    def _is_my_turn(self, state: State) -> bool:
        heirs = successors(state, self._shared.lost_term)
        if self._shared.is_leaving or not self._is_fit or self._membership.token not in heirs:
            return False
        turn = heirs.index(self._membership.token)
        return self._shared.search_s() >= turn * TURN_S

    def _take_over(self) -> None:
        self._shared.serve(None)
        lighthouse = Lighthouse(self._options.host, self._timing)
        self._shared.serve(lighthouse)
        lighthouse.count_to(first_quorum(self._directory.once.read().rounds + 1))
        place, now = (self._options.host, lighthouse.port), int(time.time())
        token, before = self._membership.token, [State(run="")]

        def change(state: State) -> State:
            before[:] = [state]
            return begin_term(state, token, place, now, self._shared.lost_term)

        after = self._directory.once.update(change)
        if after.round is None or (after.round.host, after.round.port) != place:
            self._shared.serve(None)  # another agent was faster
            return
        cause = text_of(after.round.causes)
        say(f"fragment {after.round.fragments[0]} keeps the lighthouse: {cause}")
        self._logged = _known_to(before[0])
        self._shared.wake()

    def _tell(self, state: State) -> None:
        """Log which fragments train, whenever that has changed. The keeper does this."""
        now, term = at_work(state), state.round
        if term is None or now == self._logged or term.order[0] != self._membership.token:
            return
        start = (Cause(CauseKind.START),)
        causes = difference(self._logged, now, state) if self._logged else start
        say(describe_groups(now, len(self._logged), causes))
        self._logged = now
        change = replace(term, formed_at=int(time.time()))
        line = record_groups(change, now, causes, self._membership.restarts)
        self._directory.once.log_round(line)

    # -- the end

    def leave(self) -> None:
        """Hand over to the next keeper, then take this group off its lighthouse. Does not raise.

        The group ends its present step with the others, and they do not wait for it in the next.
        Returns when the lighthouse has forgotten it, and its training processes may be stopped.
        """
        if self._thread is None or not self._shared.begin_leave():
            return
        deadline = time.monotonic() + HAND_OVER_S
        try:
            state = self._membership.announce_leave()
            self._shared.wake()
            while self._is_awaited(state) and time.monotonic() < deadline:
                time.sleep(LOST_POLL_S)
                state = self._directory.once.read()
        except DirectoryError as error:
            self._directory.complain(error)
        self._relay.silence()
        self._shared.serve(None)  # all at once: each asks again, and reaches the next
        time.sleep(self._timing.beat_s)

    def _is_awaited(self, state: State) -> bool:
        mine = self._membership.token
        is_mine = state.round is not None and state.round.order[0] == mine
        return is_mine and any(m.phase is Phase.ACTIVE for m in state.members)

    def succeed(self) -> None:
        """The training processes here have finished. Does not raise."""
        self._membership.tell_success()

    def outcome(self) -> Optional[Outcome]:
        """See Membership."""
        return self._membership.outcome()

    def close(self, is_failure: bool) -> None:
        """This agent ends. Does not raise."""
        self._shared.stop()
        is_leaving = self._shared.is_leaving
        if is_failure or is_leaving:
            self._membership.depart(planned=is_leaving)
        self._membership.fall_silent()
        if self._thread is not None:
            self._thread.join(3.0)
        self._relay.stop()
        self._shared.serve(None)


def _known_to(state: State) -> tuple[int, ...]:
    """Return the fragments that trained when the keeper of `state` last looked, itself included."""
    if state.round is None:
        return ()
    return tuple(sorted({*at_work(state), *state.round.fragments}))
