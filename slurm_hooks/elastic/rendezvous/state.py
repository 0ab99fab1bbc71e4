"""The shared state of a training as plain values, and the ways in which it may change.

Every agent reads the same State and decides the same way. A change is a function from State to
State. The code here uses no clocks, files, signals or torch, so that every decision can be tested
by calling it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from enum import Enum

from slurm_hooks.elastic.rendezvous.causes import Cause, CauseKind

GONE_KEPT = 64
DONE_KEPT = 4096
STALE_OUTCOME_S = 86400


class Phase(str, Enum):
    """The present activity of an agent."""

    READY = "ready"  # stopped or new, waits for the next round
    ACTIVE = "active"  # runs workers in the current round
    LEAVING = "leaving"  # as ACTIVE, but will not be in the next round
    DONE = "done"  # its workers finished the training


class Outcome(str, Enum):
    """How the training ended, if it has ended."""

    OPEN = "open"
    FINISHED = "finished"
    FAILED = "failed"


class Stop(Enum):
    """Tells whether a healthy agent should stop its workers, and how."""

    NO = "no"
    GROW = "grow"  # newcomers wait: when their arrival has settled, together
    PLANNED = "planned"  # an agent leaves: together, before any peer vanishes
    NOW = "now"  # the round is broken already


class Admission(Enum):
    """The answer to an agent that asks to take part for the first time."""

    JOIN = "join"
    WAIT = "wait"  # the others still work on the earlier training
    RESTART = "restart"  # begin a fresh training: the old state is a left-over
    NOTHING_LEFT = "nothing left"  # this training is over
    OUTLIVED = "outlived"  # a later run of this fragment is here


@dataclass(frozen=True)
class Member:
    """An agent of the training.

    * `ends`: the end of its lease in epoch seconds, 0 if unknown.
    * `ping_port`: where it answers pings.
    * `failed`: 0, or 1 plus the exit code if its workers failed without an outside cause.
    * `round`: the last round in which it took part, 0 for a newcomer.
    * `workers`: as many as it counts for, 1 if sizes count nodes.
    * `sound`: 1 if its workers were stopped for the next round, and none had failed until then.
    """

    token: str
    fragment: int
    node: int
    incarnation: str
    host: str
    ends: int = 0
    ping_port: int = 0
    phase: Phase = Phase.READY
    failed: int = 0
    round: int = 0
    workers: int = 1
    sound: int = 0

    @property
    def position(self) -> tuple[int, int]:
        """Its place in Slurm's order: fragment, then node within the fragment."""
        return (self.fragment, self.node)

    @property
    def position_name(self) -> str:
        """The position as a word, `3.0`."""
        return f"{self.fragment}.{self.node}"


@dataclass(frozen=True)
class Round:
    """A formed world. `order` holds the tokens by rank, and rank 0 hosts the store. `workers`
    counts the workers of all members, 0 if each has a single worker. `newest` is the member that
    joined last, empty if it is unknown.
    """

    number: int
    order: tuple[str, ...]
    fragments: tuple[int, ...]
    host: str
    port: int
    causes: tuple[Cause, ...]
    formed_at: int
    workers: int = 0
    newest: str = ""

    @property
    def size(self) -> int:
        """The size as the request counts it: workers, or agents if sizes count nodes."""
        return self.workers or len(self.order)


@dataclass(frozen=True)
class Launch:
    """The command with which members were started: as a user sees it, and the digest of the
    whole.
    """

    text: str
    digest: str
    tokens: tuple[str, ...] = ()


@dataclass(frozen=True)
class State:
    """The whole state that agents share.

    * `members` stand in the order in which they joined.
    * `revision` counts changes. `stage` counts the trainings that a batch script runs in turn.
    * `gone` lists the fragments that left or were lost since the last round.
    * `crashes` counts failures of workers without an outside cause since the last progress.
      The first was in the round `crashed_in`. The last came `crashed_after_s` into its round
      (bounded), with the exit code `crashed_with` (0: unknown).
    * `farthest`: the most samples that an agent has reported, 0 without a report.
    * `wanted`: Slurm's answer to the newest newcomer, a fragment number for each agent that runs
      or is about to. Empty if unknown.
    * `outcome_at`: when the training ended. While it is open, when the training before it
      finished, 0 for the first.
    * `suspect`: the member whose workers failed while all others were healthy, in the last failure.
      `expelled`: the member that must give up because it failed so twice in a row.
    * `launches`: the commands of the members, each once.
    """

    run: str
    revision: int = 0
    stage: int = 1
    members: tuple[Member, ...] = ()
    round: Round | None = None
    rounds: int = 0
    gone: tuple[Cause, ...] = ()
    crashes: int = 0
    crashed_in: int = 0
    crashed_after_s: int = 0
    crashed_with: int = 0
    farthest: int = 0
    outcome: Outcome = Outcome.OPEN
    outcome_at: int = 0
    done: tuple[tuple[int, int, str], ...] = ()  # fragment, node, incarnation
    wanted: tuple[int, ...] = ()
    suspect: str = ""
    expelled: str = ""
    launches: tuple[Launch, ...] = ()


