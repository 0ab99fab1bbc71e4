"""The knobs of the rendezvous, and who this agent is, from torchrun's parameters and the
environment that the job's plugin set. Values only; reads no file and asks nobody.
"""

from __future__ import annotations

import re
import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from slurm_hooks.elastic.rendezvous.rounds import Limits
from slurm_hooks.elastic.rendezvous.state import Member

# torch names the backend when it cannot find it, and that is all that we can say where torch
# is too old to load us, or cannot see us. So the name that jobs are given says what is missing.
BACKENDS = (
    "malleable",
    "malleable-needs-torch-2.6-or-newer-and-the-PYTHONPATH-of-the-job",
)
_ENGINES = ("torchrun", "torchft")  # those that torchrun starts
_TORCHRUN = (("torch", "distributed", "run.py"), ("torch", "distributed", "launch.py"))
_TAKEN_OVER = frozenset({"PET_NNODES", "PET_RDZV_BACKEND", "PET_RDZV_ID"})
_SWITCHES = frozenset(
    {"--standalone", "-m", "--module", "--no-python", "--run-path", "--virtual-local-rank"}
)


class Contexts(Enum):
    """Which workers in waiting make their CUDA context ahead."""

    NONE = "none"
    FIRST = "first"  # those of a newcomer
    ALL = "all"  # those beside running workers too


class OptionError(ValueError):
    """A setting cannot be used; the message names it."""


@dataclass(frozen=True)
class Options:
    """Settings of one agent; seconds throughout."""

    directory: Path
    run: str
    limits: Limits
    host: str
    notice_s: float
    poll_s: float
    beat_s: float
    keep_alive_s: float
    settle_s: float  # newcomers must have been quiet so long before training stops for them
    leave_s: float  # a leaver waits at most so long for the others to have stopped
    boundary_s: float  # workers that listen get at most so long to reach a step boundary
    wait_s: float  # patience below the minimum
    backend: str = BACKENDS[0]  # as it was chosen
    is_told: bool = True  # rounds are, in the job's log


def options(params: Any, env: Mapping[str, str]) -> Options:
    """Options from torch's RendezvousParameters. A knob is looked up in `--rdzv-conf`,
    then as MALLEABLE_<NAME> in the environment. Raises OptionError."""

    def given(name: str, default: float) -> float:
        return knob(env, name, default, params.get(name))

    crowd = max(params.max_nodes, number(env.get("MALLEABLE_MAX", "")))
    if not params.endpoint.startswith("/"):
        raise OptionError(
            f"PET_RDZV_ENDPOINT={params.endpoint!r}: give the absolute path of a directory "
            "that all nodes of the job share"
        )
    return Options(
        directory=Path(params.endpoint),
        run=re.sub(r"[^ -~]", "?", str(params.run_id))[:200],
        backend=params.backend,
        limits=Limits(
            smallest=params.min_nodes,
            largest=params.max_nodes,
            last_call_s=given("last_call_s", 3.0),
            max_crashes=max(1, int(given("max_crashes", 3))),
        ),
        host=_host(params.local_addr),
        notice_s=given("notice_s", 20.0),
        poll_s=max(0.05, given("poll_s", _gentle(crowd, 0.2))),
        beat_s=max(0.1, given("beat_s", _gentle(crowd, 1.0))),
        keep_alive_s=max(1.0, given("keep_alive_s", _gentle(crowd, 6.0))),
        settle_s=given("settle_s", 1.0),
        leave_s=given("leave_s", 40.0),
        boundary_s=given("boundary_s", 10.0),
        wait_s=given("wait_s", 7 * 86400.0),
    )


def knob(env: Mapping[str, str], name: str, default: float, first: str | None = None) -> float:
    """Seconds: what `first` says, else MALLEABLE_<NAME>, else `default`. Raises OptionError."""
    text = first or env.get(f"MALLEABLE_{name.upper()}", "") or str(default)
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise OptionError(f"{name}={text!r}: give seconds, a number from 0 on")
    return value


def of_group(job: Options, me: Member) -> Options:
    """Options of a replica group, which is one fragment: a world of its own in the job's."""
    place = job.directory / "groups" / str(me.fragment)
    return replace(job, directory=place, is_told=False)


