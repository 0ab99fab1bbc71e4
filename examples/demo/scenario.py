"""Keep the timetables of the demo as data: jobs, their times, and the settings.

Two tables tell the same story in two units: whole nodes, and GPUs of nodes that jobs share. The
third is for a site that has installed nothing. This module must not know how it is done. Seconds
count from the start of the load.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

PARTITION = "main"  # of the rigid jobs
KILL_WAIT_S = 5
SUBMIT_AT_S = 1.0  # of the malleable job
TICK_S = 5
LIMIT_S = 480.0  # the demo then gives up. A quiet host needs half of it
CLOCK_S = 3.0  # Slurm keeps whole seconds, in two sandboxes, and looks once a second

# Short leases, so that a renewal and an end of a lease fit into minutes. The margin is shorter
# than slurmctld's half minute between two looks at limits plus a little: agents leave by
# themselves `notice_s` before their lease ends, so the margin is only the net below them.
LEASES = """
[mode]
level = "on"

[lease]
length_s = 120
shortest_hole_s = 60
margin_s = 30
notice_s = 10
start_timeout_s = 20
"""


@dataclass(frozen=True)
class Rigid:
    """A `sleep` in the main partition, on whole nodes or with `gpus` GPUs of each.

    `is_urgent`: there is no room for it then, so Slurm takes a fragment. `is_planned`: Slurm can
    only plan its start, on nodes of ours among others.
    """

    name: str
    at_s: float
    nodes: int
    runs_s: int
    limit_min: int
    is_urgent: bool = False
    is_planned: bool = False
    gpus: int = 0


@dataclass(frozen=True)
class Booking:
    """A reservation that an administrator makes at `at_s` for later, even over running jobs."""

    name: str
    at_s: float
    node: str
    starts_s: int
    minutes: int


@dataclass(frozen=True)
class Scenario:
    """A machine, in words too, and the events on it.

    All sizes count `unit`: `node` or `GPU`. `gpus` are the GPUs of a node, 0 if nodes are not
    shared. `most` is the malleable job's MAX, `lasts_s` how long the load usually takes. With
    `is_plain` the site has installed nothing, so nobody makes room for a `booking`.
    """

    unit: str
    machine: str
    title: str
    nodes: int
    most: int
    lasts_s: int
    rigid: tuple[Rigid, ...]
    settings: str = ""
    booking: Optional[Booking] = None
    gpus: int = 0
    is_plain: bool = False

    @property
    def node_names(self) -> tuple[str, ...]:
        """As sandboxes name them."""
        return tuple(f"n{index}" for index in range(1, self.nodes + 1))

    @property
    def per_node(self) -> int:
        """Units of a node."""
        return self.gpus or 1

    @property
    def key(self) -> str:
        """The unit as options and report.json write it."""
        return self.unit.lower()

    def counted(self, number: int) -> str:
        """`1 node`, `2 GPUs`."""
        return f"{number} {self.unit}" if number == 1 else f"{number} {self.unit}s"


# `long` holds four of eight nodes until its end, so Slurm can only plan `planned`, on five. When
# `urgent` comes every node is busy. Its limit reaches into the reservation, so that it must take
# a node elsewhere. The leases of the first fragments end 120 s after their start, and those on the
# reserved node cannot be renewed: the reservation begins KillWait and margin after that at least.
WHOLE = Scenario(
    unit="node",
    machine="eight nodes",
    title="an eight-node Slurm",
    nodes=8,
    most=6,
    lasts_s=205,
    settings=f"""{LEASES}
[plan]
snooze_s = 10

[site]
partitions = ["malleable"]
""",
    rigid=(
        Rigid("long", 0, nodes=4, runs_s=100, limit_min=2),
        Rigid("short", 0, nodes=1, runs_s=30, limit_min=1),
        Rigid("planned", 45, nodes=5, runs_s=48, limit_min=1, is_planned=True),
        Rigid("urgent", 106, nodes=1, runs_s=30, limit_min=2, is_urgent=True),
    ),
    booking=Booking("maintenance", at_s=20, node="n8", starts_s=168, minutes=2),
)

# Slurm puts `long` on n1, `trio` and `short` on n2, `duo` on n3. The malleable job takes n4 and one
# GPU of n3. The other is headroom. No node has two GPUs free for `pair`: Slurm takes the fragment
# on n4, though one GPU beside the headroom would do. Two of the four come back at the next tick.
# `single` fits into the headroom. `whole` can only have n4, and its limit ends before the
# reservation begins. No lease reaches beyond that, so the fragment on n3 leaves before.
SHARED = Scenario(
    unit="GPU",
    machine="four nodes of four GPUs",
    title="four nodes of four GPUs that jobs share",
    nodes=4,
    most=8,
    lasts_s=250,
    settings=f"""{LEASES}
[plan]
snooze_s = 10
headroom_gpus = 1

[site]
partitions = ["malleable", "parts"]
part_nodes = "parts"
""",
    rigid=(
        Rigid("long", 0, nodes=1, runs_s=150, limit_min=3),
        Rigid("trio", 0, nodes=1, gpus=3, runs_s=115, limit_min=3),
        Rigid("duo", 0, nodes=1, gpus=2, runs_s=115, limit_min=3),
        Rigid("short", 0.5, nodes=1, gpus=1, runs_s=30, limit_min=1),
        Rigid("pair", 50, nodes=1, gpus=2, runs_s=30, limit_min=1, is_urgent=True),
        Rigid("single", 93, nodes=1, gpus=1, runs_s=20, limit_min=1),
        Rigid("whole", 100, nodes=1, runs_s=30, limit_min=1, is_urgent=True),
    ),
    booking=Booking("maintenance", at_s=20, node="n3", starts_s=168, minutes=2),
    gpus=4,
)

# `long` leaves four of six nodes. The job takes all six when it ends, so `urgent` finds no room.
PLAIN = Scenario(
    unit="node",
    machine="six nodes, where nothing is installed,",
    title="a six-node Slurm where nothing is installed",
    nodes=6,
    most=6,
    lasts_s=200,
    rigid=(
        Rigid("long", 0, nodes=2, runs_s=55, limit_min=2),
        Rigid("urgent", 90, nodes=2, runs_s=30, limit_min=1, is_urgent=True),
    ),
    is_plain=True,
)
SCENARIOS = {scenario.key: scenario for scenario in (WHOLE, SHARED)}
