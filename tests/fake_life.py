"""Events in the fake Slurm while time passes, without any command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

import fake_agents
from fake_parts import (
    FINISHED,
    LIMIT_CHECK_S,
    LIVE_STATES,
    MAIN,
    REQUEUE_WAIT_S,
    REQUEUED_HELD,
    Booking,
    Element,
    Rigid,
    Run,
    Violation,
)

if TYPE_CHECKING:
    from fake_slurm import FakeSlurm
    from slurm_hooks.model import Resources

BACK = frozenset({"REQUEUE", "REQUEUE_HOLD", "PREEMPTED"})


def second(slurm: FakeSlurm) -> None:
    """All events of a second."""
    for element in list(slurm.elements.values()):
        if element.state == "COMPLETING" and element.gone_at is not None:
            if slurm.steady >= element.gone_at:
                settle(slurm, element)
        elif element.state == "RUNNING":
            _run(slurm, element)
        elif element.state in FINISHED:
            _purge(slurm, element)
    for job in slurm.rigid:
        _rigid(slurm, job)
    for booking in slurm.bookings:
        _booking(slurm, booking)
    for element in slurm.elements.values():
        why = waits_for(slurm, element)
        if why == "":
            _start(slurm, element)
        elif why == "Resources" and element.partition != slurm.lanes[-1]:
            _push_out(slurm, element)


def _run(slurm: FakeSlurm, element: Element) -> None:
    assert element.end is not None
    element.run.ran_s += 1
    code = fake_agents.act(slurm, element)
    if code is not None:
        leave(slurm, element, code)
    elif element.state != "RUNNING":
        return
    elif slurm.now >= element.end:
        _overrun(slurm, element)


def _overrun(slurm: FakeSlurm, element: Element) -> None:
    element.run.late_s += 1
    if slurm.steady % LIMIT_CHECK_S == 0:
        end(slurm, element, "TIMEOUT")
    elif element.run.late_s > LIMIT_CHECK_S:
        slurm.violations.append(Violation(slurm.now, element.name, "past its lease"))


def leave(slurm: FakeSlurm, element: Element, code: int) -> None:
    """The script ends by itself: with an exit code, or by signal -`code`."""
    element.state = "FAILED" if code else "COMPLETED"
    element.exit_code, element.end = (code << 8 if code >= 0 else -code), slurm.now
    slurm.history.append(f"{slurm.now} {element.name} {element.state}")


def end(slurm: FakeSlurm, element: Element, then: str) -> None:
    """Slurm ends it: SIGTERM, then SIGKILL after KillWait. A suspended element ends at once."""
    element.state, element.then = "COMPLETING", then
    element.gone_at = slurm.steady + min(slurm.term_s, slurm.kill_wait_s)


def lose(slurm: FakeSlurm, element: Element) -> None:
    """Its node is lost: it is requeued at once, with its hold if it has a hold."""
    if element.state == "RUNNING":
        element.then = "REQUEUE"
    settle(slurm, element)


def settle(slurm: FakeSlurm, element: Element) -> None:
    """Settle an element whose processes have ended."""
    then, element.then, element.gone_at = element.then, "", None
    slurm.history.append(f"{slurm.now} {element.name} {then}")
    if then in BACK:
        requeue(slurm, element, is_held=then == "REQUEUE_HOLD")
    else:
        element.state, element.end = then, slurm.now
        element.exit_code = 15


def requeue(slurm: FakeSlurm, element: Element, is_held: bool) -> None:
    """Put it back into the queue, with its limit, its comments, and its hold.

    Slurm reads the holder from the reason, which a bad end has replaced.
    """
    if element.is_held and element.state in ("FAILED", "TIMEOUT"):
        element.hold = "admin"
    element.state = "PENDING"
    if is_held:
        element.hold, element.description = "user", REQUEUED_HELD
    element.restarts += 1
    element.eligible = slurm.now + REQUEUE_WAIT_S
    element.nodes, element.signalled, element.start, element.end = frozenset(), None, None, None


def _purge(slurm: FakeSlurm, element: Element) -> None:
    assert element.end is not None
    if slurm.now - element.end >= slurm.min_job_age_s:
        del slurm.elements[element.name]


def waits_for(slurm: FakeSlurm, element: Element) -> Optional[str]:
    """Why a released element does not start, in Slurm's words ("" if it can, None if n/a)."""
    if element.state != "PENDING" or element.is_held or element.is_unfit:
        return None
    job = slurm.job(element)
    if job.is_dependent:
        return "Dependency"
    if (element.eligible or 0) > slurm.now:
        return "BeginTime"
    on_nodes = sum(e.job == element.job and e.state in LIVE_STATES for e in slurm.elements.values())
    if job.throttle and on_nodes >= job.throttle:
        return "JobArrayTaskLimit"
    return _place(slurm, element)[1]


def _place(slurm: FakeSlurm, element: Element) -> tuple[frozenset[str], str]:
    """Nodes on which it can start now, or the reason without such nodes."""
    able = {n for n in slurm.nodes if element.features <= slurm.features.get(n, frozenset())}
    able = {n for n in able - element.barred if _could_fit(slurm, element, n)}
    if not element.asked <= able or len(able) < element.count:
        return frozenset(), "BadConstraints"
    broken = sorted(n for n in element.asked if slurm.nodes[n] not in ("", "+PLANNED"))
    if broken:
        return frozenset(), f"ReqNodeNotAvail, UnavailableNodes:{','.join(broken)}"
    until = slurm.now + 60 * element.limit_min
    wanted = element.asked or able
    free = [n for n in sorted(wanted) if fits(slurm, element, n)]
    if len(free) < max(element.count, len(element.asked)):
        return frozenset(), "Resources"
    free = [n for n in free if not _is_booked(slurm, n, until)]
    if len(free) < max(element.count, len(element.asked)):
        return frozenset(), "ReqNodeNotAvail, May be reserved for other job"
    return element.asked or frozenset(free[: element.count]), ""


