"""The command `malleable` that needs only Python: `run`, `wish` and `finish` in a job, `submit`
and `wait` anywhere. Other subcommands are passed on to the next `malleable` in PATH, if this node
has it. `status` and `explain` know the user's own jobs without it.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Optional

from slurm_hooks.elastic.agent.options import OptionError, engine
from slurm_hooks.elastic.batch.own_element import OwnElement
from slurm_hooks.elastic.batch.standing import element
from slurm_hooks.elastic.batch.wish import WishError, write_wish
from slurm_hooks.elastic.engines.gang import run as gang
from slurm_hooks.elastic.engines.pool import map_worker
from slurm_hooks.elastic.engines.pool import run as pool
from slurm_hooks.elastic.log import say
from slurm_hooks.elastic.selfservice import element as selfservice_element
from slurm_hooks.elastic.selfservice.mapping import run_map
from slurm_hooks.elastic.selfservice.status import has_jobs, list_elements, list_jobs
from slurm_hooks.elastic.selfservice.submit import submit
from slurm_hooks.elastic.selfservice.wait import wait
from slurm_hooks.elastic.signals import SignalListener

USAGE = """\
Where the site has installed nothing:
  malleable submit ... SCRIPT         submit a malleable job
  malleable map --max N -- PROGRAM    run a program over many inputs
  malleable status                    list your jobs that `malleable submit` made
  malleable explain JOBID             list the elements of such a job
Anywhere:
  malleable wait JOBID                wait for the end of a malleable job
In a job:
  malleable run -- COMMAND [ARG...]   run COMMAND as the work of this fragment
  malleable wish N                    let this job have at most N nodes from now on
  malleable finish                    end this pool, with all its workers: its work is done
"""
JOB_PATH = Path(__file__).resolve().parents[2]
WRONG, MISSING = os.EX_USAGE, 127


def run(words: Sequence[str], env: Mapping[str, str]) -> int:
    """Run the command as the engine of this job does. Outside of a job the command would not be
    malleable, so it is refused.
    """
    if not env.get("MALLEABLE_JOB_ID"):
        say("this is no malleable job: submit the script with --malleable=MIN-MAX")
        return WRONG
    row = engine(env)
    if row is None:
        name = env.get("MALLEABLE_ENGINE", "")
        say(
            f"the engine {name!r} of this job is not configured here; ask the administrator to run "
            "`malleable doctor`"
        )
        return WRONG
    is_gang = row.is_gang and not row.by_torchrun
    return gang.main(words, env) if is_gang else pool.main(words, env)


def wish(words: Sequence[str], env: Mapping[str, str]) -> int:
    """`wish N`. The form `wish --job` belongs to the command outside of a job."""
    if words and words[0].startswith("--job"):
        return pass_on(["wish", *words], env)
    if len(words) != 1:
        say("give one number: malleable wish N")
        return WRONG
    try:
        nodes = write_wish(env, words[0])
    except WishError as error:
        say(str(error))
        return WRONG
    if str(nodes) != words[0].lstrip("0") and nodes:
        say(f"{words[0]} is above the MAX of this job, so it now wants {nodes}")
    return 0


def finish(words: Sequence[str], env: Mapping[str, str]) -> int:
    """`finish`, in a pool. A gang has finished when its command has."""
    row = engine(env)
    if words or not element(env) or row is None or not row.is_pool:
        say("`malleable finish` works only in a pool (engine=pool), and takes no arguments")
        return WRONG
    as_first = {**env, "SLURM_PROCID": ""}  # the user says so, whichever process it is
    OwnElement(as_first, SignalListener()).report_finished()
    return 0


def pass_on(words: Sequence[str], env: Mapping[str, str]) -> int:
    """Become the next `malleable` in PATH, with its own modules. Returns if PATH has no other.

    Our own folder leaves its PATH, since the next command may belong to another job path, which
    passes on too.
    """
    command = _next(env)
    if command is None:
        sys.stderr.write(USAGE)
        if words:
            say(
                f"`malleable {words[0]}` is not installed on this node; run it on a login node of "
                "a site that has the software"
            )
        return WRONG if not words else MISSING
    modules = [
        p for p in env.get("PYTHONPATH", "").split(":") if p and Path(p).resolve() != JOB_PATH
    ]
    known = {**env, "PATH": _other_path(env), "PYTHONPATH": ":".join(modules)}
    sys.stdout.flush()
    os.execve(command, [command, *words], known)


def _next(env: Mapping[str, str]) -> Optional[str]:
    """Return the next `malleable` in PATH."""
    return shutil.which("malleable", path=_other_path(env))


def _other_path(env: Mapping[str, str]) -> str:
    """Return PATH without the folder of this command, which a wheel puts elsewhere."""
    own = {JOB_PATH / "bin", Path(sys.argv[0]).resolve().parent}
    return ":".join(p for p in env.get("PATH", "").split(":") if p and Path(p).resolve() not in own)


def status(words: Sequence[str], env: Mapping[str, str]) -> int:
    """List the user's jobs that `malleable submit` made, and what the next `malleable` in PATH
    lists, if there is one.
    """
    if _next(env) is None:
        return list_jobs(words)
    if not words and has_jobs():
        list_jobs(words)
    return pass_on(["status", *words], env)


def explain(words: Sequence[str], env: Mapping[str, str]) -> int:
    """The next `malleable` in PATH knows all jobs but the user's that `malleable submit` made."""
    if _next(env) is None or (len(words) == 1 and has_jobs(words[0])):
        return list_elements(words)
    return pass_on(["explain", *words], env)


def map_(words: Sequence[str], env: Mapping[str, str]) -> int:
    """The next `malleable` in PATH belongs to a site that has it."""
    return run_map(words, env) if _next(env) is None else pass_on(["map", *words], env)


COMMANDS: Mapping[str, Callable[[Sequence[str], Mapping[str, str]], int]] = {
    "run": run,
    "wish": wish,
    "finish": finish,
    "map-worker": map_worker.main,
    "submit": submit,
    "map": map_,
    "wait": wait,
    "status": status,
    "explain": explain,
    "element": selfservice_element.main,
}


def main(given: Optional[Sequence[str]] = None) -> int:
    """Return the exit code."""
    argv = sys.argv[1:] if given is None else given
    if argv[:1] in (["--help"], ["-h"]):
        sys.stdout.write(USAGE)
        return 0
    env = dict(os.environ)
    command = COMMANDS.get(argv[0]) if argv else None
    try:
        return command(argv[1:], env) if command else pass_on(argv, env)
    except OptionError as error:
        say(str(error))
        return WRONG


if __name__ == "__main__":
    sys.exit(main())
