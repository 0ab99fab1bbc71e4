"""Random changes of size in a row: `make bench-random BENCH_ARGS="--slurm --engine torchrun"`.

One training between 2 and 5 fragments goes through a seeded course of changes that does not
always wait until a change has taken effect: by hand on this host, or with --slurm by a real Slurm
and its ticks. Its model counts how often each sample was learnt and chains the batches of all
steps into one number, so that at the end every sample lost or learnt twice shows, and every step
left out, repeated or torn; its weight is compared with that of an undisturbed run of as many steps.

Shows progress; the last line is one JSON object. Exit code 1 if the job was lost or a sample was.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from random_course import Course, LostError, is_whole, travel, verdict
from random_here import course_here
from random_slurm import course_on_slurm
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

TOLD_EVERY = 10  # changes, where there is no terminal to show a bar


@contextlib.contextmanager
def chosen(options: argparse.Namespace) -> Iterator[tuple[Course, Path]]:
    """The course, and where its files are until it ends."""
    words = (options.engine, options.watch, options.seed, options.patience)
    if options.slurm:
        with course_on_slurm(*words) as found:
            yield found
        return
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rescale-")))
        yield stack.enter_context(course_here(work, *words)), work


def go(course: Course, changes: int, until: float, told: dict[str, object], say: Console) -> None:
    """The whole course, with a bar on a terminal, else with a line now and then. Raises
    LostError."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=say, transient=True) as bar:
        task = bar.add_task("starts", total=changes)
        for number, kind in travel(course, changes, until):
            told["changes_done"] = number
            bar.update(task, completed=number, description=kind)
            if number % TOLD_EVERY == 0 or number == changes:
                load = os.getloadavg()[0]
                say.print(f"{number} changes: {kind}; step {course.step()}, load {load:.0f}")


def run(options: argparse.Namespace, say: Console) -> dict[str, object]:
    """The whole course; what is known at its end."""
    began = time.monotonic()
    told: dict[str, object] = {**vars(options), "changes_done": 0, "jobs_lost": 0}
    del told["logs"], told["patience"], told["minutes"]
    with chosen(options) as (course, work):
        try:
            go(course, options.changes, began + 60 * options.minutes, told, say)
            told.update(verdict(course.outcome()))
        except LostError as lost:
            say.print(course.evidence(), f"lost: {lost}", sep="\n", markup=False)
            told.update(jobs_lost=1, why=str(lost))
        finally:
            if options.logs:
                shutil.copytree(work, options.logs, dirs_exist_ok=True)
        told.update(kinds=dict(course.told), steps_again=course.steps_again())
    told.update(seconds=round(time.monotonic() - began), load=round(os.getloadavg()[2], 1))
    return told


def arguments() -> argparse.Namespace:
    """What to run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--slurm", action="store_true", help="changes made by a real Slurm")
    parser.add_argument("--engine", choices=("torchrun", "torchft"), default="torchrun")
    parser.add_argument("--watch", action="store_true", help="nothing is saved in advance")
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    text = "no change after so many minutes"
    parser.add_argument("--minutes", type=float, default=math.inf, help=text)
    text = "seconds without a step after which the job counts as lost"
    parser.add_argument("--patience", type=float, default=90.0, help=text)
    parser.add_argument("--logs", type=Path, help="a directory that is to keep all files")
    options = parser.parse_args()
    if options.watch and options.engine != "torchrun":
        parser.error("--watch: groups of torchft take their state from each other")
    return options


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # everything started is ended
    options = arguments()
    say = Console(soft_wrap=True, highlight=False, width=None if sys.stdout.isatty() else 160)
    told = run(options, say)
    print(json.dumps({"benchmark": "random", **told}))
    return int(bool(told["jobs_lost"]) or not is_whole(told))


if __name__ == "__main__":
    sys.exit(main())
