"""The entry point of the group `torchrun.handlers`: how torchrun finds the handler.

torchrun loads it whenever it starts, in jobs of all kinds, so importing it costs nothing
and does nothing; torch calls the factory, then the creator if our backend is chosen.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, MutableMapping, Sequence
from functools import cache
from typing import Any

from slurm_hooks.elastic.agent.forewarning import Forewarning
from slurm_hooks.elastic.agent.membership import Membership
from slurm_hooks.elastic.agent.options import (
    OptionError,
    Options,
    agents,
    identity,
    is_ours,
    is_torchrun,
    kept,
    knob,
    number,
    of_group,
    of_groups,
    options,
    overrides,
    warm_contexts,
    warm_modules,
)
from slurm_hooks.elastic.agent.session import Session
from slurm_hooks.elastic.batch.lease import Lease
from slurm_hooks.elastic.batch.own_element import OwnElement
from slurm_hooks.elastic.batch.remark import write_remark
from slurm_hooks.elastic.engines.torchft.lighthouse import LighthouseError, LighthouseTiming, load
from slurm_hooks.elastic.engines.torchrun.processes import Processes
from slurm_hooks.elastic.engines.torchrun.takeover import Instead, take_over
from slurm_hooks.elastic.engines.torchrun.warm_pool import WarmPool
from slurm_hooks.elastic.liveness.heartbeat import Heartbeat
from slurm_hooks.elastic.liveness.older_versions import refuse_older
from slurm_hooks.elastic.log import debug, say
from slurm_hooks.elastic.mailbox import Mailbox
from slurm_hooks.elastic.rendezvous.directory import DirectoryError, SharedDirectory
from slurm_hooks.elastic.rendezvous.state import Member
from slurm_hooks.elastic.signals import SignalListener, end_quietly

_BUDGET = "PET_MAX_RESTARTS"  # a lost fragment costs its peers one restart


def handlers() -> Callable[[Any], Any]:
    """The factory that torch calls, once for each name of the backend; returns the creator.
    In an agent of ours it begins to listen for the notice at once, since a signal that comes
    earlier is lost."""
    if "TORCHELASTIC_RUN_ID" not in os.environ and is_ours(os.environ):
        _begin()
    return create_handler


@cache
def _begin() -> None:
    _signal_listener().listen_early()
    if is_torchrun(sys.argv):
        _own_element().report_started()  # its own flags may be wrong
    if take_over(os.environ, _log_takeover, _own_element().report_started):
        return
    found = overrides(sys.argv, os.environ)
    if found:
        line = f"your {found} replaces the rendezvous of the job: fragments would not meet"
        write_remark(line)
        raise SystemExit(f"malleable: {line}")


def _log_takeover(instead: Instead) -> None:
    """What is not as the script says is in the log; `explain` shows what keeps nodes idle."""
    for line in instead.lines:
        say(line)
    if instead.is_narrowed:
        write_remark(instead.lines[-1])


@cache
def _signal_listener() -> SignalListener:
    """The one pair of ears of this process."""
    return SignalListener()


@cache
def _own_element() -> OwnElement:
    """The one mouth of this process."""
    return OwnElement(os.environ, _signal_listener())


@cache
def _processes() -> Processes:
    """The training processes that this process starts."""
    return Processes()


def create_handler(params: Any) -> Any:
    """A handler for torch's RendezvousParameters; exits with one line if it cannot be."""
    from slurm_hooks.elastic.engines.torchrun.handler import MalleableHandler  # noqa: PLC0415  (brings in torch)

    signals = _signal_listener()
    signals.listen()
    own_element = _own_element()
    own_element.report_started()
    try:
        job = options(params, os.environ)
        _remark(kept(os.environ))
        lease = Lease(os.environ, job.notice_s)
        me = identity(os.environ, job.host, lease.ends)
        is_torchft = os.environ.get("MALLEABLE_ENGINE") == "torchft"
        keeper = lighthouse_keeper(job, me, signals, os.environ) if is_torchft else None
        settings = of_group(job, me) if is_torchft else job
        wanted = () if is_torchft else agents(lease.wanted, job, os.environ)
        membership = _membership(settings, me, wanted)
    except (OptionError, DirectoryError, LighthouseError) as error:
        write_remark(str(error))
        raise SystemExit(f"malleable: {error}") from None
    forewarning = Forewarning(_mailbox(), settings.boundary_s)
    session = Session(
        settings, membership, lease, signals, forewarning, own_element, _processes().exit_code
    )
    end_quietly(signals, lambda: say(f"fragment {me.fragment} is ended by SIGTERM"))
    _meet_specs()
    return MalleableHandler(settings, session, signals, own_element, keeper)


