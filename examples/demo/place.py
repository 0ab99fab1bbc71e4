"""Choose where the demo runs and as which user: two sandboxes, their settings, the submitting user.

It does not know the timetable's jobs.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from demo.scenario import KILL_WAIT_S, TICK_S, Scenario
from demo.work import Work
from slurm_hooks.errors import MalleableError, UsageError
from slurm_hooks.sandbox import Sandbox
from slurm_hooks.sandbox.project import plain_spec, project_spec

CPUS_PER_GPU = 2
TREE = Path(__file__).resolve().parents[2]
ENGINES_PYTHON = TREE / "build" / "engines" / "bin" / "python"
WHEEL, INSTALL_S = "slurm-malleable-user", 300


@contextlib.contextmanager
def sandboxes(scenario: Scenario, is_kept: Callable[[], bool]) -> Iterator[tuple[Sandbox, Sandbox]]:
    """The sandbox with the malleable job and the sandbox without, both with the scenario's nodes.

    They are taken down however this ends. The first stays if `is_kept()` then says so.
    """
    shape = {"gpus": scenario.gpus, "cpus": CPUS_PER_GPU * scenario.gpus} if scenario.gpus else {}
    if scenario.is_plain:
        spec = plain_spec(nodes=scenario.nodes, kill_wait_s=KILL_WAIT_S)
    else:
        spec = project_spec(nodes=scenario.nodes, settings_text=scenario.settings, **shape)
    with contextlib.ExitStack() as stack:
        main = Sandbox.up(spec)
        stack.callback(lambda: None if is_kept() else main.down())
        alone = Sandbox.up(spec)
        stack.callback(alone.down)
        if not scenario.is_plain:  # they are read again at every tick
            main.settings.write_text(_settings(scenario, main))
        yield main, alone


def _settings(scenario: Scenario, box: Sandbox) -> str:
    """The scenario's settings, completed with values that are known once the sandbox is there."""
    record = box.record
    return f"""{scenario.settings}
operators = ["{record.layout.user}"]

[tick]
lock = "{record.layout.run}/tick.lock"
slurm_bin = "{record.slurm.bin_dir}"
state_dir = "{record.layout.run}/malleable"
every_s = {TICK_S}
"""


def install_wheel(where: Path) -> None:
    """Install the user's wheel, and nothing else, in an environment in this directory. Raises
    UsageError.
    """
    python, home = str(where / "bin" / "python"), str(where.parent)
    install = ["install", "--quiet", "--no-index", f"--find-links={home}", WHEEL]
    steps = (
        [sys.executable, "packaging/wheel.py", home],
        [sys.executable, "-m", "venv", "--without-pip", str(where)],
        [sys.executable, "-m", "pip", "--python", python, *install],
    )
    for step in steps:
        done = subprocess.run(
            step,
            cwd=TREE,
            env={**os.environ, "PYTHONPATH": str(TREE)},
            capture_output=True,
            text=True,
            timeout=INSTALL_S,
            check=False,
        )
        if done.returncode:
            raise UsageError(f"{' '.join(step)} failed:\n{done.stderr[-2000:]}")


@dataclass(frozen=True)
class Submitter:
    """The user that submits the malleable job (`None`: the current user), and the Python in PATH.
    `in_words` says the same."""

    user: Optional[str]
    python: Path
    in_words: str


def submitter(work: Work) -> Submitter:
    """The user that can run this work: `nobody`, if we are root and `nobody` can run a Python with
    its modules.

    The trial also reads the modules from the disk before the load begins. It raises UsageError,
    which names the packages to install, if we cannot run the work either.
    """
    absent = [name for name in work.programs if shutil.which(name) is None]
    if absent:
        raise UsageError(f"engine {work.engine} needs {', '.join(absent)} in PATH; install it.")
    me = pwd.getpwuid(os.geteuid()).pw_name
    is_root = os.geteuid() == 0
    for python in _pythons() if is_root else ():
        if _can_import("nobody", python, work.modules):
            in_words = "user nobody, who has no rights, submits it"
            return Submitter("nobody", python, in_words)
    for python in _pythons():
        if _can_import(None, python, work.modules):
            why = f": user nobody cannot run {python}" if is_root else ""
            return Submitter(None, python, f"user {me} submits it{why}")
    raise UsageError(_how_to_get(work))


def _pythons() -> list[Path]:
    """The Python that runs the demo, then a Python for programs of other engines."""
    other = os.environ.get("ENGINES_PYTHON")
    pythons = [Path(sys.executable), Path(other) if other else ENGINES_PYTHON]
    return [python for python in pythons if python.exists()]


def _how_to_get(work: Work) -> str:
    names = ", ".join(work.modules)
    if work.engine in ("torchrun", "torchft"):
        return f"{sys.executable} cannot import {names}; run `make demo`."
    return (
        f"engine {work.engine} needs a Python with {names}, which neither {sys.executable} nor "
        f"{os.environ.get('ENGINES_PYTHON') or ENGINES_PYTHON} is: name one that has them in "
        "ENGINES_PYTHON, or let `make test-engines` make the latter (3 GB)."
    )


def _can_import(user: Optional[str], python: Path, modules: Sequence[str]) -> bool:
    """Tell whether this user (`None`: the current user) can run a Python with these modules."""
    try:
        account = None if user is None else pwd.getpwnam(user)
        identity = _identity(account) if account else {}
        done = subprocess.run(
            [str(python), "-c", "; ".join(f"import {name}" for name in modules)],
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
    """The version as Slurm prints it."""
    try:
        return box.run(["sinfo", "--version"]).stdout.split()[-1]
    except (MalleableError, IndexError):
        return "unknown"


def about(box: Sandbox) -> dict[str, Any]:
    """The time and place for report.json."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {
        "slurm_version": slurm_version(box),
        "date": now,
        "machine": {"cores": os.cpu_count()},
    }
