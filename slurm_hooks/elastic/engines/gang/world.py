"""The world in which a command is started. Values only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Place:
    """A member: the address and name of its node, a free port there, the port of its agent, and how
    many processes MPI may start on it.
    """

    host: str
    name: str
    port: int
    agent_port: int
    slots: int

    @property
    def address(self) -> str:
        """host:port for a server of the command."""
        return join_host_port(self.host, self.port)

    def as_said(self) -> list[Any]:
        """Return the form in which members send it to each other."""
        return [self.host, self.name, self.port, self.agent_port, self.slots]


def place_said(said: Any) -> Place:
    """Read the form that a member has sent. Raises ValueError, TypeError."""
    host, name, port, agent_port, slots = said
    return Place(str(host), str(name), int(port), int(agent_port), max(1, int(slots)))


def join_host_port(host: str, port: int) -> str:
    """Return host:port, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True)
class GangWorld:
    """The members of a round by rank, as the member of `rank` sees them. `folder` exists while the
    command runs, if its engine lays out files.
    """

    round: int
    rank: int
    places: tuple[Place, ...]
    folder: str = ""

    @property
    def size(self) -> int:
        """The number of members."""
        return len(self.places)


def common_variables(world: GangWorld) -> dict[str, str]:
    """Return the variables that every command gets, under any engine."""
    return {
        "MALLEABLE_ROUND": str(world.round),
        "MALLEABLE_RANK": str(world.rank),
        "MALLEABLE_WORLD_SIZE": str(world.size),
        "MALLEABLE_HOSTS": ",".join(place.host for place in world.places),
        "MALLEABLE_COORDINATOR": world.places[0].address,
    }


def agents_of(world: GangWorld) -> str:
    """Return the address of each node's agent, as `launch` reads it from MALLEABLE_AGENTS."""
    return json.dumps({p.name: [p.host, p.agent_port] for p in world.places})


def without_slurm(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the variables that make an MPI use the fragment as its whole
    allocation.
    """
    return {name: value for name, value in env.items() if not name.startswith(("SLURM_", "PMI"))}
