"""Tell which environments have surely reached the disk.

A node that loses power keeps names of files whose content it had not written yet. To sync a whole
disk would delay the job. So a copy counts as whole in the boot that laid it. It counts in later
boots if it was used a while after it was laid.

It works in the current directory, under its lock.
"""

from __future__ import annotations

import contextlib
import os
import time

from .eviction import age, put_away

SETTLED_S = 300.0  # the kernel writes data after half a minute (vm.dirty_expire_centisecs)


def boot() -> str:
    """Return the kernel's id of this boot, or an empty text."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def mark_as_new(name: str) -> None:
    """The environment of that name is about to appear. An existing environment stays unmarked."""
    if not os.path.lexists(name):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_mark(name))
        os.symlink(boot() or "unknown", _mark(name))


def drop_if_doubtful(name: str) -> None:
    """Put it away if it was laid shortly before a crash. Forget the mark if that time is over."""
    mark = _mark(name)
    if not os.path.lexists(mark):
        return
    if os.readlink(mark) != (boot() or "unknown"):
        put_away([name] if os.path.lexists(name) else [])
        os.unlink(mark)
    elif age(mark, time.time()) > SETTLED_S:
        os.unlink(mark)


def _mark(name: str) -> str:
    return f"boot-{name[4:]}"
