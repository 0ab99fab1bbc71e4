"""Runs a command inside a sandbox, with the right environment, user and root.

Pure except for `run_command` and `call_command`, which start a process and wait for it.
"""

from __future__ import annotations

import logging
import os
import pwd
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from slurm_hooks.errors import CommandRefused, RetryLater, UsageError
from slurm_hooks.sandbox.installation import Installation
from slurm_hooks.sandbox.spec import Layout

_log = logging.getLogger(__name__)
# Variables of an enclosing job or another cluster, which the commands of a sandbox must not see.
FOREIGN = ("SLURM", "SBATCH_", "SALLOC_", "SQUEUE_", "SINFO_", "SCANCEL_", "MALLEABLE", "PET_")
KEPT_FOR_OTHERS = ("LANG", "LC_ALL", "TERM", "TZ")


@dataclass(frozen=True)
class Command:
    """A command: arguments, directory, additions to the environment, user (None: the caller)."""

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]
    user: Optional[str] = None
    timeout_s: float = 30.0
    stdin: Optional[str] = None


def additions(slurm: Installation, layout: Layout, path: str) -> dict[str, str]:
    """Returns the variables that make a process talk to this sandbox.

    `path` is that process's PATH. The sandbox's Slurm comes first only if another would win.
    """
    is_first = shutil.which("sinfo", path=path) == str(slurm.bin_dir / "sinfo")
    order = [path, slurm.path] if is_first else [str(slurm.bin_dir), path, slurm.path]
    entries = [entry for part in order for entry in part.split(":") if entry]
    return {
        "SLURM_CONF": str(layout.conf),
        "PATH": ":".join(dict.fromkeys(entries)),
        "MALLEABLE_SETTINGS": str(layout.settings),
    }


def clean_environment(environ: Mapping[str, str], user: Optional[str]) -> dict[str, str]:
    """Returns the caller's environment without another Slurm's variables.

    Other users get only a small part of it.
    """
    if user is None:
        return {name: text for name, text in environ.items() if not name.startswith(FOREIGN)}
    account = find_account(user)
    kept = {name: environ[name] for name in KEPT_FOR_OTHERS if name in environ}
    identity = {"HOME": account.pw_dir, "USER": user, "LOGNAME": user, "SHELL": "/bin/sh"}
    return {**kept, **identity}


def find_account(user: str) -> pwd.struct_passwd:
    """Returns the account. Raises UsageError if there is no such user."""
    try:
        return pwd.getpwnam(user)
    except KeyError as error:
        raise UsageError(f"There is no user {user!r} on this host.") from error


def run_command(
    command: Command, slurm: Installation, is_checked: bool
) -> subprocess.CompletedProcess[str]:
    """Runs a command and returns its output as text.

    Raises CommandRefused with that output if it fails and `is_checked`, RetryLater if it takes
    longer than its time-out, UsageError if it cannot be started.
    """
    argv, settings = _placed(command, slurm)
    try:
        done = subprocess.run(
            argv,
            env=dict(command.env),
            input=command.stdin,
            stdin=subprocess.DEVNULL if command.stdin is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=command.timeout_s,
            check=False,
            **settings,
        )
    except subprocess.TimeoutExpired as error:
        seen = f"{_text(error.stdout)}{_text(error.stderr)}"
        raise RetryLater(
            f"{' '.join(command.argv)} did not end within {command.timeout_s:g} s.\n{seen}"
        ) from error
    except OSError as error:
        raise UsageError(f"{' '.join(command.argv)} cannot be started: {error}") from error
    _log.debug("%s ended with %d", " ".join(command.argv), done.returncode)
    if is_checked and done.returncode != 0:
        raise CommandRefused(_failure(command, done))
    return done


def call_command(command: Command, slurm: Installation) -> int:
    """Runs a command on the caller's terminal without a time-out and returns its exit code.

    Raises UsageError if it cannot be started.
    """
    argv, settings = _placed(command, slurm)
    try:
        return subprocess.run(argv, env=dict(command.env), check=False, **settings).returncode
    except OSError as error:
        raise UsageError(f"{' '.join(command.argv)} cannot be started: {error}") from error


def _failure(command: Command, done: subprocess.CompletedProcess[str]) -> str:
    user = command.user or "this user"
    return (
        f"{' '.join(command.argv)} (as {user}, in {command.cwd}) failed with exit code "
        f"{done.returncode}.\n"
        f"{done.stdout}{done.stderr}"
    )


def _text(output: Any) -> str:
    if output is None:
        return ""
    return output if isinstance(output, str) else bytes(output).decode(errors="replace")


def _placed(command: Command, slurm: Installation) -> tuple[list[str], dict[str, Any]]:
    """Returns arguments and subprocess settings for the command's root, directory and user."""
    account = None if command.user is None else find_account(command.user)
    if account is not None and account.pw_uid == os.geteuid():
        account = None
    if account is not None and os.geteuid() != 0:
        raise UsageError(f"Only root can run {command.argv[0]} as {command.user}.")
    if slurm.prefix:
        return _inside_root(command, slurm.prefix, account), {}
    # Found by the sandbox's PATH; subprocess would look in the caller's.
    program = shutil.which(command.argv[0], path=command.env.get("PATH")) or command.argv[0]
    return [program, *command.argv[1:]], {"cwd": command.cwd, **_identity(account)}


def _identity(account: Optional[pwd.struct_passwd]) -> dict[str, Any]:
    if account is None:
        return {}
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": _groups(account)}


def _groups(account: pwd.struct_passwd) -> list[int]:
    return os.getgrouplist(account.pw_name, account.pw_gid)


def _inside_root(
    command: Command, prefix: Sequence[str], account: Optional[pwd.struct_passwd]
) -> list[str]:
    """Returns the arguments with chroot(1) as prefix, which sets the user, and env(1), which
    changes the directory."""
    options = []
    if account is not None:
        groups = ",".join(map(str, _groups(account)))
        options = [f"--userspec={account.pw_uid}:{account.pw_gid}", f"--groups={groups}"]
    enter = [prefix[0], *options, *prefix[1:]]
    return [*enter, "/usr/bin/env", "-C", str(command.cwd), *command.argv]