def find(state: State, token: str) -> Member | None:
    """Return the member with this token, or `None` if it is no member (any more)."""
    return next((m for m in state.members if m.token == token), None)


def admit(state: State, newcomer: Member, stage: int, now: int, age_s: float = 0.0) -> Admission:
    """Return the answer to an agent that comes for the first time. `stage` is the training that its
    batch script has reached, and Slurm has started its fragment `age_s` ago.

    A left-over must never block a rerun. A fragment that had finished and runs again under a new
    incarnation was requeued on purpose. A failed training may be tried again.
    """
    if is_superseded(state, newcomer):
        return Admission.OUTLIVED
    if state.outcome is Outcome.FAILED or is_unfinished(state):
        return Admission.RESTART
    if state.outcome is Outcome.FINISHED and _is_rerun(state, newcomer, now, age_s):
        return Admission.RESTART
    if stage > state.stage:
        return Admission.RESTART if state.outcome is Outcome.FINISHED else Admission.WAIT
    if stage < state.stage or state.outcome is Outcome.FINISHED:
        return Admission.NOTHING_LEFT
    return Admission.JOIN


def _is_rerun(state: State, newcomer: Member, now: int, age_s: float) -> bool:
    if now - state.outcome_at > STALE_OUTCOME_S:
        return True
    if int(age_s) > now - state.outcome_at:
        return False  # it was on its way when the training ended
    finished_as = [inc for frag, node, inc in state.done if (frag, node) == newcomer.position]
    return bool(finished_as) and newcomer.incarnation not in finished_as


def restart(state: State, stage: int) -> State:
    """Return an empty state for a new training. The revision goes on, so that no old revision
    matches.

    After a failure it is a new try of the same training, which has to get farther to count as
    progress. Otherwise `outcome_at` stays, for agents that were done and have not seen the end.
    """
    empty = State(run=state.run, revision=state.revision, stage=stage, rounds=state.rounds)
    if state.outcome is not Outcome.FAILED:
        return replace(empty, outcome_at=state.outcome_at)
    return replace(empty, crashed_after_s=state.crashed_after_s, farthest=state.farthest)


def join(state: State, member: Member) -> State:
    """Enter the waiting list, as a newcomer or back from a round.

    Another agent at the same position is dead and is replaced: Slurm runs a single incarnation at a
    time (see also `twins`).
    """
    before = find(state, member.token)
    arrived = replace(member, phase=Phase.READY, round=before.round if before else 0)
    if before is not None:
        others = tuple(arrived if m.token == member.token else m for m in state.members)
        return replace(state, members=others)
    here = [m for m in state.members if m.position == member.position]
    stale = [m for m in here if m.phase is not Phase.DONE]
    state = _remove(state, {m.token for m in stale}, CauseKind.LOST)
    return replace(state, members=(*state.members, arrived))


def expect(state: State, wanted: tuple[int, ...]) -> State:
    """Take over the wanted fragments from a newcomer that has just asked Slurm.

    The latest writer counts as the newest, since clocks of nodes differ. Without an answer, an
    earlier answer still counts if it names all present fragments. Otherwise it dates from before
    their release.
    """
    if wanted:
        return replace(state, wanted=wanted)
    here = (m.fragment for m in state.members if m.phase is not Phase.DONE)
    is_outdated = Counter(here) - Counter(state.wanted)
    return replace(state, wanted=()) if is_outdated else state


def come_back(state: State, member: Member) -> State:
    """Join, unless the training has ended or a newer run has taken this place. An agent that was
    given up does not count as new.
    """
    if state.outcome is not Outcome.OPEN or is_superseded(state, member):
        return state
    joined = join(state, member)
    if find(state, member.token):
        return joined
    return replace(joined, members=(*joined.members[-1:], *joined.members[:-1]))


