"""Identifies the processes of a sandbox by number, start time and evidence.

A process number alone is never enough: the kernel gives it to another process later.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

_log = logging.getLogger(__name__)
POLL_S = 0.02
# Positions in /proc/PID/stat after the parenthesised name.
STATE, PARENT, STARTED = 0, 1, 19


@dataclass(frozen=True, order=True)
class Process:
    """A process: its number and its start in clock ticks since boot, together unique."""

    pid: int
    started: int


def identify(pid: int) -> Optional[Process]:
    """Returns the live process with this number, or None. A zombie is not alive."""
    fields = _stat(pid)
    if fields is None or fields[STATE] in "ZX":
        return None
    return Process(pid, int(fields[STARTED]))


def is_alive(process: Process) -> bool:
    """Tells whether it still runs. Reaps it if it is a child of ours that ended."""
    if identify(process.pid) == process:
        return True
    with contextlib.suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)
    return False


def stop(processes: Iterable[Process], grace_s: float, kill_s: float = 5.0) -> list[Process]:
    """Sends SIGTERM, after `grace_s` SIGKILL, and returns the processes left after `kill_s`."""
    left = _signal_and_wait(list(processes), signal.SIGTERM, grace_s) if grace_s else [*processes]
    return _signal_and_wait(left, signal.SIGKILL, kill_s)


def _signal_and_wait(processes: list[Process], number: int, limit_s: float) -> list[Process]:
    for process in processes:
        if is_alive(process):
            try:
                os.kill(process.pid, number)
            except (ProcessLookupError, PermissionError) as error:
                _log.debug("signal %d to process %d: %s", number, process.pid, error)
    deadline = time.monotonic() + limit_s
    left = [process for process in processes if is_alive(process)]
    while left and time.monotonic() < deadline:
        time.sleep(POLL_S)
        left = [process for process in left if is_alive(process)]
    return left


def find_processes(directory: Path, conf: Path) -> list[Process]:
    """Returns all processes of the sandbox in `directory`: daemons, slurmstepd, jobs' processes.

    They are:

    * Munge, Slurm and MariaDB programs that name a file of the directory or have it open.
    * Processes that slurmd started with this slurm.conf.
    * All descendants of these.

    A shell with SLURM_CONF, this process and its ancestors do not belong to it. Neither do
    processes in a container of this host, which see other files under these names.
    """
    parents = {pid: parent for pid in _pids() if (parent := _parent(pid)) is not None}
    spared = _lineage(os.getpid(), parents)
    named = {pid for pid in parents if _is_daemon(pid, directory) or _is_job(pid, conf)}
    files = _link(os.getpid(), "ns/mnt")
    mine = {pid for pid in named if _link(pid, "ns/mnt") == files} - spared
    family = {pid for pid in parents if mine & _lineage(pid, parents)} - spared
    return sorted(process for pid in family if (process := identify(pid)) is not None)


def _is_daemon(pid: int, directory: Path) -> bool:
    program = os.path.basename(_link(pid, "exe"))
    if not program.startswith(("slurm", "munged", "mariadbd")):
        return False
    if f"{directory}/".encode() in _read(pid, "cmdline"):
        return True
    # slurmstepd and slurmscriptd overwrite their command line and environment: look at the log.
    return any(f"{directory}/" in target for target in _open_files(pid))


def _is_job(pid: int, conf: Path) -> bool:
    environ = _read(pid, "environ").split(b"\0")
    is_ours = f"SLURM_CONF={conf}".encode() in environ
    return is_ours and any(entry.startswith(b"SLURMD_NODENAME=") for entry in environ)


def _lineage(pid: int, parents: dict[int, int]) -> set[int]:
    """Returns the process and its ancestors. Stops at a loop: numbers may be reused in the scan."""
    line: set[int] = set()
    while pid in parents and pid not in line:
        line.add(pid)
        pid = parents[pid]
    return line


def _pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def _parent(pid: int) -> Optional[int]:
    fields = _stat(pid)
    return None if fields is None else int(fields[PARENT])


def _stat(pid: int) -> Optional[list[str]]:
    # The name may hold spaces and parentheses: split after the last parenthesis.
    text = _read(pid, "stat").decode(errors="replace")
    return text.rpartition(")")[2].split() or None


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # ended since, or another user's
        return b""


def _link(pid: int, name: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/{name}")
    except OSError:
        return ""


def _open_files(pid: int) -> list[str]:
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return []
    return [_link(pid, f"fd/{number}") for number in numbers]
