"""The accounting of a sandbox: MariaDB behind a socket, slurmdbd on a loopback port, a few rows.

slurmctld starts later, and this module knows no more about it. The database is in the sandbox's
directory. Its user enters only through the socket, without a password or a port.
"""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from slurm_hooks.errors import MissingProgram, RetryLater
from slurm_hooks.sandbox.daemons import is_listening, log_tail, spawn, wait_for
from slurm_hooks.sandbox.installation import Installation
from slurm_hooks.sandbox.processes import Process
from slurm_hooks.sandbox.spec import PART_NODES, SCAVENGE, Layout

DATABASE = "mariadbd"
DAEMON = "slurmdbd"
ACCOUNT = "lab"
USERS = ("root", "nobody")
INSTALL = Path("/usr/bin/mariadb-install-db")
INSTALL_LIMIT_S = 60
# The data need not survive a crash of the host, so MariaDB does not wait for the disk.
THROWAWAY = (
    "--innodb-flush-method=nosync",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-doublewrite=0",
    "--innodb-log-file-size=8M",
    "--sync-frm=0",
)
# program -> the Debian package that has it
PROGRAMS = {
    Path("/usr/sbin/mariadbd"): "mariadb-server",
    INSTALL: "mariadb-server",
    Path("/usr/sbin/slurmdbd"): "slurmdbd",
}


class Run(Protocol):
    """Runs a command inside the sandbox: Sandbox.run."""

    def __call__(self, argv: Sequence[str], *, check: bool, timeout_s: float) -> Any: ...


def check_installed(slurm: Installation) -> None:
    """Raises MissingProgram, with the packages to install, if MariaDB or slurmdbd is missing."""
    root = Path(slurm.prefix[1]) if slurm.prefix else Path("/")
    missing = {
        str(program): package
        for program, package in PROGRAMS.items()
        if not os.path.lexists(root / program.relative_to("/"))
    }
    if missing:
        packages = " ".join(sorted(set(missing.values())))
        raise MissingProgram(
            f"A sandbox with accounting needs {', '.join(missing)}, not found in {root}. "
            f"On Debian: apt-get install {packages} "
            "(make test-sites does it, and keeps the packages from starting their own daemons)."
        )


def start(slurm: Installation, layout: Layout) -> dict[str, Process]:
    """Starts MariaDB and slurmdbd. Both are ready when this returns.

    Raises RetryLater, with the end of a log, if either does not come up.
    """
    _make_tables(slurm, layout)
    database = _start_database(slurm, layout)
    return {DATABASE: database, DAEMON: _start_daemon(slurm, layout)}


def _make_tables(slurm: Installation, layout: Layout) -> None:
    """Makes MariaDB's own tables. The sandbox's user gets all rights, checked by the socket."""
    argv = [
        *slurm.prefix,
        str(INSTALL),
        "--no-defaults",
        f"--datadir={layout.database}",
        f"--tmpdir={layout.database_scratch}",
        "--auth-root-authentication-method=socket",
        f"--auth-root-socket-user={layout.user}",
        "--skip-test-db",
        *THROWAWAY,
        *_as_user(layout),
    ]
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            timeout=INSTALL_LIMIT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise RetryLater(f"{INSTALL} did not end within {INSTALL_LIMIT_S} s.") from error
    if done.returncode != 0:
        raise RetryLater(
            f"{' '.join(argv)} failed with exit code {done.returncode}:\n{done.stderr[-2000:]}"
        )


def _as_user(layout: Layout) -> list[str]:
    """Returns the option without which MariaDB refuses to run as root."""
    return [f"--user={layout.user}"] if os.geteuid() == 0 else []


def _start_database(slurm: Installation, layout: Layout) -> Process:
    argv = [
        f"/usr/sbin/{DATABASE}",
        "--no-defaults",
        f"--datadir={layout.database}",
        f"--tmpdir={layout.database_scratch}",
        f"--socket={layout.database_socket}",
        f"--pid-file={layout.run}/{DATABASE}.pid",
        f"--log-error={layout.logs}/{DATABASE}.log",
        "--skip-networking",
        "--innodb-buffer-pool-size=64M",
        "--innodb-lock-wait-timeout=900",  # slurmdbd asks for that much
        *THROWAWAY,
        *_as_user(layout),
    ]
    process = spawn(argv, slurm, layout, layout.logs / f"{DATABASE}.out")
    path = str(layout.database_socket)
    wait_for(lambda: is_listening(socket.AF_UNIX, path), process, DATABASE, layout)
    return process


def _start_daemon(slurm: Installation, layout: Layout) -> Process:
    argv = [slurm.daemon(DAEMON), "-D"]
    added = {"MYSQL_UNIX_PORT": str(layout.database_socket)}  # where libmariadb finds `localhost`
    process = spawn(argv, slurm, layout, layout.logs / f"{DAEMON}.out", added)
    address = ("127.0.0.1", layout.accounting_port)
    wait_for(lambda: is_listening(socket.AF_INET, address), process, DAEMON, layout)
    return process


def fill(run: Run, layout: Layout) -> None:
    """Adds the cluster, an account with users, and the QOS `scavenge`, which `normal` preempts. If
    nodes have GPUs and this project is installed, it preempts the QOS `parts` first."""
    needed = (layout.conf.with_name(name) for name in ("gres.conf", "plugstack.conf"))
    cluster, has_parts = layout.cluster, all(path.exists() for path in needed)
    yielding = f"{SCAVENGE},{PART_NODES}" if has_parts else SCAVENGE
    users = [name for name in dict.fromkeys((layout.user, *USERS)) if _is_known(name)]
    commands = (
        ("add", "cluster", cluster),
        ("add", "qos", yielding, "UsageFactor=0", "Priority=0"),
        ("modify", "qos", SCAVENGE, "set", f"Priority={int(has_parts)}"),
        ("modify", "qos", "normal", "set", f"Preempt+={yielding}"),
        ("add", "account", ACCOUNT, f"Cluster={cluster}"),
        ("add", "user", ",".join(users), f"Account={ACCOUNT}", f"Cluster={cluster}"),
        ("modify", "account", "root", "set", f"QOS+={yielding}"),
    )
    for words in commands:
        done = run(["sacctmgr", "-i", *words], check=False, timeout_s=30)
        if done.returncode != 0 and "lready exist" not in done.stdout + done.stderr:
            tail = log_tail(layout, DAEMON)
            raise RetryLater(
                f"sacctmgr {' '.join(words)} failed with exit code {done.returncode}: {done.stdout}"
                f"{done.stderr}; the end of slurmdbd's log:\n{tail}"
            )


def _is_known(user: str) -> bool:
    try:
        return bool(pwd.getpwnam(user))
    except KeyError:
        return False
