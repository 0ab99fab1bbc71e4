"""Tell the story of a recording: jobs on nodes, sizes with causes, events. Pure.

The same recording gives the same story, and a longer recording only adds to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Optional

from demo.records import Act, Recording, Row, Sample
from demo.scenario import KILL_WAIT_S, TICK_S, Rigid, Scenario

Place = tuple[str, int]
OURS, IDLE, RESERVED = "malleable", "idle", "reserved"
PREEMPTED, STARTED = "preempted by Slurm", "started by Slurm"
LEASE_ENDED = "lease ended"
FINISHED = "training finished"
SECURED = "comes back held if Slurm requeues it"  # no news: every fragment is, once it runs
UNKNOWN = "unknown"
HINDSIGHT_S = 2 * TICK_S + 2  # by then a tick has told why a fragment went
VERBS = {("cancel", FINISHED): "cancel what waits:", ("renew", "hole closes"): "cut the lease of"}
GOING = ("notice", "put-back", "hold", "cancel")


@dataclass(frozen=True)
class Size:
    """The job's nodes, or GPUs, from `t` on (seconds since the load began)."""

    t: float
    count: int
    cause: str


@dataclass(frozen=True)
class Event:
    """An event that is worth a line. `kind` chooses colour and marker."""

    t: float
    kind: str
    text: str


def occupants(sample: Sample, recording: Recording) -> dict[Place, str]:
    """Place -> name of a rigid job, OURS, RESERVED or IDLE.

    Rigid jobs stand on the first GPUs of a node, the oldest first, and ours on the last. The number
    of GPUs of each job is true, their positions are arbitrary.
    """
    scenario = recording.scenario
    names = dict.fromkeys(scenario.node_names, IDLE)
    if scenario.booking and recording.begin <= sample.t < recording.end:
        names[scenario.booking.node] = RESERVED
    by_place = {place: names[place[0]] for place in places(scenario)}
    for row in sorted(sample.rows, key=lambda row: (row.is_fragment, _age(row))):
        if row.is_on_nodes:
            name = OURS if row.is_fragment else _rigid_name(row, recording)
            for node in row.nodes & names.keys():
                by_place.update(dict.fromkeys(_taken(row, node, by_place, scenario), name))
    return by_place


def has_room(rigid: Rigid, sample: Sample, recording: Recording) -> bool:
    """Tell whether a rigid job would start on the idle nodes."""
    by_place, needed = occupants(sample, recording), rigid.gpus or recording.scenario.per_node
    idle = Counter(node for (node, _), name in by_place.items() if name == IDLE)
    return sum(count >= needed for count in idle.values()) >= rigid.nodes


def places(scenario: Scenario) -> tuple[Place, ...]:
    """A node and the number of a GPU on it, or 0 for all of the node."""
    return tuple((n, index) for n in scenario.node_names for index in range(scenario.per_node))


def _age(row: Row) -> int:
    return int(row.job.partition("_")[0])


def _taken(row: Row, node: str, by_place: Mapping[Place, str], scenario: Scenario) -> list[Place]:
    """The places of a job on a node. A job without GPUs has all."""
    all_of = [place for place in by_place if place[0] == node]
    if not row.gpus or not scenario.gpus:
        return all_of
    if row.is_fragment:
        return all_of[-row.gpus :]
    free = [place for place in all_of if by_place[place] in (IDLE, RESERVED)]
    return free[: row.gpus]


def _rigid_name(row: Row, recording: Recording) -> str:
    """The name of a rigid job in either sandbox."""
    for name, ids in recording.ids.items():
        if row.job in ids:
            return name
    return f"job {row.job}"


def pairs(samples: tuple[Sample, ...]) -> Iterator[tuple[Sample, Sample]]:
    """Each sample with the next."""
    return zip(samples, samples[1:])


def sizes(recording: Recording) -> list[Size]:
    """Every change of the job's size, with its cause."""
    history = [Size(0.0, 0, "submitted")]
    for before, after in pairs(recording.with_it):
        gone, come = changes(before, after)
        count = size(after, recording.scenario)
        if count == history[-1].count:
            continue
        reasons = [why_gone(f, before, after, recording) for f in gone]
        reasons += [why_come(f, after.t, recording) for f in come]
        causes = sorted(set(reasons)) or [UNKNOWN]
        history.append(Size(round(after.t - recording.zero, 1), count, ", ".join(causes)))
    return history


def size(sample: Sample, scenario: Scenario) -> int:
    """The job's nodes, or GPUs."""
    return sum(sample.gpus.values()) if scenario.gpus else len(set(sample.held.values()))


def changes(before: Sample, after: Sample) -> tuple[list[str], list[str]]:
    """Fragments that left and fragments that came between two samples."""
    old, new = (
        {f: (node, sample.gpus[f]) for f, node in sample.held.items()} for sample in (before, after)
    )
    gone = [f for f, part in old.items() if new.get(f) != part]
    return gone, [f for f, part in new.items() if old.get(f) != part]


def why_come(fragment: str, t: float, recording: Recording) -> str:
    """The cause that the tick gave when it released this fragment. Without ticks it is Slurm."""
    if recording.scenario.is_plain:
        return STARTED
    grown = [a for a in _acts(fragment, recording) if a.kind == "grow" and a.t <= t]
    return grown[-1].cause if grown else UNKNOWN


