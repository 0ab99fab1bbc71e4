"""Give the job's rendezvous to every program that asks torch for a rendezvous in a fragment.

This holds whatever a script written for a rigid job says: `--rdzv-backend=c10d
--rdzv-endpoint=$head:29500`, `--standalone`, `--master-addr`, `--nnodes=$SLURM_NNODES`, or a
launcher that hands torch its own values. Otherwise every fragment would train alone, all on the
same checkpoint.

All ways lead through torch's RendezvousParameters, so the requested values are replaced there.
`adopted` is pure. It must not import torch: torch is loading us.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Optional

from slurm_hooks.elastic.agent.options import number
from slurm_hooks.elastic.agent.workers_here import request_of
from slurm_hooks.protocol.engines import BACKENDS, ENGINES
from slurm_hooks.protocol.request import Request

_API = "torch.distributed.elastic.rendezvous.api"
_KNOWN = ("self", "backend", "endpoint", "run_id", "min_nodes", "max_nodes", "local_addr")


@dataclass(frozen=True)
class Requested:
    """The values that a program requests from torch, in the names of RendezvousParameters."""

    backend: str
    endpoint: str
    run_id: str
    min_nodes: int
    max_nodes: int
    local_addr: Optional[str] = None


@dataclass(frozen=True)
class Instead:
    """The values that are used instead. `lines` explain each change to the user. `is_narrowed`: the
    change keeps the job from using all the nodes that it may get.
    """

    values: Requested
    lines: tuple[str, ...] = ()
    is_narrowed: bool = False


def adopted(requested: Requested, env: Mapping[str, str]) -> Instead:
    """Return the values to use in the fragment with this environment.

    An absolute path as endpoint of ours is kept: the user has chosen that directory. Without a
    directory of the job, the requested values stay.
    """
    lines = []
    place = requested.endpoint if requested.backend in BACKENDS else ""
    place = _first_path(place, env.get("PET_RDZV_ENDPOINT", ""), env.get("MALLEABLE_DIR", ""))
    if requested.backend not in BACKENDS:
        theirs = "" if requested.endpoint == env.get("PET_RDZV_ENDPOINT") else requested.endpoint
        where = f" at {theirs[:100]}" if theirs else ""
        lines.append(
            f"fragments use the job's own rendezvous instead of {requested.backend}{where}"
        )
    mine = requested.min_nodes, requested.max_nodes
    job = _range_of_job(env) or mine
    request = request_of(env)
    low, high, line = _workers(mine, request, env) if request else _nodes(mine, job)
    instead = replace(
        requested,
        backend=requested.backend if requested.backend in BACKENDS else BACKENDS[-1],
        endpoint=place or requested.endpoint,
        run_id=env.get("MALLEABLE_JOB_ID") or env.get("PET_RDZV_ID") or requested.run_id,
        min_nodes=low,
        max_nodes=high,
        local_addr=requested.local_addr or env.get("PET_LOCAL_ADDR") or None,
    )
    is_narrowed = request is None and high < job[1]
    return Instead(instead, tuple([*lines, line] if line else lines), is_narrowed)


def _first_path(*places: str) -> str:
    return next((place for place in places if place.startswith("/")), "")


def _nodes(requested: tuple[int, int], job: tuple[int, int]) -> tuple[int, int, str]:
    """Return the least and the largest number of agents, and a line.

    A plain number describes the script's rigid job, so it is ignored. A range is meant, and narrows
    the job's range.
    """
    if requested == job:
        return (*requested, "")
    whole = f"{job[0]}:{job[1]}"
    low, high = max(requested[0], job[0]), min(requested[1], job[1])
    if requested[0] == requested[1]:
        return (*job, f"your --nnodes={requested[0]} is ignored; the job's range is {whole}")
    given = f"your --nnodes={requested[0]}:{requested[1]}"
    if low > high:
        return (*job, f"{given} is ignored; the job's range is {whole}")
    if (low, high) == job:
        return (*job, "")
    return (
        low,
        high,
        f"{given} narrows the job's {whole} to {low}:{high}; submit with that range instead",
    )


def _workers(
    requested: tuple[int, int], request: Request, env: Mapping[str, str]
) -> tuple[int, int, str]:
    """Return the least and the largest number of workers, and a line. Agents do not measure them,
    so the script's range does not narrow the request's.
    """
    low, _, high = env.get("PET_NNODES", "").partition(":")
    is_plugins = not _is_kept(env) and requested == (number(low), number(high) or number(low))
    given = f"{requested[0]}" if requested[0] == requested[1] else f"{requested[0]}:{requested[1]}"
    line = f"your --nnodes={given} is ignored; the job's range is {request.text}"
    return max(1, request.smallest), request.largest, "" if is_plugins else line


def _is_kept(env: Mapping[str, str]) -> bool:
    return "PET_NNODES" in env.get("MALLEABLE_KEPT", "").split(",")


def _range_of_job(env: Mapping[str, str]) -> Optional[tuple[int, int]]:
    """Return the numbers of agents that the job may have: as the plugin says in PET_NNODES, or from
    the request if the script has replaced that.
    """
    smallest, _, largest = env.get("PET_NNODES", "").partition(":")
    if not _is_kept(env) and number(smallest):
        return number(smallest), number(largest) or number(smallest)
    unit = max(1, number(env.get("MALLEABLE_UNIT", "")))
    nodes = number(env.get("MALLEABLE_MIN", "")), number(env.get("MALLEABLE_MAX", ""))
    if not all(nodes):
        return None
    engine = ENGINES.get(env.get("MALLEABLE_ENGINE", ""))
    if engine and not engine.is_gang:
        nodes = unit, unit
    has_agent_each = number(env.get("SLURM_STEP_NUM_NODES", "")) == unit  # srun torchrun
    share = 1 if has_agent_each else unit
    return max(1, nodes[0] // share), max(1, nodes[1] // share)


def take_over(
    env: Mapping[str, str], report: Callable[[Instead], None], begun: Callable[[], None]
) -> bool:
    """From now on give torch the values that `adopted` returns.

    `begun` is called first, since a program that asks for a rendezvous is an agent. `report` is
    called with the values. Return False if this torch is not as expected. Without torch there is no
    work.
    """
    if _API not in sys.modules:
        return True
    parameters: Any = getattr(sys.modules[_API], "RendezvousParameters", None)
    if parameters is None or _names(parameters.__init__)[: len(_KNOWN)] != _KNOWN:
        return False
    plain = parameters.__init__

    def begin(self: Any, *words: Any, **named: Any) -> None:
        begun()
        given = dict(zip(_KNOWN[1:], words))
        rest = {name: value for name, value in named.items() if name not in _KNOWN}
        given.update((name, value) for name, value in named.items() if name in _KNOWN)
        instead = adopted(Requested(**given), env)
        report(instead)
        plain(self, **vars(instead.values), **rest)

    parameters.__init__ = begin
    return True


def _names(function: Any) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)
