"""`malleable map --max 64 -- program {}`: run a program over many inputs, with a pool."""

from __future__ import annotations

import argparse
import secrets
import time
from collections.abc import Sequence
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from slurm_hooks.commands.console import err, out
from slurm_hooks.commands.following import (
    check_options,
    count_elements,
    is_terminal,
    listen,
    most,
    parser_of,
    reach,
    size,
    sizes,
    sleep,
    split,
    stopped,
    submitted,
    undisturbed,
)
from slurm_hooks.errors import Exit, UsageError
from slurm_hooks.model.moments import plural
from slurm_hooks.protocol import map_directory
from slurm_hooks.protocol.map_directory import count, failures, is_over, jobs_of, put_back
from slurm_hooks.report.json_data import json_text
from slurm_hooks.report.tables import print_lines
from slurm_hooks.settings.file import load
from slurm_hooks.settings.values import Settings
from slurm_hooks.slurm.live import Port
from slurm_hooks.slurm.pools import Pool, has_option

TEXT = "Run a program once for each input, on idle nodes, and follow the tasks."
COUNT_S, ASK_S = 1.0, 5.0  # between counts of the directory, and between questions to Slurm
LISTED = 20  # failures


def main(words: Sequence[str]) -> int:
    """Run the command. The exit code is 0 if every task has ended with 0, else 1. Raises
    MalleableError."""
    try:
        return _map(words)
    except map_directory.MapError as error:
        raise UsageError(str(error)) from error


def _map(words: Sequence[str]) -> int:
    ours, rest = split(words)
    arguments, options = make_parser().parse_known_args(ours)
    check_options(options)
    at = rest.index(":::") if ":::" in rest else len(rest)
    name = f"map-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    place = (arguments.dir or Path(".malleable") / name).absolute()
    settings = load(arguments.settings)
    port, job_id = reach(settings), None
    listen(arguments)
    try:
        # If two start at once, the second only follows.
        with map_directory.turn(place):
            map_directory.prepare(
                place,
                rest[:at],
                rest[at + 1 :] if at < len(rest) else None,
                arguments.inputs,
                arguments.retries,
                arguments.keep_going,
            )
            job_id = _at_work(port, place)
            if job_id is None or is_over(place, count(place)):
                put_back(place)
                with undisturbed():
                    job_id = _submitted(port, place, arguments, options)
        if arguments.detach:
            data = {"job_id": job_id, "directory": str(place)}
            print(json_text(data) if arguments.json else f"{job_id} {place}")
            return 0
        if job_id:
            _follow(port, settings, place, job_id, is_quiet=arguments.json)
    except KeyboardInterrupt:
        if not job_id:
            raise
        print_lines(err, [f"to continue: the same command with --dir {place}"])
        return stopped(port, job_id, arguments.cancel_on_exit)
    return _summary(place, job_id, arguments.json)


def make_parser() -> argparse.ArgumentParser:
    """The command line. Unknown options go to sbatch."""
    parser = parser_of("map", TEXT)
    parser.usage = (
        "malleable map --max N [--inputs FILE] [options] [sbatch's options]\n"
        "                     -- PROGRAM [{}] [::: INPUT...]"
    )
    parser.add_argument(
        "--max", type=most, required=True, metavar="N", help="use at most N workers"
    )
    parser.add_argument(
        "--inputs", metavar="FILE", help="read an input from each line (-: standard input)"
    )
    parser.add_argument(
        "--retries",
        type=size,
        default=2,
        metavar="N",
        help="repeat a failed task up to N times (default %(default)s)",
    )
    parser.add_argument(
        "--keep-going", action="store_true", help="continue with other tasks after a failure"
    )
    parser.add_argument(
        "--dir",
        type=Path,
        metavar="DIR",
        help="keep queue and logs in DIR; if it has a map, continue that map",
    )
    return parser


def _at_work(port: Port, place: Path) -> int | None:
    """The job that still works on the map. Raises UsageError if Slurm does not answer."""
    known = jobs_of(place)[-1:]
    states = count_elements(port, known[0]) if known else {}
    if states is None:
        raise UsageError(
            f"Slurm does not answer whether job {known[0]} still works on {place}: try again"
        )
    return known[0] if states else None


def _submitted(port: Port, place: Path, arguments: argparse.Namespace, options: list[str]) -> int:
    """Submit a job with at most as many workers as tasks. Return its id, 0 without a task."""
    left = count(place).left
    if not left:
        return 0
    name = str(place).replace("%", "%%")
    own = [] if has_option(options, "--output", "-o") else [f"--output={name}/worker-%a.log"]
    own += [] if has_option(options, "--open-mode") else ["--open-mode=append"]
    own += [] if has_option(options, "--job-name", "-J") else ["--job-name=map"]
    worker = ("malleable", "map-worker", str(place))
    # Tasks ignore SIGURG, so they continue until the notice is nearly over.
    most_now, flags = min(arguments.max, left), ("--signal=URG",)
    pool = Pool(worker, most_now, 0, flags, (*own, *options), arguments.unit)
    job_id = submitted(port, pool)
    map_directory.note_job(place, job_id)
    return job_id


def _follow(port: Port, settings: Settings, place: Path, job_id: int, is_quiet: bool) -> None:
    """Print progress until all tasks have ended, or the job is over."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    before, next_ask, size_now = "", 0.0, "submitted"
    is_bar = is_terminal() and not is_quiet
    with Progress(*columns, TimeElapsedColumn(), console=out, disable=not is_bar) as progress:
        bar = progress.add_task(f"job {job_id}")
        while True:
            began = time.monotonic()
            tasks = count(place)
            if is_over(place, tasks):
                return
            pause_s = max(COUNT_S, 4 * (time.monotonic() - began))  # many tasks: count less often
            if time.monotonic() >= next_ask:
                next_ask = time.monotonic() + ASK_S
                states = count_elements(port, job_id)
                if states is not None and not states:
                    return
                size_now = size_now if states is None else sizes(settings, states)
            workers = "" if tasks.run else f"; workers: {size_now}"  # tasks run: so do workers
            text = f"job {job_id}: {tasks.shown}{workers}"
            ended = tasks.done + tasks.failed
            progress.update(bar, total=tasks.total, completed=ended, description=text)
            if not is_bar and not is_quiet and text != before:
                print_lines(out, [text])
                before = text
            sleep(pause_s)


def _summary(place: Path, job_id: int, is_json: bool) -> int:
    tasks, failed = count(place), failures(place)
    lost = map_directory.lost(place, tasks)
    is_well = not failed and not tasks.left and not lost
    if is_json:
        data = {"job_id": job_id, "directory": str(place), "tasks": tasks}
        print(json_text({**data, "failures": failed}))
        return Exit.DONE if is_well else Exit.FOUND
    print_lines(out, [f"{tasks.shown}; their output is in {place}/logs"])
    for task in failed[:LISTED]:
        print_lines(err, [f"task {task['task']}: exit code {task['exit_code']}: {task['log']}"])
    print_lines(err, map_directory.cut_off(place)[:LISTED])
    if len(failed) > LISTED:
        print_lines(err, [f"and {len(failed) - LISTED} more: see {place}/results"])
    if lost:
        print_lines(
            err, [f"{place}/tasks lacks the files of {plural(lost, 'task')}: use a new --dir"]
        )
    elif not is_well:
        print_lines(
            err, [f"to run the remaining and failed tasks: malleable map --dir {place} ..."]
        )
    return Exit.DONE if is_well else Exit.FOUND
