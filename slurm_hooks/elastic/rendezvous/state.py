"""The shared state of one training as plain values, and the ways it may change.

Every agent reads the same State and decides alike; a change is a function from State to
State. Nothing here knows clocks, files, signals or torch, so that every decision can be
tested by calling it.
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
    """What an agent does at the moment."""

    READY = "ready"  # stopped or new, waits for the next round
    ACTIVE = "active"  # runs workers in the current round
    LEAVING = "leaving"  # as ACTIVE, but will not be in the next round
    DONE = "done"  # its workers finished the training


class Outcome(str, Enum):
    """How the training ended, if it did."""

    OPEN = "open"
    FINISHED = "finished"
    FAILED = "failed"


class Stop(Enum):
    """Whether a healthy agent should stop its workers, and how."""

    NO = "no"
    GROW = "grow"  # newcomers wait: when their arrival has settled, together
    PLANNED = "planned"  # somebody leaves: together, before any peer vanishes
    NOW = "now"  # the round is broken already


class Admission(Enum):
    """What becomes of an agent that asks to take part for the first time."""

    JOIN = "join"
    WAIT = "wait"  # the others still work on the training before
    RESTART = "restart"  # begin a fresh training: the old state is a left-over
    NOTHING_LEFT = "nothing left"  # this training is over


@dataclass(frozen=True)
class Member:
    """One agent. `ends` is the end of its lease in epoch seconds, 0 if unknown; `ping_port`
    where it answers pings; `failed` is 0 unless its workers failed by themselves, then 1
    and their exit code; `round` the last round it took part in, 0 for a newcomer. It counts as so
    many `workers`: 1 where sizes count nodes."""

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

    @property
    def position(self) -> tuple[int, int]:
        """In Slurm's order: fragment, then node within the fragment."""
        return (self.fragment, self.node)

    @property
    def position_name(self) -> str:
        """The same as a word, `3.0`."""
        return f"{self.fragment}.{self.node}"


@dataclass(frozen=True)
class Round:
    """One formed world. `order` holds the tokens by rank; rank 0 hosts the store. `workers` are
    those of all members, 0 if each has one."""

    number: int
    order: tuple[str, ...]
    fragments: tuple[int, ...]
    host: str
    port: int
    causes: tuple[Cause, ...]
    formed_at: int
    workers: int = 0

    @property
    def size(self) -> int:
        """As the request counts it: workers, or agents where sizes count nodes."""
        return self.workers or len(self.order)


@dataclass(frozen=True)
class Launch:
    """With which words members were started: as a user is shown them, and the digest of all."""

    text: str
    digest: str
    tokens: tuple[str, ...] = ()


@dataclass(frozen=True)
class State:
    """Everything the agents share. `revision` counts changes; `stage` counts the
    trainings that one batch script runs after another; `gone` lists who left or was
    lost since the last round. `crashes` is how often workers failed by themselves since the
    last progress: first in the round `crashed_in`; the last time after `crashed_after_s` in
    their round (bounded), with the exit code `crashed_with` (0: unknown). `farthest` are the
    most samples that anybody has reported, 0 if nobody has. `wanted` is what Slurm said to
    the newest newcomer: a fragment number for each agent that runs or is about to, empty if
    nobody knows. `outcome_at` is when it ended; while it is open, when the one before it finished,
    0 if there was none. `launches` are those of the members, each once."""

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
    launches: tuple[Launch, ...] = ()


def find(state: State, token: str) -> Member | None:
    """The member with this token, if it is (still) one."""
    return next((m for m in state.members if m.token == token), None)


def admit(state: State, newcomer: Member, stage: int, now: int) -> Admission:
    """What to do with an agent that comes for the first time; `stage` is the training
    its batch script has reached. A left-over must never block a rerun: a fragment that
    had finished and runs again under a new incarnation was requeued on purpose, and a
    failed training is not kept from a new try."""
    if state.outcome is Outcome.FAILED:
        return Admission.RESTART
    if state.outcome is Outcome.FINISHED and _is_rerun(state, newcomer, now):
        return Admission.RESTART
    if stage > state.stage:
        return Admission.RESTART if state.outcome is Outcome.FINISHED else Admission.WAIT
    if stage < state.stage or state.outcome is Outcome.FINISHED:
        return Admission.NOTHING_LEFT
    return Admission.JOIN


