"""The training processes of this agent as torchrun starts them: each is told its place among them,
and the agent knows how they ended.

torchrun starts each through one method, SubprocessHandler._popen, and keeps exit codes to
itself until it gives up.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping
from typing import Any

from slurm_hooks.elastic.mailbox import SEAT, seat


class Processes:
    """Those started last."""

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[bytes]] = []

    def install(self, handler: Any) -> None:
        """See what `handler`, torch's SubprocessHandler, starts."""
        start: Any = handler._popen

        def popen(self: Any, args: tuple[str, ...], env: dict[str, str]) -> Any:
            own = {**env, **_told(env, getattr(self, "local_rank_id", None))}
            process = start(self, args, own)
            seen.add(process, seat(own))
            return process

        seen = self
        handler._popen = popen

    def add(self, process: subprocess.Popen[bytes], seat: int) -> None:
        """One more; the first of an agent begins another round."""
        if seat == 0:
            self._started.clear()
        self._started.append(process)

    def exit_code(self) -> int:
        """Of one that failed of its own accord, as a shell has it (128 and the signal); 0 if
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
