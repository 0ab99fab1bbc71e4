"""Whole clusters as a FakeSlurm in any state, modes, and what tests of their plans need."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from fake_parts import MAIN, START, Booking, Element, Rigid
from fake_slurm import FakeSlurm
from slurm_hooks.model import Fragment, FragmentId, Plan, Snapshot
from slurm_hooks.settings.values import Mode
from slurm_hooks.slurm.writing import apply

many = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

NODE_FLAGS = [*[""] * 12, "+DRAIN", "+REBOOT_REQUESTED", "DOWN", "IDLE+NEW_WORD", "+PLANNED"]
MARK = (
    "malleable{{min={low},max={high},unit={unit},engine={engine},frags={n},lease={lease},hole=120"
)
NOTES = [*[""] * 8, ",fails=1", ",avoid=n1"]
POOL_NOTES = [*[""] * 6, ",fails=1", f",avoid=n1@{START - 90},fails=1", f",idle={START - 50}"]
WISHES = [*[""] * 6, *(f"wish{{{n},{START - 60 + n}}}" for n in (0, 1, 2, 3, 60_000)), "wish{1"]


def fragments(seen: Snapshot) -> dict[FragmentId, Fragment]:
    return {f.id: f for job in seen.jobs for f in job.fragments}


def write(slurm: FakeSlurm, seen: Snapshot, plan: Plan) -> list[str]:
    """Write a plan as a tick does. Refused commands come back."""
    return apply(slurm, seen, plan.actions, lambda text: None)


@st.composite
def modes(draw: st.DrawFn) -> Mode:
    return Mode(
        level=draw(st.sampled_from(["on", "on", "on", "observe"])),
        max_nodes=draw(st.sampled_from([0, 0, 0, 1, 2, 3, 5])),
        max_share=draw(st.sampled_from([1.0, 1.0, 1.0, 0.5, 0.3, 0.0])),
    )


@st.composite
def clusters(draw: st.DrawFn, with_cores: bool = False) -> FakeSlurm:
    """Up to 8 nodes and 3 jobs with elements in any state, other people's jobs, reservations."""
    names = [f"n{i}" for i in range(1, draw(st.integers(1, 8)) + 1)]
    slurm = FakeSlurm({name: draw(st.sampled_from(NODE_FLAGS)) for name in names})
    free = list(names)
    for job in range(1, draw(st.integers(0, 3)) + 1):
        _job(draw, slurm, job, free, with_cores)
    for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
        some = frozenset(draw(st.lists(st.sampled_from(names), min_size=1, max_size=4)))
        start = START + draw(st.integers(-300, 1500))
        slurm.bookings.append(Booking(f"r{start}", some, 0, start, start + 900))
    for at in range(draw(st.sampled_from([0, 0, 1, 2]))):
        some = frozenset(draw(st.lists(st.sampled_from(names), min_size=1, max_size=4)))
        start = START + draw(st.integers(1, 1500))
        slurm.rigid.append(Rigid(90 + at, some, 0, start, 300))
    return slurm