def _could_fit(slurm: FakeSlurm, element: Element, name: str) -> bool:
    """True unless the node can never run it."""
    part = element.part
    return part is None or (part.is_whole and covers(slurm.size_of(name), part.asks))


def fits(slurm: FakeSlurm, element: Element, name: str) -> bool:
    """True if the element could start on the node now."""
    if element.part is None:
        return slurm.is_free(name)
    return covers(slurm.room(name), element.part.asks)


def covers(left: Resources, need: Resources) -> bool:
    """True if all needed resources are there."""
    gres = all(left.count(name) >= count for name, count in need.gres)
    return gres and left.cpus >= need.cpus and left.memory_mib >= need.memory_mib


def victims(
    slurm: FakeSlurm, name: str, need: Resources, below: Optional[str] = None
) -> list[Element]:
    """The elements preempted on a node for a job that needs so much of it.

    The job may be in a partition `below` its own if it is ours. As many as needed are preempted:
    the lower partition first, and the oldest of a partition. Then the last of them is tried first,
    once (preempt_reorder_count). Where an element is ending, Slurm waits.
    """
    room = slurm.room(name)
    if slurm.is_completing(name) or covers(room, need):
        return []
    lower = slurm.partitions[slurm.partitions.index(below or MAIN) + 1 :]
    there = (e for e in slurm.ours_on(frozenset({name})) if e.state == "RUNNING")
    lower_elements = [e for e in there if e.partition in lower]
    lower_elements.sort(key=lambda e: (-slurm.lanes.index(e.partition), e.start or 0))
    enough = _enough(slurm, name, lower_elements, need)
    return _enough(slurm, name, [*enough[-1:], *enough[:-1]], need)


def _enough(slurm: FakeSlurm, name: str, order: list[Element], need: Resources) -> list[Element]:
    """The first of these elements whose end makes enough room, or None."""
    room = slurm.room(name)
    for count, element in enumerate(order, 1):
        room += element.part.asks if element.part else slurm.size_of(name)
        if covers(room, need):
            return order[:count]
    return []


def _push_out(slurm: FakeSlurm, element: Element) -> None:
    """An element takes its nodes from elements of a lower partition, if they are enough.

    It waits for elements that are already ending there.
    """
    by_node: dict[str, list[Element]] = {}
    for name in sorted(element.asked or slurm.nodes.keys() - element.barred):
        need = element.part.asks if element.part else slurm.size_of(name)
        others = victims(slurm, name, need, element.partition)
        if others or _comes_free(slurm, element, name):
            by_node[name] = others
    chosen = sorted(by_node, key=lambda name: len(by_node[name]))[: element.count]
    for name in chosen if len(chosen) == element.count else ():
        for other in by_node[name]:
            end(slurm, other, "PREEMPTED")


def _comes_free(slurm: FakeSlurm, element: Element, name: str) -> bool:
    """True if it could start there now, or after the end of the elements that are ending."""
    is_open = slurm.nodes[name] in ("", "+PLANNED")
    return is_open and (slurm.is_completing(name) or fits(slurm, element, name))


def _is_booked(slurm: FakeSlurm, name: str, until: int) -> bool:
    return any(
        name in b.nodes and b.seen <= slurm.now and b.start < until and slurm.now < b.end
        for b in slurm.bookings
    )


def find_unfit(slurm: FakeSlurm) -> None:
    """A job that can never run on its asked nodes gets priority 0, as if it were held."""
    for element in slurm.elements.values():
        if waits_for(slurm, element) == "BadConstraints":
            element.is_unfit = True


def _start(slurm: FakeSlurm, element: Element) -> None:
    element.nodes, _ = _place(slurm, element)
    element.state, element.signalled, element.is_split = "RUNNING", None, True
    element.start, element.end = slurm.now, slurm.now + 60 * element.limit_min
    element.run = Run()
    slurm.history.append(f"{slurm.now} {element.name} RUNNING")
    slurm.started(element)


def _rigid(slurm: FakeSlurm, job: Rigid) -> None:
    """Others' jobs preempt. That is a fault only if their start was announced."""
    if job.state == "RUNNING" and slurm.now >= job.start + job.seconds:
        job.state = "COMPLETED"
    if job.state != "PENDING" or slurm.now < job.start:
        return
    ends = [e.end for e in slurm.ours_on(job.nodes) if e.partition == MAIN and e.end is not None]
    if any(end > slurm.now for end in ends):
        job.start = max(ends)  # a running core delays no other job, because Slurm plans around it
        return
    for element in _in_the_way(slurm, job):
        if job.seen < job.start:
            slurm.violations.append(
                Violation(slurm.now, element.name, "at the planned start of", str(job.job))
            )
        if element.state == "RUNNING":
            end(slurm, element, "PREEMPTED")
    if all(_is_open(slurm, name, job) for name in job.nodes):
        job.state, job.start = "RUNNING", slurm.now


def _in_the_way(slurm: FakeSlurm, job: Rigid) -> list[Element]:
    if job.part is None:
        return slurm.lent_on(job.nodes)
    return [e for name in sorted(job.nodes) for e in victims(slurm, name, job.part)]


def _is_open(slurm: FakeSlurm, name: str, job: Rigid) -> bool:
    return slurm.is_free(name) if job.part is None else covers(slurm.room(name), job.part)


def _booking(slurm: FakeSlurm, booking: Booking) -> None:
    if slurm.now == booking.start:
        for element in slurm.lent_on(booking.nodes):
            slurm.violations.append(
                Violation(slurm.now, element.name, "at the start of", booking.name)
            )