def is_superseded(state: State, member: Member) -> bool:
    """Tell whether a newer incarnation is at this position. Slurm requeued the fragment because its
    node was out of reach, and the old agent lives on there.
    """
    mine = _incarnation(member)
    return any(m.position == member.position and _incarnation(m) > mine for m in state.members)


def twins(state: State, me: Member) -> tuple[Member, ...]:
    """Return other agents that the same run of this fragment has started. They may have been
    killed, or work beside this agent.
    """
    here = (m for m in state.members if m.position == me.position and m.token != me.token)
    return tuple(m for m in here if m.incarnation == me.incarnation and m.phase is not Phase.DONE)


def _incarnation(member: Member) -> tuple[int, ...]:
    return tuple(int(word) for word in member.incarnation.split(".") if word.isdigit())


def announce_leave(state: State, token: str) -> State:
    """Say that this agent will not be in the next round."""
    return _change(state, token, {Phase.ACTIVE}, Phase.LEAVING)


def depart(state: State, token: str, now: int, planned: bool) -> State:
    """Remove an agent that leaves (planned) or was cut off. An agent that is done stays listed."""
    return _settle(_remove(state, {token}, CauseKind.LEFT if planned else CauseKind.LOST), now)


def expire(state: State, tokens: frozenset[str], now: int) -> State:
    """Remove agents that are dead."""
    return _settle(_remove(state, set(tokens), CauseKind.LOST), now)


def succeed(state: State, token: str, now: int) -> State:
    """This agent's workers have finished the training."""
    member = find(state, token)
    if member is None or member.phase is Phase.DONE:
        return state
    state = _change(state, token, {Phase.ACTIVE, Phase.LEAVING}, Phase.DONE)
    done = (*state.done, (member.fragment, member.node, member.incarnation))[-DONE_KEPT:]
    return _settle(replace(state, done=done), now)


def forgive(state: State) -> State:
    """The training has made progress."""
    return replace(
        state,
        crashes=0,
        crashed_in=0,
        crashed_after_s=0,
        crashed_with=0,
        suspect="",
        expelled="",
    )


def advance(state: State, samples: int) -> State:
    """The training has reported how far it is. Farther than ever before is progress, but the first
    number cannot show that.
    """
    if samples <= state.farthest:
        return state
    return replace(forgive(state) if state.farthest else state, farthest=samples)


def fail(state: State, now: int) -> State:
    """Give the training up for all agents."""
    return replace(state, outcome=Outcome.FAILED, outcome_at=now)


def _change(state: State, token: str, allowed: set[Phase], phase: Phase) -> State:
    members = tuple(
        replace(m, phase=phase) if m.token == token and m.phase in allowed else m
        for m in state.members
    )
    return replace(state, members=members)


def _remove(state: State, tokens: set[str], how: CauseKind) -> State:
    going = [m for m in state.members if m.token in tokens and m.phase is not Phase.DONE]
    if not going:
        return state
    losses = tuple(
        Cause(CauseKind.LEFT if m.phase is Phase.LEAVING else how, m.fragment)
        for m in going
        if m.round
    )
    stay = tuple(m for m in state.members if m not in going)
    gone = (*state.gone, *losses)[-GONE_KEPT:]
    fragments = {m.fragment for m in going}  # a fragment that comes again will say so itself
    wanted = tuple(f for f in state.wanted if f not in fragments)
    return replace(state, members=stay, gone=gone, wanted=wanted)


def _settle(state: State, now: int) -> State:
    """Finish the training when a member is done and no other member still works on it."""
    if not _is_at_rest(state) or is_unfinished(state):
        return state
    return replace(state, outcome=Outcome.FINISHED, outcome_at=now)


def _is_at_rest(state: State) -> bool:
    """Tell whether members are done, and no other member still works on the open training."""
    busy = any(
        m.phase in (Phase.ACTIVE, Phase.LEAVING) or (m.phase is Phase.READY and m.round)
        for m in state.members
    )
    return state.outcome is Outcome.OPEN and bool(state.done) and not busy


def is_unfinished(state: State) -> bool:
    """Tell whether the member of rank 0 is gone before it was done, while all others are done.

    It often works on alone after the last step, for instance it exports the model. So the end has
    to be repeated.
    """
    if not _is_at_rest(state) or state.round is None:
        return False
    first = find(state, state.round.order[0])
    return first is None or first.phase is not Phase.DONE
