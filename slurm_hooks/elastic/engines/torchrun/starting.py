"""The training processes of this agent: how each starts, and how they ended.

torchrun starts each through one method, SubprocessHandler._popen, and keeps exit codes to
itself until it gives up. Another function takes the place of that method, once. It tells each
process its place, and starts it warm (warm_pool.py), observed (cold_worker.py) or plain.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Mapping
from typing import Any, Optional

from slurm_hooks.elastic.engines.torchrun.cold_worker import observed
from slurm_hooks.elastic.engines.torchrun.warm_pool import WarmPool
from slurm_hooks.elastic.mailbox import SEAT, seat

Start = Callable[[Any, tuple[str, ...], dict[str, str]], Any]  # SubprocessHandler._popen


class Processes:
    """Those started last. While there is a `warm_pool` its processes are taken first."""

    def __init__(self) -> None:
        self.warm_pool: Optional[WarmPool] = None
        self._started: list[subprocess.Popen[bytes]] = []
        self._is_installed = False

    def install(self, handler: Any) -> None:
        """Stand in for `handler._popen`, torch's SubprocessHandler. Once is enough."""
        if self._is_installed:
            return
        self._is_installed = True
        plain: Start = handler._popen

        def popen(self: Any, args: tuple[str, ...], env: dict[str, str]) -> Any:
            own = {**env, **_told(env, getattr(self, "local_rank_id", None))}
            process = processes._start(plain, self, args, own)
            processes.add(process, seat(own))
            return process

        processes = self
        handler._popen = popen

    def _start(self, plain: Start, one: Any, args: tuple[str, ...], env: dict[str, str]) -> Any:
        """A process of `one`, a SubprocessHandler: warm, else observed, else plain."""
        if self.warm_pool:
            process = self.warm_pool.take(args, env, [one._stdout, one._stderr])
            if process is not None:
                return process
        return plain(one, observed(args, env), env)

    def add(self, process: subprocess.Popen[bytes], seat: int) -> None:
        """One more; the first of an agent begins another round."""
        if seat == 0:
            self._started.clear()
        self._started.append(process)

    def exit_code(self) -> int:
        """Of one that failed of its own accord, as a shell has it (128 and the signal), 0 if
        none has, or nobody knows. SIGTERM is torchrun's, for the others of its node."""
        codes = [process.poll() or 0 for process in self._started]
        own = [code for code in codes if code not in (0, -signal.SIGTERM)]
        return as_shell(own[0]) if own else 0


def _told(env: Mapping[str, str], local_rank: object) -> dict[str, str]:
    """What a worker has to be told of its place. With --virtual-local-rank torch sets LOCAL_RANK
    to 0 in each, and the number itself is known to its handler alone."""
    is_told = local_rank is None or env.get("LOCAL_RANK") == str(local_rank)
    return {} if is_told else {SEAT: str(local_rank)}


def as_shell(code: int) -> int:
    """An exit code of Popen's as a shell has it."""
    return code if code >= 0 else 128 - code
