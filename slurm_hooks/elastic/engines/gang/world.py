"""What a command is told of the world that it is started in. Values only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Place:
    """One member: the address and the name of its node, a port there that was free just now, the
    port of its agent, and how many processes MPI may start on it."""

    host: str
    name: str
    port: int
    agent_port: int
    slots: int

    @property
    def address(self) -> str:
        """As host:port, for what the command serves there."""
        return join_host_port(self.host, self.port)

    def as_said(self) -> list[Any]:
        """As members tell each other."""
        return [self.host, self.name, self.port, self.agent_port, self.slots]


def place_said(said: Any) -> Place:
    """What a member has told of itself. Raises ValueError, TypeError."""
    host, name, port, agent_port, slots = said
    return Place(str(host), str(name), int(port), int(agent_port), max(1, int(slots)))


def join_host_port(host: str, port: int) -> str:
    """An IPv6 address gets brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True)
class GangWorld:
    """The members of one round by rank, as the one of `rank` sees them. `folder` is there while
    the command runs, if its engine lays out files."""

    round: int
    rank: int
    places: tuple[Place, ...]
    folder: str = ""

    @property
    def size(self) -> int:
        """How many members."""
        return len(self.places)


def told(world: GangWorld) -> dict[str, str]:
    """What every command finds in its environment, whatever it is."""
    return {
        "MALLEABLE_ROUND": str(world.round),
        "MALLEABLE_RANK": str(world.rank),
        "MALLEABLE_WORLD_SIZE": str(world.size),
        "MALLEABLE_HOSTS": ",".join(place.host for place in world.places),
        "MALLEABLE_COORDINATOR": world.places[0].address,
    }


def agents_of(world: GangWorld) -> str:
    """Where the agent of each node listens, as `launch` reads it from MALLEABLE_AGENTS."""
    return json.dumps({p.name: [p.host, p.agent_port] for p in world.places})


def without_slurm(env: Mapping[str, str]) -> dict[str, str]:
    """The environment without what makes an MPI take the fragment for its whole allocation."""
    return {name: value for name, value in env.items() if not name.startswith(("SLURM_", "PMI"))}
