"""End workers that are deaf to SIGTERM, and end all workers after the farewell if we keep their
state.

When torchrun makes room for a new round, it gives workers 30 s between SIGTERM and SIGKILL,
whatever its --shutdown-timeout says (torch 2.6 to 2.13). Some workers will not use that time to
end: the kernel tells whether a worker ignores SIGTERM or is stopped (SIGSTOP). A worker with its
own handler keeps the time, since it may be saving.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from slurm_hooks.elastic.engines.kin import Process, find
from slurm_hooks.elastic.log import suppressed

STUBBORN_S = 5.0  # a script may ignore SIGTERM just while it writes a file
_LOOK_S = 0.1


def ignores_sigterm(status: str) -> bool:
    """Tell whether this text of /proc/PID/status says that SIGTERM is ignored."""
    match = re.search(r"^SigIgn:\s*([0-9a-f]{1,32})$", status, re.MULTILINE)
    return bool(match and int(match.group(1), 16) >> (signal.SIGTERM - 1) & 1)


def is_deaf(status: str) -> bool:
    """Tell whether this text of /proc/PID/status says that SIGTERM is ignored, or not delivered
    because the process is stopped.
    """
    return ignores_sigterm(status) or bool(re.search(r"^State:\s*T ", status, re.MULTILINE))


def any_worker(status: str) -> bool:
    """Return True, also for a worker with its own handler."""
    return True


def end_stubborn(
    after_s: float = STUBBORN_S, *, is_chosen: Callable[[str], bool] = is_deaf
) -> None:
    """Kill chosen workers that are still alive after `after_s`. Returns at once.

    Called when workers are about to be stopped. It chooses among the children of this process by
    their /proc/PID/status, by default those deaf to SIGTERM. The groups that they lead are killed
    with them.
    """
    chosen = []
    for process in filter(None, map(find, _children())):
        with suppressed(OSError, doing=f"reading how process {process.pid} handles SIGTERM"):
            if is_chosen(Path(f"/proc/{process.pid}/status").read_text("ascii", "replace")):
                chosen.append(process)
    if chosen:
        with suppressed(RuntimeError, doing="starting a thread that ends workers"):
            threading.Thread(target=_end, args=(chosen, after_s), daemon=True).start()


def _children() -> list[int]:
    pids: list[int] = []
    for listing in Path("/proc/self/task").glob("*/children"):
        with suppressed(OSError, doing="listing child processes"):
            pids += [int(word) for word in listing.read_text("ascii").split()]
    return pids


def _end(chosen: list[Process], after_s: float) -> None:
    deadline = time.monotonic() + after_s
    while (chosen := [each for each in chosen if _lives(each)]) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    for process in chosen:
        # it may have ended, or lead no group
        with suppressed(OSError, doing=f"killing process {process.pid}, which does not end"):
            os.killpg(process.pid, signal.SIGKILL)


def _lives(process: Process) -> bool:
    """Tell whether it lives. Its number may belong to another process by now."""
    now = find(process.pid)
    return now is not None and now.born == process.born and not now.is_zombie
