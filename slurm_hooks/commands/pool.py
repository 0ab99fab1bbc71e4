"""`malleable pool --max 16 -- COMMAND`: submit a pool of workers, and follow it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from slurm_hooks.commands.console import out
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
from slurm_hooks.errors import UsageError
from slurm_hooks.report.json_data import json_text
from slurm_hooks.report.tables import print_lines
from slurm_hooks.settings.file import load
from slurm_hooks.settings.values import Settings
from slurm_hooks.slurm.live import Port
from slurm_hooks.slurm.pools import Pool, has_option

EVERY_S = 5.0
TEXT = "Submit a pool with a worker on each idle node, and follow it."


def main(words: Sequence[str]) -> int:
    """Run the command, and return its exit code. Raises MalleableError."""
    ours, command = split(words)
    arguments, options = make_parser().parse_known_args(ours)
    check_options(options)
    if arguments.min > arguments.max:
        raise UsageError(f"--min {arguments.min} is more than --max {arguments.max}")
    if not command:
        raise UsageError("give the worker behind --: malleable pool --max 16 -- dask worker ...")
    flags = [f"--signal={arguments.signal}"] if arguments.signal else []
    flags += [f"--wish-file={arguments.wish_file}"] if arguments.wish_file else []
    settings = load(arguments.settings)
    port = reach(settings)
    if not has_option(options, "--job-name", "-J"):
        options = [f"--job-name={Path(command[0]).name}", *options]
    pool = Pool(
        tuple(command),
        arguments.max,
        arguments.min,
        tuple(flags),
        tuple(options),
        arguments.unit,
    )
    listen(arguments)
    job_id = 0
    try:
        with undisturbed():
            job_id = submitted(port, pool)
        if arguments.json:
            print(json_text({"job_id": job_id}), flush=True)
        elif arguments.detach:
            print(job_id)
        if not arguments.detach:
            _follow(port, settings, job_id, is_quiet=arguments.json)
    except KeyboardInterrupt:
        if not job_id:
            raise
        return stopped(port, job_id, arguments.cancel_on_exit)
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The command line. Unknown options go to sbatch."""
    parser = parser_of("pool", TEXT)
    parser.usage = "malleable pool --max N [options] [sbatch's options] -- COMMAND..."
    parser.add_argument(
        "--max", type=most, required=True, metavar="N", help="use at most N workers"
    )
    parser.add_argument(
        "--min",
        type=size,
        default=0,
        metavar="N",
        help="start with at least N workers (default %(default)s)",
    )
    parser.add_argument(
        "--signal", metavar="NAME", help="send this signal to a worker as notice (default TERM)"
    )
    parser.add_argument(
        "--wish-file", metavar="FILE", help="read the number of workers wanted from FILE"
    )
    return parser


def _follow(port: Port, settings: Settings, job_id: int, is_quiet: bool) -> None:
    """Print a line for each change, or update a line on a terminal, until the job is over."""
    before = ""
    is_live = is_terminal() and not is_quiet
    with out.status(f"job {job_id}: submitted") if is_live else nullcontext() as line:
        while (states := count_elements(port, job_id)) is None or states:
            text = _progress(job_id, settings, states)
            if line is not None:
                line.update(text)
            elif not is_quiet and text != before:
                print_lines(out, [text])
            before = text
            sleep(EVERY_S)
    if not is_quiet:
        print_lines(out, [f"job {job_id}: ended"])


def _progress(job_id: int, settings: Settings, states: Mapping[str, int] | None) -> str:
    return f"job {job_id}: {'Slurm does not answer' if states is None else sizes(settings, states)}"
