"""Where the demo runs and as whom: two sandboxes, their settings, the user who submits.

Knows nothing of the timetable's jobs.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Optional

from demo.scenario import NODES, SETTINGS, TICK_S
from slurm_hooks.errors import MalleableError, UsageError
from slurm_hooks.sandbox import Sandbox
from slurm_hooks.sandbox.project import project_spec


@contextlib.contextmanager
def sandboxes(is_kept: Callable[[], bool]) -> Iterator[tuple[Sandbox, Sandbox]]:
    """The one with the malleable job and the one without, both with eight nodes.

    They are taken down however this ends; the first one stays if `is_kept()` then says so.
    """
    with contextlib.ExitStack() as stack:
        main = Sandbox.up(project_spec(nodes=NODES, settings_text=SETTINGS))
        stack.callback(lambda: None if is_kept() else main.down())
        alone = Sandbox.up(project_spec(nodes=NODES, settings_text=SETTINGS))
        stack.callback(alone.down)
        main.settings.write_text(_settings(main))  # they are read again at every tick
        yield main, alone


def _settings(box: Sandbox) -> str:
    """The scenario's settings with what is known only once the sandbox is there."""
    found = box.record
    return f"""{SETTINGS}
[site]
partitions = ["malleable"]
operators = ["{found.layout.user}"]

[tick]
lock = "{found.layout.run}/tick.lock"
slurm_bin = "{found.slurm.bin_dir}"
state_dir = "{found.layout.run}/malleable"
every_s = {TICK_S}
"""


def submitter(modules: Sequence[str]) -> tuple[Optional[str], str]:
    """The user who submits the training, and why; None is the current user.

    `nobody`, if we are root and nobody can run this Python with the modules in it. Trying it also
    gets them off the disk before the load begins. Raises UsageError if we cannot run it either.
    """
    if os.geteuid() == 0 and _can_import("nobody", modules):
        return "nobody", "user nobody, who has no rights, submits the training"
    me = pwd.getpwuid(os.geteuid()).pw_name
    if not _can_import(None, modules):
        raise UsageError(f"{sys.executable} cannot import {', '.join(modules)}; run `make demo`.")
    why = f": user nobody cannot run {sys.executable}" if os.geteuid() == 0 else ""
    return None, f"user {me} submits the training{why}"


def _can_import(user: Optional[str], modules: Sequence[str]) -> bool:
    """Whether this user (None: the current one) can run this Python with these modules in it."""
    try:
        account = None if user is None else pwd.getpwnam(user)
        identity = _identity(account) if account else {}
        done = subprocess.run(
            [sys.executable, "-c", f"import {', '.join(modules)}"],
            cwd="/",
            env={"PATH": os.defpath, "HOME": account.pw_dir if account else "/"},
            capture_output=True,
            timeout=120,
            check=False,
            **identity,
        )
    except (KeyError, OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def _identity(account: pwd.struct_passwd) -> dict[str, Any]:
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def slurm_version(box: Sandbox) -> str:
    """As Slurm says it."""
    try:
        return box.run(["sinfo", "--version"]).stdout.split()[-1]
    except (MalleableError, IndexError):
        return "unknown"


def about(box: Sandbox) -> dict[str, Any]:
    """What report.json says of where and when."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {
        "slurm_version": slurm_version(box),
        "date": now,
        "machine": {"cores": os.cpu_count()},
    }
