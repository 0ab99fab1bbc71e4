"""Workers that are deaf to SIGTERM are not waited for, and none for longer than the farewell if it
has said what is to be kept of it.

When torchrun makes room for a new round, it gives workers half a minute between SIGTERM and
SIGKILL, whatever its --shutdown-timeout says (torch 2.6 to 2.13). A worker for which SIGTERM is
ignored, as the kernel tells, will not use that time to end, nor will one that is stopped (SIGSTOP).
One with a handler of its own keeps it: it may be saving.
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
    """Whether this text of /proc/PID/status says that SIGTERM is ignored."""
    found = re.search(r"^SigIgn:\s*([0-9a-f]{1,32})$", status, re.MULTILINE)
    return bool(found and int(found.group(1), 16) >> (signal.SIGTERM - 1) & 1)


def is_deaf(status: str) -> bool:
    """Whether this text of /proc/PID/status says that SIGTERM is ignored, or not even delivered
    because the process is stopped."""
    return ignores_sigterm(status) or bool(re.search(r"^State:\s*T ", status, re.MULTILINE))


def any_worker(status: str) -> bool:
    """Also one with a handler of its own."""
    return True


def end_stubborn(
    after_s: float = STUBBORN_S, *, is_chosen: Callable[[str], bool] = is_deaf
) -> None:
    """Called when workers are about to be stopped: kill those children of this process, with
    the groups that they lead, that are chosen now, by their /proc/PID/status (those deaf to
    SIGTERM), and are still alive after `after_s`. Returns at once."""
    chosen = []
    for process in filter(None, map(find, _children())):
        with suppressed(OSError, doing=f"looking what process {process.pid} does on SIGTERM"):
            if is_chosen(Path(f"/proc/{process.pid}/status").read_text("ascii", "replace")):
                chosen.append(process)
    if chosen:
        with suppressed(RuntimeError, doing="starting a thread that ends workers"):
            threading.Thread(target=_end, args=(chosen, after_s), daemon=True).start()


def _children() -> list[int]:
    found: list[int] = []
    for listing in Path("/proc/self/task").glob("*/children"):
        with suppressed(OSError, doing="listing child processes"):
            found += [int(word) for word in listing.read_text("ascii").split()]
    return found


def _end(chosen: list[Process], after_s: float) -> None:
    deadline = time.monotonic() + after_s
    while (chosen := [one for one in chosen if _lives(one)]) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    for process in chosen:
        # it may have ended meanwhile, or lead no group
        with suppressed(OSError, doing=f"killing process {process.pid}, which does not end"):
            os.killpg(process.pid, signal.SIGKILL)


def _lives(process: Process) -> bool:
    """Its number may belong to another one by now."""
    now = find(process.pid)
    return now is not None and now.born == process.born and not now.is_over
