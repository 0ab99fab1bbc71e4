"""The training processes of this agent as torchrun starts them, to know how they ended.

torchrun starts each through one method, SubprocessHandler._popen, and keeps exit codes to
itself until it gives up.
"""

from __future__ import annotations

import signal
import subprocess
from typing import Any


class Processes:
    """Those started last."""

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[bytes]] = []

    def install(self, handler: Any) -> None:
        """See what `handler`, torch's SubprocessHandler, starts; where it is not as expected,
        nothing is known of exit codes."""
        start = getattr(handler, "_popen", None)
        if start is None or start.__code__.co_varnames[:3] != ("self", "args", "env"):
            return

        def popen(self: Any, args: tuple[str, ...], env: dict[str, str]) -> Any:
            process = start(self, args, env)
            seen.add(process, env.get("LOCAL_RANK", ""))
            return process

        seen = self
        handler._popen = popen

    def add(self, process: subprocess.Popen[bytes], local_rank: str) -> None:
        """One more; the first of an agent begins another round."""
        if local_rank == "0":
            self._started.clear()
        self._started.append(process)

    def exit_code(self) -> int:
        """Of one that failed of its own accord, as a shell has it (128 and the signal); 0 if
        none has, or nobody knows. SIGTERM is torchrun's, for the others of its node."""
        codes = [process.poll() or 0 for process in self._started]
        own = [code for code in codes if code not in (0, -signal.SIGTERM)]
        return as_shell(own[0]) if own else 0


def as_shell(code: int) -> int:
    """An exit code of Popen's as a shell has it."""
    return code if code >= 0 else 128 - code
