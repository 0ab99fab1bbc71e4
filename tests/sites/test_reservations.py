"""Reservations of every kind: each fragment leaves before its node's reservation begins.

All kinds exist at once, each on its own node, on a real Slurm under ticks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from promises.bench import Bench, has, occupied
from slurm_hooks.model import FragmentState, Snapshot
from slurm_hooks.sandbox import Sandbox
from waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.slow]
NewSite = Callable[..., Sandbox]
SLEEP = "exec sleep 900"
SOON_S = 150
# Kind -> words for scontrol. Each reservation begins soon, on its own node.
KINDS = {
    "once": "users=root",
    "user": "users=nobody",  # the user of these fragments: they do not belong there either
    "flex": "users=nobody flags=FLEX",
    "maint": "users=root flags=MAINT,IGNORE_JOBS",
    "magnetic": "users=nobody flags=MAGNETIC",
    "hourly": "users=root flags=HOURLY",
    "daily": "users=root flags=DAILY",
    "weekly": "users=root flags=WEEKLY",
    "overlap": "users=root flags=OVERLAP,IGNORE_JOBS",
    "group": "accounts=root flags=IGNORE_JOBS",
    "part": "users=root flags=PART_NODES,IGNORE_JOBS partition=lab nodes=ALL",
    "floating": "users=root flags=TIME_FLOAT",
}
FREE_NODES = 2
LONG_BEFORE_S = SOON_S - 70  # until then no fragment has a reason to leave
PARTITION = f"PartitionName=lab Nodes=n{[*KINDS].index('part') + 1} PriorityTier=10\n"


@pytest.fixture(scope="module")
def site(new_site: NewSite) -> Sandbox:
    """A node for each kind, and some nodes without a reservation."""
    nodes = len(KINDS) + FREE_NODES
    conf = f"{PARTITION}Licenses=matlab:2\n"
    return new_site(nodes=nodes, extra_conf=conf)


@pytest.fixture
def bench(site: Sandbox) -> Iterator[Bench]:
    bench = Bench(site).patient()
    yield bench
    for reservation in bench.observe().reservations:
        site.run(["scontrol", "delete", f"reservation={reservation.name}"], check=False)
    bench.cancel_all()


def reserve(box: Sandbox, name: str, start: str, words: str) -> None:
    argv = ["scontrol", "create", "reservation", f"reservationname={name}", f"starttime={start}"]
    box.run([*argv, *words.split()])


def active(box: Sandbox) -> dict[str, str]:
    """Reservations that have begun, as Slurm says itself: name -> nodes."""
    text = box.run(["scontrol", "-o", "show", "reservations"]).stdout
    rows = [dict(w.partition("=")[::2] for w in line.split()) for line in text.splitlines()]
    return {w["ReservationName"]: w["Nodes"] for w in rows if w.get("State") == "ACTIVE"}


def overruns(seen: Snapshot) -> list[str]:
    """Fragments whose lease overlaps a reservation of their node."""
    return [
        f"{fragment.id} on {sorted(fragment.nodes)} until {fragment.end}: {one.name} {one.start}"
        for job in seen.jobs
        for fragment in job.fragments
        for one in seen.reservations
        if fragment.state is FragmentState.RUNNING
        and fragment.nodes & one.nodes
        and fragment.end is not None
        and fragment.end > one.start
    ]


def test_fragments_leave_before_a_reservation_of_any_kind_begins(bench: Bench) -> None:
    box, nodes = bench.box, bench.box.nodes
    job = bench.submit(SLEEP, f"1-{len(nodes)}", options=["--time-min=1"])
    began = time.monotonic()
    for node, (name, words) in zip(nodes, KINDS.items()):
        where = "" if "nodes=" in words else f"nodes={node}"
        reserve(box, name, f"now+{SOON_S}", f"duration=10 {where} {words}")
    bench.tick_until(job, has(len(nodes)))
    nodes_of = dict(zip(KINDS, nodes))
    seen_active: set[str] = set()
    while time.monotonic() - began < SOON_S + 15:
        bench.tick()
        seen = bench.observe()
        assert not overruns(seen)
        inside = active(box)
        seen_active |= set(inside)
        here = occupied(bench.job(job))
        assert here == set(nodes) or time.monotonic() - began > LONG_BEFORE_S
        assert not [name for name in inside if nodes_of[name] in here], (inside, here)
        time.sleep(2)
    assert seen_active == set(KINDS) - {"floating"}  # which stays as far away as it was
    assert occupied(bench.job(job)) >= {nodes_of["floating"], *nodes[-FREE_NODES:]}


def test_a_reservation_by_count_that_moves_is_followed(bench: Bench) -> None:
    """Slurm gives the reservation another node when a node of it is down."""
    box = bench.box
    job = bench.submit(SLEEP, "1-20", options=["--exclude=" + ",".join(box.nodes[4:])])
    reserve(box, "count", "now+20minutes", "duration=10 nodecnt=2 users=root partition=main")

    def reserved() -> frozenset[str]:
        return bench.observe().reservations[0].nodes

    first = reserved()
    node = min(first)
    box.run(["scontrol", "update", f"nodename={node}", "state=down", "reason=test"])
    try:
        wait_until(lambda: node not in reserved(), explain=reserved, every_s=1)
        bench.tick_until(job, lambda j: len(occupied(j)) >= 1)
        assert len(reserved()) == len(first) == 2
        assert not overruns(bench.observe())
    finally:
        box.run(["scontrol", "update", f"nodename={node}", "state=resume"])


def test_a_magnetic_reservation_attracts_no_fragment_of_its_own_user(bench: Bench) -> None:
    box = bench.box
    held = box.nodes[0]
    reserve(box, "magnet", "now", f"duration=30 nodes={held} users=nobody flags=MAGNETIC")
    job = bench.submit(SLEEP, "1-20")
    bench.tick_until(job, has(len(box.nodes) - 1))
    for _ in range(3):
        bench.tick()
        time.sleep(1)
    assert occupied(bench.job(job)) == set(box.nodes[1:])


def test_a_reservation_of_licences_alone_takes_no_node(bench: Bench) -> None:
    reserve(
        bench.box,
        "licences",
        "now+2minutes",
        "duration=5 licenses=matlab:2 users=root flags=ANY_NODES",
    )
    job = bench.submit(SLEEP, "1-20")
    bench.tick_until(job, has(len(bench.box.nodes)))
    assert bench.observe().reservations[0].nodes == frozenset()
