"""`malleable map` where nothing is installed: a program over many inputs, with a pool that
`malleable submit` makes.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import secrets
import shlex
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Optional

from slurm_hooks.elastic.batch.command import ask
from slurm_hooks.elastic.selfservice.status import FORMAT, elements
from slurm_hooks.elastic.selfservice.submit import submit
from slurm_hooks.protocol import map_directory
from slurm_hooks.protocol.map_directory import MapError, count, is_over

USAGE = """\
malleable map --max=N --partition=NAME [--inputs=FILE] [options] [sbatch's options]
                     -- PROGRAM [{}] [::: INPUT...]"""
COUNT_S, ASK_S = 2.0, 30.0  # between counts of the directory, and between questions to Slurm
LISTED = 20  # failures


class NotSubmittedError(Exception):
    """`malleable submit` has said why."""


def run_map(words: Sequence[str], env: Mapping[str, str]) -> int:
    """Make the map, submit its workers and follow the tasks. Return 0 if all tasks have ended with
    0, else 1, and 64 for a mistake.
    """
    at = list(words).index("--") if "--" in words else len(words)
    asked, options = _parser().parse_known_args(words[:at])
    name = f"map-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    place = (asked.dir or Path(".malleable") / name).absolute()
    try:
        job = _job(place, asked, options, words[at + 1 :], env)
        if asked.detach:
            print(f"{job} {place}")
            return 0
        _follow(place, job)
        return _summary(place)
    except KeyboardInterrupt:
        sys.stderr.write(f"the job continues; to follow it: the same command with --dir={place}\n")
        return 130
    except NotSubmittedError:
        return os.EX_USAGE
    except (MapError, OSError) as error:
        sys.stderr.write(f"malleable map: {error}\n")
        return os.EX_USAGE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="malleable map", usage=USAGE, allow_abbrev=False)
    parser.add_argument("--max", type=int, required=True, help="use at most N workers")
    parser.add_argument("--inputs", metavar="FILE", help="read an input from each line (-: stdin)")
    parser.add_argument("--retries", type=int, default=2, help="repeat a failed task (default 2)")
    parser.add_argument("--keep-going", action="store_true", help="continue after a failure")
    parser.add_argument("--dir", type=Path, help="keep queue and logs there; continues its map")
    parser.add_argument("--unit", default="", help="gpu: start a worker on each GPU")
    parser.add_argument("--detach", action="store_true", help="submit, print the id, and return")
    return parser


def _job(
    place: Path,
    asked: argparse.Namespace,
    options: Sequence[str],
    rest: Sequence[str],
    env: Mapping[str, str],
) -> int:
    """Return the job that works on the map, 0 if no task is left. Raises MapError,
    NotSubmittedError, OSError.
    """
    at = list(rest).index(":::") if ":::" in rest else len(rest)
    given = rest[at + 1 :] if at < len(rest) else None
    with map_directory.turn(place):
        map_directory.prepare(
            place, rest[:at], given, asked.inputs, asked.retries, asked.keep_going
        )
        known = map_directory.jobs_of(place)[-1:]
        states = _states(known[0]) if known else {}
        if states is None:
            raise MapError(
                f"Slurm does not answer whether job {known[0]} still works on {place}: try again"
            )
        if states and not is_over(place, count(place)):
            return known[0]
        map_directory.put_back(place)
        left = count(place).left
        if not left:
            return 0
        job = _submitted(place, min(asked.max, left), asked.unit, options, env)
        map_directory.note_job(place, job)
        return job


def _submitted(
    place: Path, most: int, unit: str, options: Sequence[str], env: Mapping[str, str]
) -> int:
    script = place / "worker.sh"
    # Tasks ignore SIGURG, so they continue until the notice is nearly over.
    worker = shlex.join(["malleable", "map-worker", str(place)])
    script.write_text(f"#!/bin/sh\nexec malleable run --signal=URG -- {worker}\n")
    request = f"--malleable=0-{most}{f',unit={unit}' if unit else ''},engine=pool"
    log = str(place).replace("%", "%%")
    own = [request, "--job-name=map", f"--output={log}/worker-%a.log", "--parsable"]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = submit([*own, *options, str(script)], env)
    if code:
        sys.stderr.write(f"{place} has the tasks: add --dir={place} to the mended command\n")
        raise NotSubmittedError
    job = said.getvalue().strip().partition(";")[0]
    if not job.isdigit():
        raise MapError(f"sbatch answered {job[:80]!r} in place of a job's number; look at `squeue`")
    return int(job)


def _states(job: int) -> Optional[Mapping[str, int]]:
    """Return the number of elements in each state, `None` if Slurm does not answer."""
    said, why = ask("squeue", "--noheader", "--array", "--me", f"--format={FORMAT}")
    own = (element for element in elements(said) if element.job == str(job))
    return None if why else Counter(element.state for element in own)


def _follow(place: Path, job: int) -> None:
    """Print progress until all tasks have ended, or the job is over."""
    before, next_ask = "", 0.0
    while not is_over(place, tasks := count(place)):
        if time.monotonic() >= next_ask:
            next_ask = time.monotonic() + ASK_S
            if _states(job) == {}:
                return
        if tasks.shown != before:
            print(f"job {job}: {tasks.shown}", flush=True)
        before = tasks.shown
        time.sleep(COUNT_S)


def _summary(place: Path) -> int:
    tasks, failed = count(place), map_directory.failures(place)
    print(f"{tasks.shown}; their output is in {place}/logs")
    lines = [f"task {row['task']}: exit code {row['exit_code']}: {row['log']}" for row in failed]
    is_well = tasks.done == map_directory.read_order(place).tasks
    if not is_well:
        lines = [*lines[:LISTED], *map_directory.cut_off(place)[:LISTED]]
        lines.append(f"to run the remaining and failed tasks: malleable map --dir={place} ...")
        sys.stderr.write("".join(f"{line}\n" for line in lines))
    return 0 if is_well else 1
