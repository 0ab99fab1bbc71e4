"""`malleable wish ID N`: how many nodes, GPUs or tasks a job of yours wants now."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from slurm_hooks.commands.console import add_command, live, out, whole_job
from slurm_hooks.errors import UsageError
from slurm_hooks.model.plural import sized
from slurm_hooks.report.json_data import json_text
from slurm_hooks.report.tables import print_lines
from slurm_hooks.settings.file import load
from slurm_hooks.tick.wish import job_to_wish, wish
from slurm_hooks.words.comment import MOST_NODES

if TYPE_CHECKING:
    from slurm_hooks.commands.console import Commands


def add(commands: Commands) -> None:
    """Add this command to the parser."""
    text = "the size that a pool wants now, at most (in a job: malleable wish N)"
    parser = add_command(commands, "wish", _wish, text, "optional")
    parser.add_argument(
        "nodes", metavar="N", type=_nodes, help="nodes, GPUs or tasks wanted; 0 pauses it"
    )


def _nodes(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 5 or int(text) > MOST_NODES:
        raise argparse.ArgumentTypeError(f"{text[:20]!r}: give 0 to {MOST_NODES}")
    return int(text)


def _wish(arguments: argparse.Namespace) -> int:
    if arguments.job is None:
        raise UsageError("this is no fragment of a malleable job: malleable wish JOBID N")
    settings, job_id = load(arguments.settings), whole_job(arguments.job, "wish")
    port = live(settings)
    job = job_to_wish(port, tuple(settings.site.partitions), job_id)
    told, unit = wish(port, job, arguments.nodes, time.time()), job.request.size_unit
    if arguments.json:
        print(json_text({"job_id": job_id, "nodes": told.nodes, "unit": unit, "at": told.at}))
    else:
        cut = f", which is its MAX ({arguments.nodes} is more)"
        end = cut if told.nodes < arguments.nodes else ""
        print_lines(out, [f"job {job_id}: wishes for {sized(told.nodes, unit)} at most{end}"])
    return 0
