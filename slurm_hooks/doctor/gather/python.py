"""Ask an interpreter about itself. Root never runs an interpreter that another user can write."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from slurm_hooks.doctor.facts import PythonSeen
from slurm_hooks.errors import UnreadableOutput, UsageError
from slurm_hooks.owned import is_open
from slurm_hooks.slurm.live import Live
from slurm_hooks.slurm.text import Command

LIMIT_S = 60.0  # an environment on a busy file system is slow at first
_PROBE = r"""
import json, os, sys
said = {"version": list(sys.version_info[:3]), "torch": "", "rendezvous": False, "handlers": []}
if sys.argv[1]:
    sys.path.insert(0, sys.argv[1])
try:
    from importlib import metadata, util
    points = metadata.entry_points()
    group = "torchrun.handlers"
    is_new = hasattr(points, "select")  # since Python 3.10
    chosen = points.select(group=group) if is_new else points.get(group, ())
    said["handlers"] = sorted({point.name for point in chosen})
    said["torch"] = metadata.version("torch")
    places = util.find_spec("torch").submodule_search_locations
    said["rendezvous"] = any(
        os.path.exists(os.path.join(p, "distributed", "elastic", "rendezvous")) for p in places
    )
except Exception:
    pass
print(json.dumps(said))
"""


def ask_python(named: str, job_path: str) -> PythonSeen:
    """The answers of an interpreter with the job path in front, without an import of torch.

    Raises UsageError without an interpreter, or if root would run a file that others can write.
    Raises UnreadableOutput for another answer, and the errors of Live.
    """
    path = shutil.which(named)
    if path is None:
        raise UsageError(f"{named} is not an interpreter that can be run here")
    path = os.path.abspath(path)
    if os.geteuid() == 0:
        _refuse_strange(Path(path))
    environment = {"PATH": "/usr/bin:/bin"} if os.geteuid() == 0 else None
    answer = Live(LIMIT_S, environment=environment).ask(
        Command((path, "-I", "-c", _PROBE, job_path))
    )
    try:
        said = json.loads(answer)
        return PythonSeen(
            path=path,
            version=tuple(said["version"]),
            torch=said["torch"],
            has_rendezvous=said["rendezvous"],
            handlers=tuple(said["handlers"]),
            job_path=job_path,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise UnreadableOutput(f"{path} said {answer[:200]!r}") from error


def _refuse_strange(path: Path) -> None:
    """Raises UsageError if a user other than root could change the program."""
    for part in _parts(path):
        status = part.lstat()
        is_strange = status.st_uid != 0 if part.is_symlink() else is_open(status, (0,))
        if is_strange:
            raise UsageError(
                f"{part} can be written by others than root, who runs this: run "
                "`malleable doctor --python` as the user of that environment"
            )


def _parts(path: Path) -> Iterator[Path]:
    """The interpreter, its link's target, the directories of its modules, and all above them."""
    ends = [path, path.resolve(), *path.parent.parent.glob("lib*/python3*/site-packages")]
    seen = {part for end in ends for part in (end, *end.parents)}
    if path.parent.parent.joinpath("pyvenv.cfg").exists():
        seen.add(path.parent.parent / "pyvenv.cfg")
    yield from sorted(seen)
