"""A worker that is started the ordinary way, and observed all the same.

It is the program that torchrun wanted, started by a few words of ours instead of by the
interpreter: a `sitecustomize` would do too, but hide the site's own. What is no plain Python
program is started as it is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping

from slurm_hooks.elastic.engines.torchrun.warm_worker import become
from slurm_hooks.elastic.script import observation

# What lies in the current directory is the program's, not ours.
PROGRAM = (
    "import sys; own = [] if getattr(sys.flags, 'safe_path', False) else [sys.path.pop(0)]; "
    "from slurm_hooks.elastic.engines.torchrun import cold_worker; sys.path[:0] = own; "
    "cold_worker.start()()"
)
_NAMES = ("sys", "own", "cold_worker")


def start() -> Callable[[], object]:
    """Observe this process, and make it the program in its arguments: what is left is to call
    the result."""
    observation.begin(os.environ)
    names = sys.modules["__main__"].__dict__
    for name in _NAMES:
        del names[name]
    return become(sys.argv[1:])


def observed(args: tuple[str, ...], env: Mapping[str, str]) -> tuple[str, ...]:
    """The command of a worker, changed so that it is observed; as it is if it is not wanted or
    would not fit."""
    program = args[2:]
    if args[:2] != (sys.executable, "-u") or not program or not observation.is_wanted(env):
        return args
    if env.get("PYTHONPATH") != os.environ.get("PYTHONPATH"):
        return args  # it may not find us
    is_script = program[0].endswith(".py") and os.path.isfile(program[0])
    return (*args[:2], "-c", PROGRAM, *program) if is_script or program[0] == "-m" else args
