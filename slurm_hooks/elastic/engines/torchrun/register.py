"""The work in a torchrun before its rendezvous: signals are heard from the start, a script for a
rigid job gets the job's rendezvous, and the handler is built.

The import is cheap and has no effect: torchrun imports this in jobs of all kinds.
"""

from __future__ import annotations

import atexit
import inspect
import os
import sys
import threading
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

from slurm_hooks.elastic.agent.assemble import assemble
from slurm_hooks.elastic.agent.companion import EngineError, WorldMaker
from slurm_hooks.elastic.agent.forewarning import Forewarning
from slurm_hooks.elastic.agent.last_out import save_what_is_left
from slurm_hooks.elastic.agent.one_per_node import stand_by
from slurm_hooks.elastic.agent.options import OptionError, kept, number, options
from slurm_hooks.elastic.agent.workers_here import request_of
from slurm_hooks.elastic.batch.own_element import OwnElement
from slurm_hooks.elastic.batch.remark import write_remark
from slurm_hooks.elastic.engines.torchrun.flags import is_torchrun, overrides
from slurm_hooks.elastic.engines.torchrun.starting import Processes
from slurm_hooks.elastic.engines.torchrun.stubborn_workers import (
    any_worker,
    end_stubborn,
    is_deaf,
)
from slurm_hooks.elastic.engines.torchrun.takeover import Instead, take_over
from slurm_hooks.elastic.engines.torchrun.warm_pool import WarmPool, warm_contexts, warm_modules
from slurm_hooks.elastic.farewell import farewell_s
from slurm_hooks.elastic.log import say, suppressed
from slurm_hooks.elastic.names import TORCH, refusal
from slurm_hooks.elastic.rendezvous.directory import DirectoryError
from slurm_hooks.elastic.signals import SignalListener, end_quietly, skip_teardown

_AN_HOUR_S = 3600.0
_IDENTICAL = "TORCH_ELASTIC_WORKER_IDENTICAL"
_BUDGET = "PET_MAX_RESTARTS"  # a lost fragment costs its peers one restart
_INTERVAL_S = 0.5  # torch lets this agent act once an interval, and a notice is 20 s


@cache
def begin() -> None:
    """This process is torchrun in a fragment of ours, or will ask torch for a rendezvous."""
    _signal_listener().listen_early()
    if is_torchrun(sys.argv):
        _own_element().report_started()  # its own flags may be wrong
    if take_over(os.environ, _log_takeover, _own_element().report_started):
        return
    setting = overrides(sys.argv, os.environ)
    if setting:
        line = (
            f"your {setting} overrides the job's rendezvous, so the fragments would train "
            "separately; remove it"
        )
        write_remark(line)
        raise SystemExit(f"malleable: {line}")


def _log_takeover(instead: Instead) -> None:
    """Log each setting of the script that is ignored. `explain` shows a setting that wastes
    nodes.
    """
    for line in instead.lines:
        say(line)
    if instead.is_narrowed:
        write_remark(instead.lines[-1])


@cache
def _signal_listener() -> SignalListener:
    """This process's only signal listener."""
    signals = SignalListener()
    skip_teardown(signals)
    return signals


@cache
def _own_element() -> OwnElement:
    """Return the only object of this process that writes to Slurm."""
    return OwnElement(os.environ, _signal_listener())


@cache
def _processes() -> Processes:
    """The training processes that this process starts."""
    return Processes()


def create_handler(params: Any, make_world: WorldMaker) -> Any:
    """Return a handler for torch's RendezvousParameters. Exits with a message if that is
    impossible.
    """
    from slurm_hooks.elastic.engines.torchrun.handler import MalleableHandler  # noqa: PLC0415  (brings in torch)

    stand_by(os.environ, "torchrun")
    signals = _signal_listener()
    signals.listen()
    own_element = _own_element()
    own_element.report_started()
    if own_element.was_noticed():  # while torch was imported
        signals.has_notice = True
    _count_workers()
    try:
        job = options(params, os.environ)
        _remark(kept(os.environ))
        parts = assemble(job, os.environ, signals, own_element, make_world)
    except (OptionError, DirectoryError, EngineError) as error:
        write_remark(str(error))
        raise SystemExit(f"malleable: {error}") from None

    def report() -> None:
        say(f"fragment {parts.me.fragment} was terminated by SIGTERM")
        save_what_is_left(parts.session, signals, parts.options.boundary_s)

    end_quietly(signals, report)
    threading.Thread(target=_end_in_time, args=(signals, parts.forewarning), daemon=True).start()
    _meet_specs()
    return MalleableHandler(parts, _processes())


