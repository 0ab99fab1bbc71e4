"""Report this agent to the others: it joins, leaves, has finished or is gone. The heartbeat goes
with it. Other modules decide when to report.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Optional

from slurm_hooks.elastic.agent.launched import (
    adoption,
    difference,
    launch_of,
    other_option,
    summary,
    told_adoption,
    unread,
)
from slurm_hooks.elastic.agent.options import Options
from slurm_hooks.elastic.agent.pauses import fragment_began
from slurm_hooks.elastic.batch.remark import write_remark
from slurm_hooks.elastic.liveness.heartbeat import Heartbeat
from slurm_hooks.elastic.liveness.ping import Answer, ping
from slurm_hooks.elastic.log import say, suppressed
from slurm_hooks.elastic.rendezvous.directory import DirectoryError, SharedDirectory
from slurm_hooks.elastic.rendezvous.launches import newest_launch, note, other_launch
from slurm_hooks.elastic.rendezvous.patient_directory import PatientDirectory
from slurm_hooks.elastic.rendezvous.state import (
    Admission,
    Launch,
    Member,
    Outcome,
    Round,
    State,
    admit,
    advance,
    announce_leave,
    come_back,
    depart,
    expect,
    find,
    forgive,
    is_unfinished,
    join,
    restart,
    succeed,
    twins,
)
from slurm_hooks.elastic.signals import SignalListener


def open_membership(
    options: Options, me: Member, signals: SignalListener, wanted: tuple[int, ...] = ()
) -> Membership:
    """The membership of `me` in the shared directory of the options, which is made if it is
    missing. Raises DirectoryError."""
    directory = SharedDirectory(options.directory, options.owner)
    directory.open()
    heartbeat = Heartbeat(directory, me.token, options.beat_s, options.keep_alive_s)
    return Membership(me, directory, heartbeat, signals, wanted)


class Membership:
    """An agent in the shared state. `wanted` has the fragments that it learned at its start, as in
    State. Methods raise DirectoryError unless they say not to.
    """

    def __init__(
        self,
        me: Member,
        directory: SharedDirectory,
        heartbeat: Heartbeat,
        signals: SignalListener,
        wanted: tuple[int, ...] = (),
    ) -> None:
        self.me = replace(me, ping_port=heartbeat.listener.port)
        self.directory = PatientDirectory(directory)
        self.launch: Optional[Launch] = None  # the command with which workers start here
        self.words: tuple[str, ...] = ()
        self.restarts = 0  # how much of torchrun's budget was used here
        self._heartbeat = heartbeat
        self._signals = signals
        self._wanted = wanted
        self._stage = 0
        self._is_gone = False

    @property
    def token(self) -> str:
        """The name of this agent in the state."""
        return self.me.token

    def ask_in(self, ends: int) -> Admission:
        """Join for the first time, unless the training is over."""
        self.me = replace(self.me, ends=ends)
        self.directory.do_patiently(lambda: self._heartbeat.start(self._signals))
        directory = self.directory.once
        self._share_words()
        self._stage = directory.read_stage(self.me.position_name, self.me.incarnation)
        verdict, began = [Admission.NOTHING_LEFT], fragment_began(os.environ)

        def change(state: State) -> State:
            age_s = time.monotonic() - began
            verdict[0] = admit(state, self.me, self._stage, int(time.time()), age_s)
            if verdict[0] not in (Admission.JOIN, Admission.RESTART):
                return state
            is_new = verdict[0] is Admission.RESTART
            joined = join(restart(state, self._stage) if is_new else state, self.me)
            return note(expect(joined, self._wanted), self.token, self.launch)

        after = self.directory.update_patiently(change)
        if verdict[0] is Admission.JOIN:
            self._compare_launch(after)
        return verdict[0]

    def note_launch(self, words: Sequence[str]) -> None:
        """Note the script with which workers start here, and its arguments."""
        self.words, self.launch = tuple(words), launch_of(words)

    def _share_words(self) -> None:
        if self.launch and self.words:
            with suppressed(DirectoryError, doing="writing the arguments of this fragment"):
                self.directory.once.write_words(self.launch.digest, self.words, self.token)

    def _compare_launch(self, state: State) -> None:
        other = other_launch(state, self.token, self.launch)
        if other is not None and self.launch is not None:
            option = other_option(self.words, self._words_of(other))
            say(difference(self.launch, other, option))
            if not option:  # else those that follow report it
                write_remark(summary(self.launch, other, self.me.fragment))

    def follow_newest(self, state: State, round_: Round) -> None:
        """From this round on, start workers as its newest member does, if that was started with
        another set of options.
        """
        mine, theirs, newest = self.launch, newest_launch(state, round_), find(state, round_.newest)
        if not (mine and theirs and newest) or mine.digest == theirs.digest:
            return
        words = self._words_of(theirs)
        if option := other_option(words, self.words):
            say(adoption(mine, theirs, newest.fragment, option))
            write_remark(told_adoption(newest.fragment, option))
            self._start_as(words)

    def _start_as(self, words: Sequence[str]) -> None:
        self.note_launch(words)
        self.directory.update_patiently(lambda s: note(s, self.token, self.launch))

    def _words_of(self, launch: Launch) -> tuple[str, ...]:
        """Return the words of another member's command, empty if they cannot be read."""
        why = "its file is damaged"
        try:
            words = self.directory.once.read_words(launch.digest)
            if launch_of(words).digest == launch.digest:
                return words
        except DirectoryError as error:
            why = str(error)
        say(unread(launch, why))
        return ()

    def rejoin_if_listed(self, ends: int, failed: int, sound: int) -> bool:
        """As rejoin. Return False without that if the others have given this agent up."""
        self.restarts += bool(failed)
        self.me = replace(self.me, ends=ends, failed=failed, sound=sound)
        after = self.directory.update_patiently(
            lambda s: self._back_in(s) if find(s, self.token) else s
        )
        return find(after, self.token) is not None

    def rejoin(self, ends: int, failed: int = 0, sound: int = 0) -> None:
        """Wait for the next round. `failed` and `sound` are as in Member."""
        self.me = replace(self.me, ends=ends, failed=failed, sound=sound)
        self.directory.update_patiently(self._back_in)

    def _back_in(self, state: State) -> State:
        return note(come_back(state, self.me), self.token, self.launch)

    def twin(self) -> str:
        """Return a message if this fragment has another working agent, else the empty string. Two
        such agents would take each other's place without end.
        """
        for other in twins(self.directory.read_patiently(), self.me):
            address = (other.host, other.ping_port, other.token)
            if other.ping_port and ping(*address) is Answer.ALIVE:
                return (
                    f"another training of fragment {other.fragment} runs on {other.host} already; "
                    "start one after the other"
                )
        return ""

    def advance(self, samples: int) -> None:
        """Workers here have reported how far the training is."""
        self.directory.once.update(lambda s: advance(s, samples))

    def forgive(self) -> None:
        """The training here has made progress."""
        self.directory.once.update(forgive)

    def announce_leave(self) -> State:
        """Announce that this agent will not be in the next round. Does not wait for a directory in
        trouble."""
        return self.directory.once.update(lambda s: announce_leave(s, self.token))

    def succeed(self) -> None:
        """The workers here have finished the training."""
        self.directory.update_patiently(lambda s: succeed(s, self.token, int(time.time())))
        self.pass_stage()

    def tell_success(self) -> None:
        """As succeed. Does not raise."""
        try:
            self.succeed()
        except DirectoryError as error:
            say(f"the training has finished here, but other fragments cannot be notified: {error}")

    def outcome(self) -> Optional[Outcome]:
        """Return how the training that has finished here ended for all. Does not raise.

        It is `None` while others still train, and open if it cannot be known.
        """
        try:
            state = self.directory.read_patiently()
        except DirectoryError as error:
            say(f"the training has finished here; the state of the others is unknown: {error}")
            return Outcome.OPEN
        if state.outcome is Outcome.OPEN and find(state, self.token):
            return None
        # After it had finished, others may have begun the next training, or the same again.
        is_behind = state.outcome is Outcome.OPEN and state.outcome_at > 0
        return Outcome.FINISHED if state.stage > self._stage or is_behind else state.outcome

    def is_deserted(self) -> bool:
        """Tell whether this agent and all others are done, except for the agent of rank 0, which is
        gone. Does not raise.
        """
        with suppressed(DirectoryError, doing="looking whether rank 0 has finished"):
            state = self.directory.once.read()
            return find(state, self.token) is not None and is_unfinished(state)
        return False

    def pass_stage(self) -> None:
        """The next torchrun of this batch script is another training."""
        directory, me = self.directory.once, self.me
        self.directory.do_patiently(
            lambda: directory.write_stage(me.position_name, me.incarnation, self._stage + 1)
        )

    def find_dead(self, state: State) -> None:
        """Remove the agents that have not come back and are dead. Does not raise."""
        self._heartbeat.find_dead(state)

    def skip(self) -> None:
        """No work is left here. Raises DirectoryError."""
        self.pass_stage()
        self.depart(planned=True)
        say(f"the training has already finished; fragment {self.me.fragment} has nothing to do")

    def depart(self, planned: bool) -> None:
        """Stop being a member. Never raises: without this the others notice the silence."""
        if self._is_gone:
            return
        try:
            self.directory.once.update(
                lambda s: depart(s, self.token, int(time.time()), planned), timeout_s=10.0
            )
        except DirectoryError as error:
            self.directory.complain(error)
        self.fall_silent()

    def fall_silent(self) -> None:
        """Stop the heartbeat, and stay listed as before. Never raises."""
        if not self._is_gone:
            self._is_gone = True
            self._heartbeat.stop(self._signals)