def _is_rerun(state: State, newcomer: Member, now: int) -> bool:
    if now - state.outcome_at > STALE_OUTCOME_S:
        return True
    finished_as = [inc for frag, node, inc in state.done if (frag, node) == newcomer.position]
    return bool(finished_as) and newcomer.incarnation not in finished_as


def restart(state: State, stage: int) -> State:
    """An empty state for a new training; the revision goes on, so nothing old matches. After
    a failure it is a new try of the same, which has to get farther to count as progress. Otherwise
    `outcome_at` stays, for those that were done and have not seen the end."""
    empty = State(run=state.run, revision=state.revision, stage=stage, rounds=state.rounds)
    if state.outcome is not Outcome.FAILED:
        return replace(empty, outcome_at=state.outcome_at)
    return replace(empty, crashed_after_s=state.crashed_after_s, farthest=state.farthest)


def join(state: State, member: Member) -> State:
    """Enter the waiting list, as a newcomer or back from a round. Another agent at the
    same position is dead (Slurm runs one incarnation at a time, see also `twins`) and is replaced.
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
    """Take over who is wanted from a newcomer that has just asked. The latest to write counts as
    the newest: clocks of nodes differ. Without an answer, an earlier one that names all who are
    here still counts; one that does not is of a time before they were released."""
    if wanted:
        return replace(state, wanted=wanted)
    here = (m.fragment for m in state.members if m.phase is not Phase.DONE)
    is_outdated = Counter(here) - Counter(state.wanted)
    return replace(state, wanted=()) if is_outdated else state


def come_back(state: State, member: Member) -> State:
    """Join, unless the training has ended meanwhile or a newer run is there instead."""
    if state.outcome is not Outcome.OPEN or is_superseded(state, member):
        return state
    return join(state, member)


def is_superseded(state: State, member: Member) -> bool:
    """Whether a newer incarnation is at this position: Slurm requeued the fragment because
    its node was out of reach, and the old agent lives on there."""
    mine = _incarnation(member)
    return any(m.position == member.position and _incarnation(m) > mine for m in state.members)


def twins(state: State, me: Member) -> tuple[Member, ...]:
    """Other agents that the same run of this fragment has started, which may have been killed, or
    be at work beside this one."""
    here = (m for m in state.members if m.position == me.position and m.token != me.token)
    return tuple(m for m in here if m.incarnation == me.incarnation and m.phase is not Phase.DONE)


def _incarnation(member: Member) -> tuple[int, ...]:
    return tuple(int(word) for word in member.incarnation.split(".") if word.isdigit())


def announce_leave(state: State, token: str) -> State:
    """Say that this agent will not be in the next round."""
    return _change(state, token, {Phase.ACTIVE}, Phase.LEAVING)


def depart(state: State, token: str, now: int, planned: bool) -> State:
    """Remove an agent that goes (planned) or was cut off. Who is done stays listed."""
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
    return replace(state, crashes=0, crashed_in=0, crashed_after_s=0, crashed_with=0)


def advance(state: State, samples: int) -> State:
    """The training has reported how far it is; farther than ever before is progress, which the
    first number cannot show."""
    if samples <= state.farthest:
        return state
    return replace(forgive(state) if state.farthest else state, farthest=samples)


def fail(state: State, now: int) -> State:
    """Give the training up for everybody."""
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
    fragments = {m.fragment for m in going}  # those that come again will say so themselves
    wanted = tuple(f for f in state.wanted if f not in fragments)
    return replace(state, members=stay, gone=gone, wanted=wanted)


def _settle(state: State, now: int) -> State:
    """The training is finished once somebody is done and nobody else still works on it."""
    if state.outcome is not Outcome.OPEN or not state.done:
        return state
    busy = any(
        m.phase in (Phase.ACTIVE, Phase.LEAVING) or (m.phase is Phase.READY and m.round)
        for m in state.members
    )
    if busy:
        return state
    return replace(state, outcome=Outcome.FINISHED, outcome_at=now)
