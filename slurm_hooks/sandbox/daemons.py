"""Lays out a sandbox's files and starts munged, slurmctld and slurmd as separate processes.

Daemons outlive the process that starts them. Any process that reads the record can end them.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import signal
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Optional

from slurm_hooks.errors import RetryLater
from slurm_hooks.sandbox.config import render_conf
from slurm_hooks.sandbox.installation import Installation
from slurm_hooks.sandbox.processes import POLL_S, Process, identify, is_alive
from slurm_hooks.sandbox.spec import Layout, SandboxSpec

_log = logging.getLogger(__name__)
MUNGED = "munged"
CONTROLLER = "slurmctld"
# Python ignores SIGPIPE, and a background shell SIGINT: the daemons and their jobs must not.
DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM)
TAIL_LINES = 15
# Packages put the Lua files here. The copies in a sandbox load each other instead.
INSTALLED_LUA = "/usr/share/slurm-malleable/lua"


def lay_out(spec: SandboxSpec, slurm: Installation, layout: Layout, directory: Path) -> None:
    """Writes every file of the sandbox into `directory`, which will become `layout.dir`.

    Sets modes, with any umask: other users' jobs must reach the conf and the sockets.
    """
    for path in (layout.etc, layout.spool, layout.logs, layout.run, layout.work, layout.job_path):
        _make_directory(directory / path.name, 0o755)
    private = [layout.database, layout.database_scratch] if layout.accounting_port else []
    for path in (layout.state, layout.munge_key.parent, *private):
        _make_directory(directory / path.name, 0o700)
    for node in spec.node_names:
        _make_directory(directory / layout.spool.name / node, 0o755)
    if os.geteuid() == 0:
        (directory / layout.work.name).chmod(0o1777)
    _make_gpus(spec, directory / layout.devices.name)
    _write_key(directory / layout.munge_key.relative_to(layout.dir))
    _copy_parts(spec, layout, directory)
    for name, text in render_conf(spec, slurm, layout).items():
        _write(directory / layout.etc.name / name, text)
    if layout.accounting_port:
        (directory / layout.etc.name / "slurmdbd.conf").chmod(0o600)  # slurmdbd insists


def _make_directory(path: Path, mode: int) -> None:
    path.mkdir()
    path.chmod(mode)


def _make_gpus(spec: SandboxSpec, directory: Path) -> None:
    """Makes fake GPUs: links to a character device that every host has and every user may link."""
    if spec.gpus:
        _make_directory(directory, 0o755)
    for number in range(2 * spec.gpus if spec.large_nodes else spec.gpus):
        (directory / f"gpu{number}").symlink_to("/dev/null")


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o644)


def _write_key(path: Path) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(secrets.token_bytes(128))


def _copy_parts(spec: SandboxSpec, layout: Layout, directory: Path) -> None:
    """Makes copies, because other users and other roots may not reach the originals."""
    etc, job_path = directory / layout.etc.name, directory / layout.job_path.name
    if spec.spank is not None:
        shutil.copy(spec.spank, etc / layout.spank.name)
        (etc / layout.spank.name).chmod(0o755)
    for script in sorted(spec.lua_dir.glob("*.lua")) if spec.lua_dir else []:
        _write(etc / script.name, script.read_text().replace(INSTALLED_LUA, str(layout.etc)))
    if spec.epilog is not None:
        shutil.copy(spec.epilog, etc / spec.epilog.name)
        (etc / spec.epilog.name).chmod(0o755)
    if spec.job_path is not None:
        shutil.copytree(spec.job_path, job_path, dirs_exist_ok=True)
        for path in [job_path, *job_path.rglob("*")]:
            is_program = path.is_dir() or path.parent.name == "bin"
            path.chmod(0o755 if is_program else 0o644)


def start_munged(slurm: Installation, layout: Layout) -> Process:
    """Starts munged. Its socket answers when this returns.

    No --force: the directories have the modes that munged requires. With its default of 2 threads
    a burst of messages ends in "Munge encode failed".
    """
    private = layout.munge_key.parent
    argv = [
        slurm.daemon(MUNGED),
        "--foreground",
        "--num-threads=10",
        f"--key-file={layout.munge_key}",
        f"--socket={layout.munge_socket}",
        f"--pid-file={layout.run / 'munged.pid'}",
        f"--seed-file={private / 'seed'}",
    ]
    process = spawn(argv, slurm, layout, layout.logs / "munged.log")
    layout_socket = str(layout.munge_socket)
    wait_for(lambda: is_listening(socket.AF_UNIX, layout_socket), process, MUNGED, layout)
    return process


def start_controller(slurm: Installation, layout: Layout) -> Process:
    """Starts slurmctld. It listens when this returns, but may not know its nodes yet."""
    # -D also keeps the process number over `scontrol reconfigure` (24.11 and later re-execute).
    argv = [slurm.daemon(CONTROLLER), "-D", "-f", str(layout.conf)]
    process = spawn(argv, slurm, layout, layout.logs / f"{CONTROLLER}.out")
    # Clients ask a dead controller for 10 s. A refused connection says the same at once.
    address = ("127.0.0.1", layout.controller_port)
    wait_for(lambda: is_listening(socket.AF_INET, address), process, CONTROLLER, layout)
    return process


def start_node(slurm: Installation, layout: Layout, node: str) -> Process:
    """Starts a slurmd and returns at once. sinfo shows when the node has registered."""
    argv = [slurm.daemon("slurmd"), "-D", "-f", str(layout.conf), "-N", node]
    return spawn(argv, slurm, layout, layout.logs / f"{node}.out")


def log_tail(layout: Layout, daemon: str, lines: int = TAIL_LINES) -> str:
    """Returns the last lines of a daemon's log, or of its output if it died before it had a log."""
    for path in (layout.logs / f"{daemon}.log", layout.logs / f"{daemon}.out"):
        if path.exists() and (text := path.read_text(errors="replace").strip()):
            return "\n".join(text.splitlines()[-lines:])
    return f"(no log of {daemon})"


def spawn(
    argv: list[str],
    slurm: Installation,
    layout: Layout,
    output: Path,
    added: Optional[Mapping[str, str]] = None,
) -> Process:
    """Starts a daemon in a separate session and appends its output to `output`.

    `added` extends its environment.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    full = [*slurm.prefix, "/usr/bin/env", "-C", str(layout.dir), *argv]
    pid = os.posix_spawnp(
        full[0],
        full,
        {"PATH": slurm.path, "LANG": "C.UTF-8", "SLURM_CONF": str(layout.conf), **(added or {})},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(output), flags, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=[],
        setsigdef=DEFAULT_SIGNALS,
    )
    _log.debug("process %d: %s", pid, " ".join(full))
    return identify(pid) or Process(pid, -1)  # -1: ended already, which the caller's wait reports


def is_listening(family: socket.AddressFamily, address: object) -> bool:
    """Tells whether a connection to this address is accepted."""
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(address) == 0  # type: ignore[arg-type]


def wait_for(
    is_ready: Callable[[], bool], process: Process, name: str, layout: Layout, limit_s: float = 20.0
) -> None:
    """Waits until it is ready. Raises RetryLater, with the end of its log, if it ends or is
    late."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if not is_alive(process):
            raise RetryLater(f"{name} ended as soon as it started:\n{log_tail(layout, name)}")
        if is_ready():
            return
        time.sleep(POLL_S)
    raise RetryLater(f"{name} not ready after {limit_s:.0f} s:\n{log_tail(layout, name)}")
