"""Read the settings of the rendezvous and the identity of this agent.

They come from torchrun's parameters and from the environment that the job's plugin set. Only the
name of this host is looked up.
"""

from __future__ import annotations

import re
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from slurm_hooks.elastic.agent.workers_here import request_of, workers_here
from slurm_hooks.elastic.rendezvous.rounds import Limits
from slurm_hooks.elastic.rendezvous.state import Member
from slurm_hooks.protocol.engines import BACKENDS, Engine, engine_of
from slurm_hooks.protocol.request import REQUEST_VARIABLE, SELF_VARIABLE, allowed

TRAITS_VARIABLE = "SLURM_SPANK_MALLEABLE_TRAITS"
_TAKEN_OVER = frozenset({"PET_NNODES", "PET_RDZV_BACKEND", "PET_RDZV_ID"})


class OptionError(ValueError):
    """A setting cannot be used. The message names it."""


@dataclass(frozen=True)
class Options:
    """Settings of an agent. All times are seconds."""

    directory: Path
    run: str
    limits: Limits
    host: str
    notice_s: float
    poll_s: float
    beat_s: float
    keep_alive_s: float
    settle_s: float  # training stops for newcomers when their list has not changed for so long
    leave_s: float  # a leaver waits at most so long for the others to have stopped
    boundary_s: float  # workers that listen get at most so long to reach a step boundary
    wait_s: float  # patience below the minimum
    backend: str = BACKENDS[0]  # as it was chosen
    is_told: bool = True  # rounds are reported in the job's log
    cluster: str = ""  # Slurm's name of it

    @property
    def owner(self) -> str:
        """The owner of the directory, with the cluster: jobs of two clusters may have the same
        number.
        """
        return f"{self.run} of {self.cluster}" if self.cluster else self.run


def options(params: Any, env: Mapping[str, str]) -> Options:
    """Return options from torch's RendezvousParameters. A setting is looked up in `--rdzv-conf`,
    then as MALLEABLE_<NAME> in the environment. Raises OptionError.
    """

    def given(name: str, default: float) -> float:
        return knob(env, name, default, params.get(name))

    _refuse_inherited(env)
    agents = max(params.max_nodes, number(env.get("MALLEABLE_MAX", "")))
    if not params.endpoint.startswith("/"):
        raise OptionError(
            f"PET_RDZV_ENDPOINT={params.endpoint!r}: give the absolute path of a directory "
            "that all nodes of the job share"
        )
    return Options(
        directory=Path(params.endpoint),
        run=_plain(str(params.run_id)),
        # Slurm 23.11.4 does not know the name in a batch script.
        cluster=_plain(env.get("SLURM_CLUSTER_NAME", "").replace("(null)", "")),
        backend=params.backend,
        limits=Limits(
            smallest=params.min_nodes,
            largest=params.max_nodes,
            last_call_s=given("last_call_s", 3.0),
            max_crashes=max(1, int(given("max_crashes", 3))),
            noun="workers" if request_of(env) else "fragments",
            sizes=_sizes(env, params.min_nodes, params.max_nodes),
        ),
        host=_host(params.local_addr),
        notice_s=given("notice_s", 20.0),
        poll_s=max(0.05, given("poll_s", _gentle(agents, 0.2))),
        beat_s=max(0.1, given("beat_s", _gentle(agents, 1.0))),
        keep_alive_s=max(1.0, given("keep_alive_s", _gentle(agents, 6.0))),
        settle_s=given("settle_s", 1.0),
        leave_s=given("leave_s", 40.0),
        boundary_s=given("boundary_s", 10.0),
        wait_s=given("wait_s", 7 * 86400.0),
    )


def _refuse_inherited(env: Mapping[str, str]) -> None:
    """Where nothing is installed, sbatch gives a job the environment of the job that submits it.
    Raises OptionError.
    """
    own = env.get(SELF_VARIABLE)
    if own and own != env.get("SLURM_JOB_ID"):
        job = env.get("MALLEABLE_JOB_ID", own)
        raise OptionError(
            f"this job has inherited the settings of job {job}, which has submitted it: write "
            "`unset ${!PET_@} ${!MALLEABLE_@}` above torchrun, or submit it with --export=NONE"
        )