def _job(draw: st.DrawFn, slurm: FakeSlurm, job: int, free: list[str], with_cores: bool) -> None:
    unit = draw(st.sampled_from([1, 1, 1, 2]))
    is_pool = draw(st.sampled_from([False, False, True]))
    low = unit * draw(st.integers(1 - is_pool, 3))
    high = low + unit * draw(st.integers(is_pool, 3))
    engine = "pool" if is_pool else "torchrun"
    lease = draw(st.sampled_from([120, 300, 600, 3600]))
    count = high // unit
    core = draw(st.integers(0, min(count, 2))) if with_cores else 0
    end = draw(st.sampled_from(["", ",end=finish"])) if core else ""
    engine += f",core={unit * core}{end},lane=malleable" if core else ""
    mark = MARK.format(low=low, high=high, unit=unit, n=count, lease=lease, engine=engine)
    is_exchangeable = draw(st.booleans())
    mark += ",not=-" if is_exchangeable else ""
    for index in range(count):
        spent = draw(st.sampled_from(["", "", ",spent=1"])) if index < core else ""
        if index < core and not spent:
            _core(draw, slurm, Element(job, index, mark, partition=MAIN, count=unit), free)
            continue
        element = Element(job, index, mark)
        element.count = unit
        element.limit_min = draw(st.integers(2, 10))
        notes = draw(st.sampled_from(POOL_NOTES if is_pool else NOTES))
        state = draw(st.sampled_from(["HELD"] * 3 + ["PENDING"] + ["RUNNING"] * 2 + ["ENDED"]))
        if state in ("PENDING", "RUNNING") and len(free) >= unit:
            given = frozenset(free.pop(0) for _ in range(unit))
            notes += _under_way(draw, element, state, given)
            if is_exchangeable and draw(st.booleans()):
                element.barred = frozenset(slurm.nodes) - given
            else:
                element.asked = given
        elif state == "ENDED":
            element.state = draw(
                st.sampled_from(["COMPLETED", "FAILED", "TIMEOUT", "TIMEOUT", "CANCELLED", "ODD"])
            )
            ran = draw(st.integers(0, 60 * element.limit_min))
            element.start = START - 30 - ran
            element.end = element.start + ran
            element.exit_code = 256 if element.state == "FAILED" else 0
        elif draw(st.booleans()):  # an operator's list, or of its last run
            names = st.sampled_from(sorted(slurm.nodes))
            element.asked = draw(st.frozensets(names, min_size=1, max_size=unit))
        elif core:  # on its way to the lane
            element.partition = draw(st.sampled_from([MAIN, "malleable"]))
        if is_pool:
            _wish(draw, element)
        element.admin_comment = mark + notes + spent + "}"
        slurm.elements[element.name] = element


def _core(draw: st.DrawFn, slurm: FakeSlurm, element: Element, free: list[str]) -> None:
    """An element in the ordinary queue: without a place there, waiting, running or at its end."""
    element.limit_min, notes = draw(st.integers(5, 90)), ""
    state = draw(st.sampled_from(["HELD", "PENDING", "RUNNING", "ENDED"]))
    if state == "PENDING" or (state == "RUNNING" and len(free) < element.count):
        element.hold, notes = "", f",at={START - draw(st.integers(0, 9000))}"
    elif state == "RUNNING":
        given = frozenset(free.pop(0) for _ in range(element.count))
        notes = _under_way(draw, element, state, given).partition(",leave=")[0]
        element.signalled = None
    elif state == "ENDED":
        element.state = draw(st.sampled_from(["COMPLETED", "FAILED", "TIMEOUT", "CANCELLED"]))
        element.start, element.end = START - 300, START - 30
        element.exit_code = 256 if element.state == "FAILED" else 0
    element.admin_comment += notes + "}"
    slurm.elements[element.name] = element


def _wish(draw: st.DrawFn, element: Element) -> None:
    """A pool may say how many nodes it wants, in any element."""
    wish = draw(st.sampled_from(WISHES))
    if wish:
        said, _, rest = element.comment.partition(";")
        is_standing = said.endswith("}")
        element.comment = f"{said};{wish};{rest}" if is_standing else f"{wish};{element.comment}"


def _under_way(draw: st.DrawFn, element: Element, state: str, nodes: frozenset[str]) -> str:
    """Make an element pending or running. Return the rest of its mark."""
    released = START - draw(st.integers(0, 90))
    element.hold = ""
    if state == "PENDING":
        element.eligible = released + draw(st.sampled_from([0, 0, 120]))
        return f",at={released}"
    element.state, element.nodes = "RUNNING", nodes
    element.start = START - draw(st.integers(0, 60 * element.limit_min - 1))
    element.comment = draw(
        st.sampled_from(["joined{0}", "trained{0};text", "trained{0};h{1};text", "text", ""])
    )
    element.end = element.start + 60 * element.limit_min
    if draw(st.integers(0, 4)):
        return f",at={element.start}"
    element.signalled = START - draw(st.integers(0, 40))
    return f",at={element.start},leave={element.signalled}"