def why_gone(fragment: str, before: Sample, after: Sample, recording: Recording) -> str:
    """The reason why a fragment left its node: the first order to leave, or Slurm's act."""
    now = after.find(fragment)
    if before.find(fragment) is None:
        return UNKNOWN
    order = _order_to_go(fragment, after, recording)
    if order is not None and order.cause == "requeued by Slurm":
        return PREEMPTED
    if order is not None:
        return in_words(order.cause, recording)
    if now is not None and now.state == "PENDING":
        return PREEMPTED
    if now is not None and now.state in ("COMPLETED", "TIMEOUT"):
        return in_words(FINISHED, recording) if recording.result else LEASE_ENDED
    return UNKNOWN


def in_words(cause: str, recording: Recording) -> str:
    """The cause as a tick gives it, of a job that may not be a training."""
    return f"{recording.work.name} finished" if cause == FINISHED else cause


def _order_to_go(fragment: str, after: Sample, recording: Recording) -> Optional[Act]:
    """The first act that names the end of this run, up to the tick after it. A run begins with a
    `grow`, because Slurm changes its own time of the start at a requeue."""
    order = None
    for act in _acts(fragment, recording):
        if act.kind == "grow" and act.t > after.t:
            break  # the next run begins
        if act.kind == "grow":
            order = None
        elif act.kind in GOING and act.cause != SECURED and act.t <= after.t + HINDSIGHT_S:
            order = order or act
    return order


def _acts(fragment: str, recording: Recording) -> Iterator[Act]:
    return (act for tick in recording.ticks for act in tick.acts if fragment in act.fragments)


def preempted(recording: Recording) -> list[tuple[float, str]]:
    """Moments (seconds since the load began) at which Slurm took a node, and their fragments."""
    taken = []
    for before, after in pairs(recording.with_it):
        for fragment in changes(before, after)[0]:
            if why_gone(fragment, before, after, recording) == PREEMPTED:
                taken.append((after.t - recording.zero, fragment))
    return taken


def events(recording: Recording) -> list[Event]:
    """All events, in order of time."""
    unsorted = [*_tick_events(recording), *_rigid_events(recording), *_round_events(recording)]
    unsorted += _preemption_events(recording)
    last = recording.with_it[-1].t if recording.with_it else recording.zero
    booking = recording.scenario.booking
    if booking and last >= recording.begin:
        at = recording.begin - recording.zero
        text = f"reservation {booking.name} begins on {booking.node}"
        unsorted.append(Event(at, "reservation", text))
    return sorted(unsorted, key=lambda event: (event.t, event.text))


def _tick_events(recording: Recording) -> Iterator[Event]:
    for tick in recording.ticks:
        for act in tick.acts:
            if act.kind != "set-mark" and act.cause not in ("notice is over", SECURED):
                yield Event(act.t - recording.zero, act.kind, _act_text(act, recording))
        for text in tick.refused:
            yield Event(tick.t - recording.zero, "refused", f"refused by Slurm: {text}")


def _act_text(act: Act, recording: Recording) -> str:
    """`notice 3_2 on n8: hole closes`."""
    count = len(act.fragments)
    who = " ".join(act.fragments) if count < 3 else f"{count} fragments"
    with_it = f" with {recording.scenario.counted(act.gpus)}" if act.gpus else ""
    nodes = act.nodes or (_nodes_then(act, recording) if act.kind in ("notice", "renew") else ())
    where = f" on {','.join(nodes)}" if nodes else ""
    verb = VERBS.get((act.kind, act.cause), act.kind.replace("-", " "))
    return f"{verb} {who}{where}{with_it}: {in_words(act.cause, recording)}"


def _nodes_then(act: Act, recording: Recording) -> tuple[str, ...]:
    """The nodes of an act's fragments just before it."""
    before = [sample for sample in recording.with_it if sample.t <= act.t]
    held = before[-1].held if before else {}
    return tuple(sorted(held[f] for f in act.fragments if f in held))


def _rigid_events(recording: Recording) -> Iterator[Event]:
    """Starts, planned starts and ends of the rigid jobs beside the malleable job."""
    for job, name in recording.names.items():
        seen = ""
        for sample in recording.with_it:
            row = sample.find(job)
            state = _rigid_state(row) if row else ""
            if row and state and state != seen:
                yield Event(
                    sample.t - recording.zero, "rigid", f"{name}: {_rigid_text(row, recording)}"
                )
                seen = state


def _rigid_state(row: Row) -> str:
    if row.state == "PENDING":
        return f"planned {sorted(row.planned)}" if row.planned else ""
    return "running" if row.state in ("RUNNING", "CONFIGURING") else "ended"


def _rigid_text(row: Row, recording: Recording) -> str:
    if row.state == "PENDING":
        at = (row.start or 0.0) - recording.zero
        return f"start planned for {at:.0f} s on {','.join(sorted(row.planned))}"
    if row.state in ("RUNNING", "CONFIGURING"):
        return f"started on {','.join(sorted(row.nodes))}"
    return f"ended ({row.state.lower()})"


def _round_events(recording: Recording) -> Iterator[Event]:
    for round_ in recording.rounds:
        text = f"training goes on with {recording.scenario.counted(round_.size)}: {round_.cause}"
        yield Event(round_.t - recording.zero, "round", text)


def _preemption_events(recording: Recording) -> Iterator[Event]:
    """Preemptions, each after the next tick has confirmed it, so that an order of ours does not
    count."""
    last = recording.with_it[-1].t if recording.with_it else 0.0
    for t, fragment in preempted(recording):
        if last - (recording.zero + t) > min(HINDSIGHT_S, KILL_WAIT_S):
            yield Event(t, "preempted", f"{fragment} preempted by Slurm")
