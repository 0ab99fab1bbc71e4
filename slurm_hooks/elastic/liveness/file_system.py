"""Tell on which file system a directory is, and whether that belongs to a single node."""

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
    """Return the type of a file system that nodes do not share, empty for any other or if it is
    unknown.

    Nodes share such a file system only if they are the same host or one of them exports it.
    """
    with suppressed(OSError, ValueError, doing="reading on which file system the directory is"):
        kind = kind_of(str(Path(directory).resolve()), _MOUNTS.read_text(errors="replace"))
        return kind if kind in LOCAL else ""
    return ""


def kind_of(path: str, mounts: str) -> str:
    """Return the type of the file system at an absolute path, from the text of mountinfo. Empty if
    unknown.

    It belongs to the longest mount point above the path, and to the last of equal mount points.
    """
    longest, kind = "", ""
    for line in mounts.splitlines():
        before, dash, after = line.partition(" - ")
        words = before.split(" ")
        if not dash or len(words) < 5:
            continue
        point = _ESCAPED.sub(lambda match: chr(int(match.group(1), 8)), words[4])
        is_above = path == point or path.startswith(point.rstrip("/") + "/")
        if is_above and len(point) >= len(longest):
            longest, kind = point, after.split(" ")[0]
    return kind
