"""The training processes of this agent: how each starts, and how they ended.

torchrun starts each through the method SubprocessHandler._popen, and keeps exit codes to itself
until it gives up. Another function replaces that method, once. It gives each process its place, and
starts it warm (warm_pool.py), observed (cold_worker.py) or plain.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any, Optional

from slurm_hooks.elastic.engines.torchrun.cold_worker import observed
from slurm_hooks.elastic.engines.torchrun.warm_pool import WarmPool
from slurm_hooks.elastic.mailbox import SEAT, seat

Start = Callable[[Any, tuple[str, ...], dict[str, str]], Any]  # SubprocessHandler._popen


class Processes:
    """The processes started last. While there is a `warm_pool` its processes are taken first."""

    def __init__(self) -> None:
        self.warm_pool: Optional[WarmPool] = None
        self._started: list[subprocess.Popen[bytes]] = []
        self._is_installed = False

    def install(self, handler: Any) -> None:
        """Replace `handler._popen`, torch's SubprocessHandler. May be called twice."""
        if self._is_installed:
            return
        self._is_installed = True
        plain: Start = handler._popen

        def popen(self: Any, args: tuple[str, ...], env: dict[str, str]) -> Any:
            own = _numbered({**env, **_place(env, getattr(self, "local_rank_id", None))})
            process = processes._start(plain, self, args, own)
            processes.add(process, seat(own))
            return process

        processes = self
        handler._popen = popen

    def _start(self, plain: Start, starter: Any, args: tuple[str, ...], env: dict[str, str]) -> Any:
        """Return a process of `starter`, a SubprocessHandler: warm, else observed, else plain."""
        binding = _binding(args)
        words = args[len(binding) :]
        if self.warm_pool:
            outputs = [starter._stdout, starter._stderr]
            process = self.warm_pool.take(words, env, outputs, binding)
            if process is not None:
                return process
        return plain(starter, (*binding, *observed(words, env)), env)

    def add(self, process: subprocess.Popen[bytes], seat: int) -> None:
        """Note a further process. The first process of an agent begins another round."""
        if seat == 0:
            self._started.clear()
        self._started.append(process)

    def exit_code(self) -> int:
        """Return the exit code of a process that failed without help, as a shell has it (128 and
        the signal).

        It is 0 without such a failure, or if it is unknown. SIGTERM comes from torchrun, for the
        other processes of its node.
        """
        codes = [process.poll() or 0 for process in self._started]
        own = [code for code in codes if code not in (0, -signal.SIGTERM)]
        return as_shell(own[0]) if own else 0


def _binding(args: tuple[str, ...]) -> tuple[str, ...]:
    """Return numactl and its options, which torch puts before Python for --numa-binding. It is
    empty without them.
    """
    is_bound = args[:1] == ("numactl",) and sys.executable in args
    return args[: args.index(sys.executable)] if is_bound else ()


def _numbered(env: dict[str, str]) -> dict[str, str]:
    """Return this environment with NODE_RANK, which other launchers set and Composer needs. A
    value of the user's stays.
    """
    return {"NODE_RANK": env["GROUP_RANK"], **env} if "GROUP_RANK" in env else env


def _place(env: Mapping[str, str], local_rank: object) -> dict[str, str]:
    """Return the variables that give a worker its place. With --virtual-local-rank torch sets
    LOCAL_RANK to 0 in each, and only its handler knows the number itself.
    """
    is_known = local_rank is None or env.get("LOCAL_RANK") == str(local_rank)
    return {} if is_known else {SEAT: str(local_rank)}


def as_shell(code: int) -> int:
    """Return an exit code of Popen's as a shell has it."""
    return code if code >= 0 else 128 - code
