"""On which file system a directory is, and whether that belongs to one node."""

from __future__ import annotations

import re
from pathlib import Path

from slurm_hooks.elastic.log import suppressed

LOCAL = frozenset(
    {"tmpfs", "ramfs", "overlay", "ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "squashfs"}
)
_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(r"\\([0-7]{3})")


def local_kind(directory: str) -> str:
    """The type of a file system that nodes do not share, unless they are one host or one of them
    exports it, empty for any other, or if it is not known."""
    with suppressed(OSError, ValueError, doing="looking on which file system the directory is"):
        found = kind_of(str(Path(directory).resolve()), _MOUNTS.read_text(errors="replace"))
        return found if found in LOCAL else ""
    return ""


def kind_of(path: str, mounts: str) -> str:
    """The type of the file system at an absolute path, from the text of mountinfo: that of the
    longest mount point above it, the last of equal ones. Empty if there is none."""
    longest, kind = "", ""
    for line in mounts.splitlines():
        before, dash, after = line.partition(" - ")
        words = before.split(" ")
        if not dash or len(words) < 5:
            continue
        point = _ESCAPED.sub(lambda found: chr(int(found.group(1), 8)), words[4])
        is_above = path == point or path.startswith(point.rstrip("/") + "/")
        if is_above and len(point) >= len(longest):
            longest, kind = point, after.split(" ")[0]
    return kind
