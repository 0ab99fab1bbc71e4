"""A sandbox for each worker, kept for every module whose tests leave it unchanged."""

from __future__ import annotations

import ctypes
import os
import pwd
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Optional

from slurm_hooks.planning.failures import suspects
from slurm_hooks.planning.ground import Ground
from slurm_hooks.sandbox import Sandbox
from slurm_hooks.settings.values import Mode, Settings
from slurm_hooks.slurm.gateway import observe
from slurm_hooks.slurm.live import Live
from waiting import PATIENCE_S, until_or_last

# Differs from a reading to the next on a node at rest.
VOLATILE = re.compile(
    r" (?:BootTime|SlurmdStartTime|LastBusyTime|CPULoad|FreeMem|ResumeAfterTime)=\S*"
)
PR_GET_CHILD_SUBREAPER = 37
ASKED = {
    "node": ["scontrol", "-o", "show", "nodes"],
    "partition": ["scontrol", "-o", "show", "partitions"],
    "reservation": ["scontrol", "-o", "show", "reservations"],
    "job": ["squeue", "--noheader", "--format=%i %T %u %j"],
}


def job_directory(box: Sandbox, job_id: int, user_id: int) -> Path:
    """The directory that the fragments of a job share, as the plugin names it."""
    is_told = not (23, 11) <= box.record.slurm.version < (23, 11, 5)
    cluster = box.record.layout.cluster if is_told else "cluster"
    return box.work / f".malleable-{user_id}" / cluster / str(job_id)


class KeptSandbox:
    """A sandbox that starts at its first use, and again after a module has spoiled it.

    Files are put back before each module: the settings, everything in `work` and the ticks' files.
    Slurm itself is only checked, since a job, node, partition or reservation that is left behind is
    a fault of its test. Slurm and ticks still know jobs that ended within the last five minutes, so
    tests check only their own jobs.
    """

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._box: Optional[Sandbox] = None
        self._daemons: set[str] = set()
        self._slurm: dict[str, list[str]] = {}
        self._files: dict[Path, bytes] = {}

    def take(self) -> Sandbox:
        """Return the sandbox, as it was right after its start.

        Daemons that a test has started again are children of this process, and tests of processes
        (elastic/test_kin.py) end all of these. Then a new sandbox starts. It also starts if jobs of
        two users died on a node, because no tick would use that node for an hour.
        """
        if self._box is not None and (self._dead(self._box) or _suspects(self._box)):
            self.down()
        if self._box is None:
            self._box = _start_apart(self._nodes)
            self._daemons = set(self._box.running())
            self._files = _files(self._box)
            self._slurm = _slurm(self._box)
        else:
            self._put_back(self._box)
        return self._box

    def check(self, user: str) -> None:
        """Give this sandbox up if Slurm has changed since before its `user`.

        Raise AssertionError with every added or removed line of Slurm's.
        """
        box = self._box
        assert box is not None
        left = until_or_last(lambda: self._changes(box), lambda changes: not changes, PATIENCE_S)
        if left:
            self.down()
        assert not left, f"{user} left this behind in a shared sandbox:\n" + "\n".join(left)

    def down(self) -> None:
        """End the sandbox, if it runs."""
        if self._box is not None:
            self._box.down()
        self._box = None

    def _dead(self, box: Sandbox) -> set[str]:
        return self._daemons - set(box.running())

    def _changes(self, box: Sandbox) -> list[str]:
        if dead := self._dead(box):
            return [f"not running: {name}" for name in sorted(dead)]
        now = _slurm(box)
        return [
            line
            for kind, before in self._slurm.items()
            for line in _difference(kind, before, now[kind])
        ] + [f"changed: {path}" for path in self._changed_files(box)]

    def _changed_files(self, box: Sandbox) -> list[Path]:
        """Files that the daemons read. Ticks alone read the settings, which are put back."""
        now = _files(box)
        changed = {path for path in {*now, *self._files} if now.get(path) != self._files.get(path)}
        return sorted(changed - {box.settings})

    def _put_back(self, box: Sandbox) -> None:
        box.settings.write_bytes(self._files[box.settings])
        kept = box.dir / "run" / "malleable"
        for path in [*box.work.iterdir(), *(kept.iterdir() if kept.is_dir() else ())]:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


# Reads the directory of each sandbox. At the end of the pipe it ends those that are still there.
GUARD = """
import os, sys
from contextlib import suppress
from pathlib import Path
from slurm_hooks.errors import MalleableError
from slurm_hooks.sandbox import Sandbox
if os.fork():
    os._exit(0)
os.setsid()
boxes = []
for line in sys.stdin:
    with suppress(MalleableError):  # it has ended already
        boxes.append(Sandbox.attach(Path(line.strip())))
for box in boxes:
    with suppress(MalleableError):
        now = Sandbox.attach(box.dir)
        if now.record.layout == box.record.layout:
            now.down()
"""
_pipes: dict[int, int] = {}


def end_with_us(box: Sandbox) -> Sandbox:
    """Have the sandbox ended when this process ends, however that happens.

    Ctrl+C lets workers live for ten seconds, which is less than they need. The guard is no child of
    this process, because tests of processes end all of these.
    """
    if os.getpid() not in _pipes:
        read, _pipes[os.getpid()] = os.pipe()
        nothing = subprocess.DEVNULL
        argv = [sys.executable, "-c", GUARD]
        subprocess.run(argv, stdin=read, stdout=nothing, stderr=nothing, check=True)
        os.close(read)
    os.write(_pipes[os.getpid()], f"{box.dir}\n".encode())
    return box


def _start_apart(nodes: int) -> Sandbox:
    """Its daemons are not children of this process, because tests of processes check these."""
    assert not _adopts(), "an earlier test has not undone kin.adopt()"
    program = (
        "from slurm_hooks.sandbox import Sandbox\n"
        "from slurm_hooks.sandbox.project import project_spec\n"
        f"print(Sandbox.up(project_spec(nodes={nodes})).dir)"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=150, check=False
    )
    assert said.returncode == 0, said.stderr
    return end_with_us(Sandbox.attach(Path(said.stdout.split()[-1])))


def cancel_jobs_of(box: Sandbox, *users: str) -> None:
    """Cancel all their jobs. By number: for Slurm 25.11 and later `nobody` is no user's name."""
    for user in users:
        box.run(["scancel", f"--user={pwd.getpwnam(user).pw_uid}"], check=False)


def _adopts() -> bool:
    """Tells whether daemons would become children of this process, and zombies at their end."""
    answer = ctypes.c_int()
    ctypes.CDLL(None).prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), 0, 0, 0)
    return bool(answer.value)


def _suspects(box: Sandbox) -> dict[str, tuple[int, ...]]:
    seen = observe(Live(environment={**os.environ, **box.environment}), ["malleable"])
    return suspects(Ground(seen, Settings(mode=Mode("on"))))


def _files(box: Sandbox) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in (box.dir / "etc").iterdir() if path.is_file()}


def _slurm(box: Sandbox) -> dict[str, list[str]]:
    return {
        kind: [VOLATILE.sub("", line) for line in box.run(argv, check=False).stdout.splitlines()]
        for kind, argv in ASKED.items()
    }


def _difference(kind: str, before: list[str], now: list[str]) -> list[str]:
    come = [f"new {kind}: {line}" for line in now if line not in before]
    return come + [f"no more {kind}: {line}" for line in before if line not in now]