def _sizes(env: Mapping[str, str], smallest: int, largest: int) -> frozenset[int]:
    """Return the only sizes that rounds may have, as the bounds count them, empty if any size
    between the bounds is allowed.
    """
    each = max(1, number(env.get("MALLEABLE_UNIT", ""))) if _is_one_each(env, largest) else 1
    sizes = (size // each for size in allowed(env.get(REQUEST_VARIABLE, "")))
    return frozenset(size for size in sizes if smallest <= size <= largest)


def _is_one_each(env: Mapping[str, str], largest: int) -> bool:
    """Return True if each fragment has a single agent, which counts as 1."""
    units = number(env.get("MALLEABLE_MAX", "")) // max(1, number(env.get("MALLEABLE_UNIT", "")))
    return not request_of(env) and largest <= units


def _plain(text: str) -> str:
    return re.sub(r"[^ -~]", "?", text)[:200]


def engine(env: Mapping[str, str]) -> Optional[Engine]:
    """Return the engine of this job, with the traits that job_submit has passed, or `None` if it is
    unknown. Raises OptionError.
    """
    try:
        return engine_of(env.get("MALLEABLE_ENGINE", ""), env.get(TRAITS_VARIABLE, ""))
    except ValueError as error:
        raise OptionError(f"{TRAITS_VARIABLE}: {error}") from None


def refuse_parts(env: Mapping[str, str], name: str, why: str) -> None:
    """Refuse fragments of different sizes, for an engine that cannot use them. Raises
    OptionError.
    """
    if request_of(env):
        raise OptionError(
            f"engine={name} cannot use parts of nodes: {why}; let MIN and MAX count nodes, without "
            f"unit=: --malleable=1-4,engine={name}"
        )


def knob(env: Mapping[str, str], name: str, default: float, first: str | None = None) -> float:
    """Return seconds: `first` if it is given, else MALLEABLE_<NAME>, else `default`. Raises
    OptionError.
    """
    text = first or env.get(f"MALLEABLE_{name.upper()}", "") or str(default)
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise OptionError(f"{name}={text!r}: give a number of seconds, 0 or more")
    return value


def agents(nodes: tuple[int, ...], job: Options, env: Mapping[str, str]) -> tuple[int, ...]:
    """Return the fragment of every agent, from the fragment of every node.

    With launch=srun each node has an agent, otherwise only the first node of a fragment. A fragment
    on a part of a node has a single agent.
    """
    if request_of(env):
        return tuple(sorted(set(nodes)))
    is_one_each = _is_one_each(env, job.limits.largest)
    return (tuple(sorted(set(nodes))) if is_one_each else nodes)[: job.limits.largest]


def _gentle(agents: int, base_s: float) -> float:
    """Poll less often when many agents share a directory."""
    return base_s * min(4.0, max(1.0, agents / 128))


def _host(local_addr: str | None) -> str:
    host = local_addr or socket.getfqdn()
    if not re.fullmatch(r"[A-Za-z0-9._:%-]{1,255}", host):
        raise OptionError(f"PET_LOCAL_ADDR={host!r} is neither a host name nor an address")
    return host


def identity(env: Mapping[str, str], host: str, ends: int) -> Member:
    """Return this agent as a newcomer."""
    job = number(env.get("SLURM_JOB_ID", ""))
    return Member(
        token=secrets.token_hex(8),
        fragment=number(env.get("MALLEABLE_FRAGMENT") or env.get("SLURM_ARRAY_TASK_ID", "")),
        node=number(env.get("SLURM_PROCID", "")),
        incarnation=f"{job}.{number(env.get('SLURM_RESTART_COUNT', ''))}",
        host=host,
        ends=ends,
        workers=workers_here(env),
    )


def number(text: str) -> int:
    """Return a count, 0 if the text is no count."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else 0


def kept(env: Mapping[str, str]) -> str:
    """Return a line that names the user's own settings, which win, empty without such settings."""
    names = re.sub(r"[^A-Za-z0-9_,]", "", env.get("MALLEABLE_KEPT", "")).split(",")
    left = ",".join(name for name in names if name and name not in _TAKEN_OVER)
    return f"your own settings are kept: {left}" if left else ""