def _count_workers() -> None:
    """Fragments on parts of nodes have different numbers of workers, so torch must not assume equal
    numbers.
    """
    if request_of(os.environ) and os.environ.pop(_IDENTICAL, "0") == "1":
        say(f"your {_IDENTICAL}=1 is ignored: the fragments of this job have different sizes")


def _end_in_time(signals: SignalListener, forewarning: Forewarning) -> None:
    """End workers when the farewell after SIGTERM is over: those deaf to it, or all if we keep
    their state. Any other worker may be saving, for as long as Slurm lets it.
    """
    while not signals.is_terminated:
        signals.wait_end(_AN_HOUR_S)
    is_chosen = any_worker if forewarning.is_kept() else is_deaf
    end_stubborn(farewell_s(os.environ), is_chosen=is_chosen)


@cache
def _meet_specs() -> None:
    """See the program of torch's agent before it runs, however it was launched."""
    if line := refusal("torch", TORCH, "each round starts its workers cold and unobserved"):
        say(line)
        return
    from torch.distributed.elastic.agent.server.api import WorkerSpec  # noqa: PLC0415
    from torch.distributed.elastic.multiprocessing.subprocess_handler import (  # noqa: PLC0415
        SubprocessHandler,
    )

    from slurm_hooks.elastic.engines.torchrun.handler import MalleableHandler  # noqa: PLC0415

    plain: Any = WorkerSpec.__post_init__

    def begin(spec: Any) -> None:
        plain(spec)
        if isinstance(spec.rdzv_handler, MalleableHandler):
            spec.max_restarts = max(spec.max_restarts, number(os.environ.get(_BUDGET, "")))
            spec.monitor_interval = min(spec.monitor_interval, _INTERVAL_S)
            spec.rdzv_handler.note_launch(script_of(spec))
            spec.rdzv_handler.start_as = partial(start_as, spec)
            spec.rdzv_handler.warm_pool = _processes().warm_pool = warm_workers(spec)
            _processes().install(SubprocessHandler)

    WorkerSpec.__post_init__ = begin  # type: ignore[method-assign]


def script_of(spec: Any) -> list[str]:
    """Return the script and its arguments, empty for a function, whose arguments may be
    anything.
    """
    if not isinstance(spec.entrypoint, str):
        return []
    words = [spec.entrypoint, *map(str, spec.args)]
    return words[2:] if words[1:2] == ["-u"] else words


def start_as(spec: Any, words: Sequence[str]) -> None:
    """Have torch's agent start its next workers with this script and these arguments."""
    own = script_of(spec)
    if own and words and own != list(words):
        interpreter = [spec.entrypoint, *spec.args][: 1 + len(spec.args) - len(own)]
        whole = (*interpreter, *words)
        spec.entrypoint, spec.args = whole[0], whole[1:]


def _remark(line: str) -> None:
    if line:
        say(line)
        write_remark(line)


def warm_workers(spec: Any) -> WarmPool | None:
    """Return warm workers for the program of torch's agent, or `None` if they are unwanted or it is
    not a Python program.

    With --virtual-local-rank each worker sees another device. A worker that has imported its
    libraries may have looked for devices already.
    """
    if getattr(spec, "virtual_local_rank", False):
        return None
    extra = warm_modules(os.environ)
    program = program_of(spec.entrypoint, spec.args)
    if extra is None or not program:
        return None
    count, contexts = spec.local_world_size, warm_contexts(os.environ)
    with suppressed(Exception, doing="asking torch how it binds workers: they start cold"):
        warm_pool = WarmPool(program, count, extra, contexts, bindings=_bindings(spec))
        atexit.register(warm_pool.dismiss)
        return warm_pool
    return None


def _bindings(spec: Any) -> list[tuple[str, ...]]:
    """Return the words that torch puts before Python by local rank, for --numa-binding. Raises what
    torch raises.
    """
    options = getattr(spec, "numa_options", None)
    if options is None:
        return []
    from torch.numa import binding  # noqa: PLC0415  (torch 2.9)

    bind: Any = binding._maybe_wrap_command_args_with_numa_binding
    _, index, _ = inspect.signature(bind).parameters  # device_index, before torch 2.14 gpu_index
    seats = range(spec.local_world_size)
    return [bind((), **{index: seat}, numa_options=options) for seat in seats]


def program_of(entrypoint: object, args: Sequence[object]) -> list[str]:
    """Return the words after `python -u` that name the program, without its arguments."""
    words = [str(word) for word in args]
    if entrypoint != sys.executable or words[:1] != ["-u"]:
        return []
    length = 2 if words[1:2] == ["-m"] else 1
    return words[1 : 1 + length]
