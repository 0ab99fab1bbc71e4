"""Tell whether the kernel has ended processes because the memory limit of the job was reached.

Slurm writes its line on this when the batch script ends, and a training goes on before that.
"""

from __future__ import annotations

import re
from pathlib import Path

from slurm_hooks.elastic.log import suppressed

_LINE = re.compile(r"^(\d+):([^:\n]*):(/.*)$", re.MULTILINE)
_KILLS = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
REACHED = (
    "the kernel ended a process of fragment {fragment}, as the memory limit of the job was reached "
    "on this node: raise --mem, or let the script need less"
)


def counters(cgroups: str) -> list[str]:
    """Return the files below /sys/fs/cgroup that may count the ended processes of this cgroup, from
    the text of /proc/self/cgroup.
    """
    rows = _LINE.findall(cgroups)
    new = [f"{path[1:]}/memory.events" for number, _, path in rows if number == "0"]
    old = [
        f"memory{path}/memory.oom_control"
        for _, names, path in rows
        if "memory" in names.split(",")
    ]
    return new + old


class MemoryLimit:
    """Counts them from now on. Does not raise."""

    def __init__(
        self, cgroup: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")
    ) -> None:
        self._cgroup = cgroup
        self._root = root
        self._seen = self._kills()

    def was_reached(self) -> bool:
        """Tell whether a process was ended since the last call."""
        before, self._seen = self._seen, self._kills()
        return self._seen > before

    def _kills(self) -> int:
        with suppressed(OSError, doing="looking whether the memory limit was reached"):
            files = [self._root / name for name in counters(self._cgroup.read_text())]
            texts = [file.read_text() for file in files if file.exists()]
            return sum(int(count) for text in texts for count in _KILLS.findall(text))
        return 0
