"""A worker that is started the ordinary way, and is observed as well.

It is the program that torchrun wanted, started by a few words of ours instead of by the
interpreter. A `sitecustomize` would hide the site's own. A program that is not plain Python starts
unchanged.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping

from slurm_hooks.elastic.engines.torchrun.warm_worker import AT_LAST, become
from slurm_hooks.elastic.script import observation

# Modules in the current directory are the program's, not ours.
PROGRAM = (
    "import sys; own = [] if getattr(sys.flags, 'safe_path', False) else [sys.path.pop(0)]; "
    "from slurm_hooks.elastic.engines.torchrun import cold_worker; sys.path[:0] = own"
    "\ntry: cold_worker.start()()\n" + AT_LAST
)
_NAMES = ("sys", "own", "cold_worker")


def start() -> Callable[[], object]:
    """Observe this process, and make it the program in its arguments. The caller then calls the
    result.
    """
    observation.begin(os.environ)
    names = sys.modules["__main__"].__dict__
    for name in _NAMES:
        del names[name]
    return become(sys.argv[1:])


def observed(args: tuple[str, ...], env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the command of a worker, changed so that the worker is observed. The command stays
    unchanged if this is not wanted or does not fit.
    """
    program = args[2:]
    if args[:2] != (sys.executable, "-u") or not program or not observation.is_wanted(env):
        return args
    if env.get("PYTHONPATH") != os.environ.get("PYTHONPATH"):
        return args  # it may not find us
    is_script = program[0].endswith(".py") and os.path.isfile(program[0])
    return (*args[:2], "-c", PROGRAM, *program) if is_script or program[0] == "-m" else args
