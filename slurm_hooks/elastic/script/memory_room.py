"""How much more memory this process may use.

The kernel does not refuse memory to a process that asks for too much: it kills a process. So code
that wants much memory asks here first.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from slurm_hooks.elastic.log import suppressed

_PLENTY = 1 << 62
_SPARE = 64 << 20  # bytes that are left to others


def room(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the bytes that the machine and the job's limits still allow, or a very large number if
    they cannot be seen.
    """
    return max(0, min(_free(proc), *_within_limits(proc, cgroups), _PLENTY) - _SPARE)


def _free(proc: Path) -> int:
    with suppressed(OSError, ValueError, IndexError, doing="reading how much memory is free"):
        for line in (proc / "meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return _PLENTY


def _within_limits(proc: Path, cgroups: Path) -> Iterator[int]:
    yield _PLENTY
    with suppressed(OSError, ValueError, doing="reading the limits of the job's memory"):
        for line in (proc / "self" / "cgroup").read_text().splitlines():
            _, controllers, name = line.split(":", 2)
            if controllers == "":
                names = "memory.max", "memory.current", "inactive_file"
                yield from _left(cgroups, name, *names)
            elif "memory" in controllers.split(","):
                names = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
                yield from _left(cgroups / "memory", name, *names)


def _left(top: Path, name: str, most: str, used: str, dropped: str) -> Iterator[int]:
    """Yield the free bytes of this group and the groups above, which Slurm limits too (job,
    step).
    """
    inner = top / name.lstrip("/")
    for group in (inner, *inner.parents):
        if group == top.parent:
            return
        limit, in_use = _number(group / most), _number(group / used)
        if max(limit, in_use) < _PLENTY:
            yield limit - in_use + _cache(group / "memory.stat", dropped)


def _number(path: Path) -> int:
    with suppressed(OSError, ValueError, doing=f"reading {path}"):
        text = path.read_text().strip()
        return _PLENTY if text == "max" else int(text)
    return _PLENTY


def _cache(path: Path, name: str) -> int:
    """Return the pages of files, which the kernel gives up first."""
    with suppressed(OSError, ValueError, doing=f"reading {path}"):
        for line in path.read_text().splitlines():
            if line.split(" ")[0] == name:
                return int(line.split(" ")[1])
    return 0
