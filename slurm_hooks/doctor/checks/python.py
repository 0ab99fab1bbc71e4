"""Check a Python environment of users: its version, torch, and the entry point for torchrun."""

from __future__ import annotations

import re
from collections.abc import Iterator

from slurm_hooks.doctor.facts import Facts, known
from slurm_hooks.doctor.finding import Category, Check, Finding, error, warning

OLDEST_PYTHON = (3, 9)
OLDEST_TORCH = (2, 6)
TRIED_TORCH = (2, 13)
HANDLER = "malleable"


def _version(facts: Facts) -> Iterator[Finding]:
    seen = known(facts.python)
    if seen.version < OLDEST_PYTHON:
        yield error(
            f"{seen.path} is Python {_shown(seen.version)}", advice="use Python 3.9 or newer"
        )


def _torch(facts: Facts) -> Iterator[Finding]:
    seen = known(facts.python)
    if not seen.torch:
        yield error(
            f"{seen.path} has no torch",
            advice="activate the right environment, or install torch 2.6 or newer in it; only jobs "
            "with torchrun need it",
        )
        return
    version = tuple(int(n) for n in re.findall(r"\d+", seen.torch)[:2])
    if version < OLDEST_TORCH:
        yield error(
            f"{seen.path} has torch {seen.torch}", advice="install torch 2.6 or newer in it"
        )
    elif version > TRIED_TORCH:
        yield warning(
            f"{seen.path} has torch {seen.torch}, newer than the newest that was tested "
            f"({_shown(TRIED_TORCH)})",
            advice="test it with a short job first",
        )


def _rendezvous(facts: Facts) -> Iterator[Finding]:
    seen = known(facts.python)
    if seen.torch and not seen.has_rendezvous:
        yield error(
            f"{seen.path}: torch {seen.torch} has no torch.distributed.elastic",
            advice="this build of torch lacks distributed; install another build",
        )
    if HANDLER not in seen.handlers:
        yield error(
            f"with {seen.job_path or '(no job path)'} on its path, {seen.path} finds no "
            f"torchrun.handlers entry point `{HANDLER}`",
            advice="install the package slurm-malleable-client, or correct pythonpath= in "
            "plugstack.conf",
        )


def _shown(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


TABLE = (
    Check(
        "python-version",
        Category.PYTHON,
        "Python is 3.9 or newer",
        "The code that runs in a job needs the standard library of 3.9.",
        _version,
    ),
    Check(
        "torch-version",
        Category.PYTHON,
        "torch is 2.6 or newer",
        "torchrun finds rendezvous backends of other packages since torch 2.6.",
        _torch,
    ),
    Check(
        "rendezvous",
        Category.PYTHON,
        "torchrun finds our rendezvous in this environment",
        "torchrun reads the entry points of installed packages. The job path is such a package.",
        _rendezvous,
    ),
)
