"""`malleable wish ID N`: set the number of nodes, GPUs or tasks that a job of yours wants now."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from slurm_hooks.commands.console import add_command, live, out, whole_job
from slurm_hooks.errors import UsageError
from slurm_hooks.model.moments import sized
from slurm_hooks.protocol.comment import MOST_NODES
from slurm_hooks.report.json_data import json_text
from slurm_hooks.report.tables import print_lines
from slurm_hooks.settings.file import load
from slurm_hooks.slurm.gateway import read_job
from slurm_hooks.slurm.wish import wish

if TYPE_CHECKING:
    from slurm_hooks.commands.console import Commands


def add(commands: Commands) -> None:
    """Add this command to the parser."""
    text = "set the largest size that a pool wants now (in a job: malleable wish N)"
    parser = add_command(commands, "wish", _wish, text, "optional")
    parser.add_argument(
        "nodes", metavar="N", type=_nodes, help="nodes, GPUs or tasks wanted; 0 stops all workers"
    )


def _nodes(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 5 or int(text) > MOST_NODES:
        raise argparse.ArgumentTypeError(f"must be from 0 to {MOST_NODES}, not {text[:20]!r}")
    return int(text)


def _wish(arguments: argparse.Namespace) -> int:
    if arguments.job is None:
        raise UsageError("this is not a fragment of a malleable job: malleable wish JOBID N")
    settings, job_id = load(arguments.settings), whole_job(arguments.job, "wish")
    port = live(settings)
    job = read_job(port, settings.site.partitions, job_id)
    written, unit = wish(port, job, arguments.nodes, time.time()), job.request.size_unit
    if arguments.json:
        data = {"job_id": job_id, "nodes": written.nodes, "unit": unit, "at": written.at}
        print(json_text(data))
    else:
        cut = f", which is its MAX ({arguments.nodes} is more)"
        end = cut if written.nodes < arguments.nodes else ""
        print_lines(out, [f"job {job_id}: wishes for at most {sized(written.nodes, unit)}{end}"])
    return 0
