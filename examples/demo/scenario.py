"""The timetable of the demo as data: what is submitted when, and the settings it runs under.

Must not know how any of it is done. Seconds count from the start of the load.
"""

from __future__ import annotations

from dataclasses import dataclass

NODES = 8
PARTITION = "main"  # of the rigid jobs
KILL_WAIT_S = 5
SUBMIT_AT_S = 1.0  # of the malleable job
TICK_S = 5
LIMIT_S = 480.0  # the load is given up after this long; a quiet host takes 205 s
CLOCK_S = 3.0  # Slurm keeps whole seconds, in two sandboxes, and looks once a second

# Short leases, so that a renewal and an end of a lease fit into minutes. The margin is shorter
# than slurmctld's half minute between two looks at limits plus a little: agents leave by
# themselves `notice_s` before their lease ends, so the margin is only the net below them.
SETTINGS = """
[lease]
length_s = 120
shortest_hole_s = 60
margin_s = 30
notice_s = 10
start_timeout_s = 20

[plan]
snooze_s = 10
"""


@dataclass(frozen=True)
class Rigid:
    """A whole-node `sleep` in the main partition. `is_urgent`: no node is free for it then."""

    name: str
    at_s: float
    nodes: int
    runs_s: int
    limit_min: int
    is_urgent: bool = False


@dataclass(frozen=True)
class Booking:
    """A reservation that an admin makes at `at_s`, over whatever runs there, for later."""

    name: str
    at_s: float
    node: str
    starts_s: int
    minutes: int


# `long` holds four of eight nodes until its end, so Slurm can only plan `planned`, on five. When
# `urgent` comes every node is busy; its limit reaches into the reservation, so that it must take
# a node elsewhere. The leases of the first fragments end 120 s after their start, and those on the
# reserved node cannot be renewed: the reservation begins KillWait and margin after that at least.
RIGID = (
    Rigid("long", 0, nodes=4, runs_s=100, limit_min=2),
    Rigid("short", 0, nodes=1, runs_s=30, limit_min=1),
    Rigid("planned", 45, nodes=5, runs_s=48, limit_min=1),
    Rigid("urgent", 106, nodes=1, runs_s=30, limit_min=2, is_urgent=True),
)
BOOKING = Booking("maintenance", at_s=20, node="n8", starts_s=168, minutes=2)
