"""What a command is told of the world that it is started in. Values only."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

OPEN_MPI_HOSTS, HYDRA_HOSTS, LAUNCHER = "hosts", "hosts.hydra", "launch"


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
    """The members of one round by rank, as the one of `rank` sees them."""

    round: int
    rank: int
    places: tuple[Place, ...]

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


def told_tensorflow(world: GangWorld) -> dict[str, str]:
    """TF_CONFIG of this member: tensorflow.org/guide/distributed_training#TF_CONFIG."""
    workers = [place.address for place in world.places]
    task = {"type": "worker", "index": world.rank}
    return {"TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": task})}


def agents_of(world: GangWorld) -> str:
    """Where the agent of each node listens, as `launch` reads it from MALLEABLE_AGENTS."""
    return json.dumps({p.name: [p.host, p.agent_port] for p in world.places})


def without_slurm(env: Mapping[str, str]) -> dict[str, str]:
    """The environment without what makes an MPI take the fragment for its whole allocation."""
    return {name: value for name, value in env.items() if not name.startswith(("SLURM_", "PMI"))}


def told_mpi(folder: str) -> dict[str, str]:
    """What makes Open MPI (4 and 5) and MPICH start their daemons on the nodes of the round, by the
    program in this folder that takes the place of ssh. All daemons are the leader's own, and stay
    attached to it, so that they end with it."""
    launcher, hosts = f"{folder}/{LAUNCHER}", f"{folder}/{OPEN_MPI_HOSTS}"
    return {
        "OMPI_MCA_plm": "rsh",
        "OMPI_MCA_ras": "^slurm",
        "OMPI_MCA_plm_rsh_agent": launcher,
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "OMPI_MCA_orte_leave_session_attached": "1",
        "OMPI_MCA_orte_default_hostfile": hosts,
        "PRTE_MCA_plm": "ssh",
        "PRTE_MCA_ras": "^slurm",
        "PRTE_MCA_plm_ssh_agent": launcher,
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
        "PRTE_MCA_prte_leave_session_attached": "1",
        "PRTE_MCA_prte_default_hostfile": hosts,
        "HYDRA_LAUNCHER": "ssh",
        "HYDRA_LAUNCHER_EXEC": launcher,
        "HYDRA_HOST_FILE": f"{folder}/{HYDRA_HOSTS}",
    }


def files_of(world: GangWorld, python: str, path: str) -> dict[str, str]:
    """What has to be in that folder, by name. `path` is where `python` finds this package: there
    and not in the working directory, where a user may have a json.py."""
    program = (
        f"import sys; sys.path = [{path!r}, *filter(None, sys.path)]; "
        f"from {__package__}.launch import main; sys.exit(main(sys.argv[1:]))"
    )
    launch = f"exec {shlex.quote(python)} -c {shlex.quote(program)}"
    return {
        OPEN_MPI_HOSTS: "".join(f"{p.name} slots={p.slots}\n" for p in world.places),
        HYDRA_HOSTS: "".join(f"{p.name}:{p.slots}\n" for p in world.places),
        LAUNCHER: f'#!/bin/sh\n{launch} "$@"\n',
    }
