"""One agent's part in a torchft training: it says that its replica group is there, passes the
group on to the lighthouse wherever that is, and keeps the lighthouse when it is its turn.

Replica groups need no rounds: torchft takes them in and lets them go between two steps. What
they need is a lighthouse, and no host of the job may be one that it cannot lose. So the one
that stays longest keeps it; before it leaves, the next one takes over, and when it dies, too.
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
TURN_S = 2.0  # if the first successor does not act, it is the next one's turn
HAND_OVER_S = 10.0


class Keeper:
    """A Companion; what it does beside the calls happens in a thread of its own."""

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
        self._met_term = 0  # its keeper has answered
        self._told: tuple[int, ...] = ()
        self._peers: tuple[int, ...] = ()  # who was at work at the last look
        self._is_fit = True  # to keep the lighthouse
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        """The lighthouse as the training processes of this node know it."""
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
            self._is_fit = False  # the next one's turn

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
            self._shared.serve(None)  # taken for dead: those who are here go there, too
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
            is_dead = is_loss(term.causes)  # the one before
            self._relay.point_at(Target(term.number, term.host, term.port), abruptly=is_dead)

    def _meets(self, state: State, term: Round) -> bool:
        """Whether the keeper's agent lives and is the one that it should be: a port alone may
        belong to the lighthouse of another job by now."""
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
        self._membership.rejoin(me.ends)  # taken for dead meanwhile
        self._directory.update_patiently(lambda s: enlist(s, me.token))

    def _is_my_turn(self, state: State) -> bool:
        next_ones = successors(state, self._shared.lost_term)
        if self._shared.is_leaving or not self._is_fit or self._membership.token not in next_ones:
            return False
        turn = next_ones.index(self._membership.token)
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
            self._shared.serve(None)  # somebody else was faster
            return
        cause = text_of(after.round.causes)
        say(f"fragment {after.round.fragments[0]} keeps the lighthouse: {cause}")
        self._told = _known_to(before[0])
        self._shared.wake()

    def _tell(self, state: State) -> None:
        """The keeper tells who trains, whenever that has changed."""
        now, term = at_work(state), state.round
        if term is None or now == self._told or term.order[0] != self._membership.token:
            return
        start = (Cause(CauseKind.START),)
        causes = difference(self._told, now, state) if self._told else start
        say(describe_groups(now, len(self._told), causes))
        self._told = now
        told = replace(term, formed_at=int(time.time()))
        line = record_groups(told, now, causes, self._membership.restarts)
        self._directory.once.log_round(line)

    # -- the end

    def leave(self) -> None:
        """Hand over what others need, then take this group off its lighthouse: it ends the
        step it is in with the others, and is not waited for in the next. Returns when it is
        forgotten there, and its training processes may be stopped. Does not raise."""
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
        self._shared.serve(None)  # for all at once: each asks again, and asks the next
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
        """The agent ends. Does not raise."""
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
    """Who trained when the keeper of `state` last looked, itself included."""
    if state.round is None:
        return ()
    return tuple(sorted({*at_work(state), *state.round.fragments}))
