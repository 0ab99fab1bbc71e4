"""Runs Slurm's commands on this host: no shell, always a time limit, failures sorted by kind."""

from __future__ import annotations

import logging
import os
import pwd
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional, Protocol

from slurm_hooks.errors import CommandRefused, MissingProgram, NotAllowed, RetryLater, UsageError
from slurm_hooks.model.moments import plural
from slurm_hooks.slurm.rows import jobs_command
from slurm_hooks.slurm.text import Command

_log = logging.getLogger(__name__)
_LIBRARY = Path(__file__).with_name("library_jobs.py")
_BUSY = re.compile(
    r"Unable to contact|Socket timed out|Connection refused|connect failure|Zero Bytes|"
    r"missing socket|standby mode|Message (?:send|receive) failure|Communication connection|"
    r"try again|temporarily unable|Munge|munge|Slurm controller not|DNS SRV",
)
DENIED = re.compile(r"ermission denied|not permitted")
NOT_OWNER = "Invalid user id"  # the answer to a change of another user's job
# Users' own defaults, such as SQUEUE_PARTITION, would hide other users' jobs.
_OPTIONS = re.compile(r"(SQUEUE|SCANCEL|SCONTROL)_|SLURM_CLUSTERS$")


@dataclass(frozen=True)
class Asked:
    """A command that was run: its arguments, its RPCs and its seconds."""

    argv: tuple[str, ...]
    rpcs: int
    seconds: float


class Port(Protocol):
    """The interface to Slurm: takes a command, returns its output.

    Raises RetryLater if Slurm does not answer, CommandRefused if it refuses, MissingProgram if
    there is no such command on this host.
    """

    asked: list[Asked]

    def ask(self, command: Command) -> str:
        """Run a command and return its output."""
        ...


@dataclass
class Live:
    """The Slurm of this host's commands. `bin_dir` is for commands outside PATH.

    With a `user`, which needs root rights, commands run with that user's rights. Detached commands
    do not get the terminal's signals.
    """

    timeout_s: float = 10.0
    bin_dir: str = ""
    environment: Optional[dict[str, str]] = None
    asked: list[Asked] = field(default_factory=list)
    user: Optional[str] = None
    is_detached: bool = False

    def ask(self, command: Command) -> str:
        """Run a command and return its output. See Port."""
        began = time.monotonic()
        try:
            done = self._run(command)
        except OSError as error:
            raise MissingProgram(
                f"{command.argv[0]} is not on this host or cannot be run ({error.strerror}): check "
                "PATH and tick.slurm_bin, or install Slurm's client package"
            ) from error
        except subprocess.TimeoutExpired as error:
            self._note(command, began, "timed out")
            if command.patience_s:
                return ""
            raise RetryLater(
                f"`{_shown(command)}` gave no answer in {self.timeout_s:g} s: "
                "check slurmctld with `scontrol ping`"
            ) from error
        complaint = done.stderr.strip() or ("" if done.returncode == 0 else "no message")
        self._note(command, began, complaint)
        if done.returncode == 0 or command.patience_s:
            return done.stdout
        if _BUSY.search(complaint):
            raise RetryLater(f"`{_shown(command)}`: Slurm is not ready: {complaint[-300:]}")
        is_barred = DENIED.search(complaint) or NOT_OWNER in complaint
        refusal = NotAllowed if is_barred else CommandRefused
        raise refusal(
            f"`{_shown(command)}` failed with exit code {done.returncode}: {complaint[-300:]}",
            complaint,
        )

    def _run(self, command: Command) -> subprocess.CompletedProcess[str]:
        program, *rest = command.argv
        path = os.path.join(self.bin_dir, program) if self.bin_dir else program
        known = os.environ if self.environment is None else self.environment
        environment = {name: value for name, value in known.items() if not _OPTIONS.match(name)}
        environment["SLURM_TIME_FORMAT"] = "%s"
        return subprocess.run(
            [path, *rest],
            input=command.stdin,
            capture_output=True,
            text=True,
            errors="surrogateescape",  # other users' text is written back unchanged
            timeout=command.patience_s or self.timeout_s,
            env=environment,
            check=False,
            start_new_session=self.is_detached,
            **_identity(self.user),
        )

    def _note(self, command: Command, began: float, complaint: str) -> None:
        seconds = time.monotonic() - began
        self.asked.append(Asked(command.argv, command.rpcs, seconds))
        said = f": {_printable(complaint)}" if complaint else ""
        text = _printable(_shown(command))
        _log.debug("`%s`: %s, %.3f s%s", text, plural(command.rpcs, "RPC"), seconds, said)


@dataclass
class WithLibrary:
    """Slurm's commands, with libslurm (library_jobs.py) in place of squeue where it is exact."""

    live: Live

    def __post_init__(self) -> None:
        self.asked = self.live.asked

    def ask(self, command: Command) -> str:
        """Run a command or its replacement. See Port."""
        if command == jobs_command():
            try:
                return self.live.ask(library_command())
            except CommandRefused as error:
                _log.info("pyslurm cannot give squeue's answer, so squeue is asked: %s", error)
        return self.live.ask(command)


def library_command() -> Command:
    """The program that answers in place of squeue, isolated from the caller's environment."""
    return Command((sys.executable, "-X", "utf8", "-I", str(_LIBRARY)))


def _identity(user: Optional[str]) -> dict[str, Any]:
    """Return the rights of a user for subprocess. Raises UsageError if there is no such user."""
    if user is None:
        return {}
    try:
        entry = pwd.getpwnam(user)
    except KeyError as error:
        raise UsageError(f"there is no user {user!r} on this host") from error
    groups = os.getgrouplist(user, entry.pw_gid)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": groups, "cwd": "/"}


def _shown(command: Command) -> str:
    first = command.stdin.split("\n", 1)[0]
    words = " ".join(command.argv)
    return f"{words} <<< {first}"[:160] if first else words[:160]


def _printable(text: str) -> str:
    """Return a line of ASCII, since users' text may be in it."""
    return text.encode("unicode_escape").decode()