def of_groups(job: Options, env: Mapping[str, str]) -> Options:
    """Options of what joins the replica groups, counted in agents as of_group counts them."""
    unit = max(1, number(env.get("MALLEABLE_UNIT", "")))
    agents = job.limits.largest
    smallest = agents * max(1, number(env.get("MALLEABLE_MIN", "")) // unit)
    largest = agents * max(1, number(env.get("MALLEABLE_MAX", "")) // unit)
    return replace(job, limits=replace(job.limits, smallest=smallest, largest=largest))


def agents(nodes: tuple[int, ...], job: Options, env: Mapping[str, str]) -> tuple[int, ...]:
    """The fragment of every agent, from that of every node: with launch=srun each node has
    an agent, otherwise only the first of a fragment."""
    fragments = number(env.get("MALLEABLE_MAX", "")) // max(
        1, number(env.get("MALLEABLE_UNIT", ""))
    )
    is_one_each = job.limits.largest <= fragments
    return (tuple(sorted(set(nodes))) if is_one_each else nodes)[: job.limits.largest]


def _gentle(agents: int, base_s: float) -> float:
    """Poll less often when many agents share one directory."""
    return base_s * min(4.0, max(1.0, agents / 128))


def _host(local_addr: str | None) -> str:
    host = local_addr or socket.getfqdn()
    if not re.fullmatch(r"[A-Za-z0-9._:%-]{1,255}", host):
        raise OptionError(f"PET_LOCAL_ADDR={host!r} is neither a host name nor an address")
    return host


def identity(env: Mapping[str, str], host: str, ends: int) -> Member:
    """This agent as a newcomer."""
    job = number(env.get("SLURM_JOB_ID", ""))
    return Member(
        token=secrets.token_hex(8),
        fragment=number(env.get("MALLEABLE_FRAGMENT") or env.get("SLURM_ARRAY_TASK_ID", "")),
        node=number(env.get("SLURM_PROCID", "")),
        incarnation=f"{job}.{number(env.get('SLURM_RESTART_COUNT', ''))}",
        host=host,
        ends=ends,
    )


def is_ours(env: Mapping[str, str]) -> bool:
    """Whether torchrun runs in a fragment whose training it is."""
    return env.get("PET_RDZV_BACKEND") in BACKENDS or (
        env.get("MALLEABLE_ENGINE") in _ENGINES and bool(env.get("MALLEABLE_FRAGMENT"))
    )


def is_torchrun(argv: Sequence[str]) -> bool:
    """Whether this process was started as torchrun, to train: not to be asked for its flags.
    `python -m torch.distributed.run` has the path of that module as its name."""
    if not argv or "-h" in argv or "--help" in argv:
        return False
    own = Path(argv[0])
    return own.name == "torchrun" or own.parts[-3:] in _TORCHRUN


def overrides(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """What of the user's keeps torchrun from using this rendezvous, or nothing."""
    given = dict(_flags(argv))
    if "--standalone" in given:
        return "--standalone"
    if env.get("PET_STANDALONE", "0") not in ("", "0"):
        return f"PET_STANDALONE={env['PET_STANDALONE']}"
    for name, value in (
        ("--rdzv-backend", given.get("--rdzv-backend", "")),
        ("PET_RDZV_BACKEND", env.get("PET_RDZV_BACKEND", "")),
    ):
        if value:
            return "" if value in BACKENDS else f"{name}={value}"
    return "unset PET_RDZV_BACKEND"


def _flags(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    """torchrun's own flags with their values; what follows the script is not torchrun's."""
    words = iter(argv[1:])
    for word in words:
        if not word.startswith("-") or word in ("-", "--"):
            return
        flag, equals, value = word.partition("=")
        flag = flag.replace("_", "-")
        is_alone = equals or flag in _SWITCHES or (flag[1:2] != "-" and len(flag) > 2)
        yield flag, value if is_alone else next(words, "")


def warm_modules(env: Mapping[str, str]) -> list[str] | None:
    """Modules that MALLEABLE_WARM adds to what workers in waiting import; None if it is
    0: no workers in waiting."""
    words = env.get("MALLEABLE_WARM", "").split(",")
    if words == ["0"]:
        return None
    names = [w for w in words if w not in ("cuda", "nocuda")]
    return [n for n in names if all(part.isidentifier() for part in n.split("."))]


def warm_contexts(env: Mapping[str, str]) -> Contexts:
    """What MALLEABLE_WARM says of CUDA: `cuda` always, `nocuda` never."""
    words = env.get("MALLEABLE_WARM", "").split(",")
    if "nocuda" in words:
        return Contexts.NONE
    return Contexts.ALL if "cuda" in words else Contexts.FIRST


def number(text: str) -> int:
    """A count, 0 if the text is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else 0


def kept(env: Mapping[str, str]) -> str:
    """What the user set himself and therefore wins, as a line."""
    names = re.sub(r"[^A-Za-z0-9_,]", "", env.get("MALLEABLE_KEPT", "")).split(",")
    left = ",".join(name for name in names if name and name not in _TAKEN_OVER)
    return f"kept as you set them: {left}" if left else ""