@cache
def _meet_specs() -> None:
    """See what torch's agent is to run before it does, however it was launched."""
    from torch.distributed.elastic.agent.server.api import WorkerSpec  # noqa: PLC0415

    from slurm_hooks.elastic.engines.torchrun.handler import MalleableHandler  # noqa: PLC0415

    plain: Any = WorkerSpec.__post_init__

    def begin(spec: Any) -> None:
        plain(spec)
        if isinstance(spec.rdzv_handler, MalleableHandler):
            spec.max_restarts = max(spec.max_restarts, number(os.environ.get(_BUDGET, "")))
            spec.rdzv_handler.warm_pool = warm_workers(spec)
            _processes().install(_subprocess_handler())  # sees warm ones too

    WorkerSpec.__post_init__ = begin  # type: ignore[method-assign]


def _remark(line: str) -> None:
    if line:
        say(line)
        write_remark(line)


def _membership(settings: Options, me: Member, wanted: tuple[int, ...] = ()) -> Membership:
    directory = SharedDirectory(settings.directory, settings.run)
    directory.open()
    refuse_older(settings.directory)
    heartbeat = Heartbeat(directory, me.token, settings.beat_s, settings.keep_alive_s)
    return Membership(me, directory, heartbeat, wanted)


def lighthouse_keeper(
    job: Options, me: Member, signals: SignalListener, env: MutableMapping[str, str]
) -> Any:
    """The Keeper that joins this replica group to the others; tells torchft by the
    environment where its lighthouse is. What the user has set stays. Raises
    LighthouseError, DirectoryError."""
    from slurm_hooks.elastic.engines.torchft.keeper import Keeper  # noqa: PLC0415  (brings in asyncio)

    load()
    settings = of_groups(job, env)
    timing = LighthouseTiming(max(0.3, knob(env, "heartbeat_s", 1.0)), knob(env, "join_s", 1.0))
    keeper = Keeper(settings, timing, _membership(settings, me), signals)
    if "TORCHFT_LIGHTHOUSE" in env:
        _remark("your TORCHFT_LIGHTHOUSE replaces that of the job: it must outlive every node")
    told = {
        "TORCHFT_LIGHTHOUSE": keeper.address,
        "TORCHFT_QUORUM_TIMEOUT_SEC": "86400",  # who waits for others waits; leases end it
        "TORCHFT_QUORUM_RETRIES": "1000000",  # torchft sleeps timeout / retries between two
        "REPLICA_GROUP_ID": str(me.fragment),
        "NUM_REPLICA_GROUPS": str(max(1, settings.limits.largest // job.limits.largest)),
    }
    for name, value in told.items():
        env.setdefault(name, value)
    return keeper


def _mailbox() -> Mailbox | None:
    try:
        mailbox = Mailbox()
    except (OSError, AttributeError) as error:  # no memory files here
        debug("opening a mailbox: workers get no notice", error)
        return None
    os.environ.update(mailbox.environment())
    return mailbox


def warm_workers(spec: Any) -> WarmPool | None:
    """Workers in waiting for what torch's agent is to run; None if they are not wanted, or
    it is no Python program, or torch itself is not as known."""
    extra = warm_modules(os.environ)
    program = program_of(spec.entrypoint, spec.args)
    if extra is None or not program:
        return None
    warm_pool = WarmPool(program, spec.local_world_size, extra, warm_contexts(os.environ))
    if not warm_pool.install(_subprocess_handler()):
        return None
    atexit.register(warm_pool.dismiss)
    return warm_pool


def _subprocess_handler() -> Any:
    from torch.distributed.elastic.multiprocessing import subprocess_handler  # noqa: PLC0415

    return subprocess_handler.SubprocessHandler


def program_of(entrypoint: object, args: Sequence[object]) -> list[str]:
    """The words after `python -u` that name the program, without its arguments."""
    words = [str(word) for word in args]
    if entrypoint != sys.executable or words[:1] != ["-u"]:
        return []
    length = 2 if words[1:2] == ["-m"] else 1
    return words[1 : 1 + length]
