"""Submitting a pool of workers, and asking how it goes, as commands."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurm_hooks.errors import UnreadableOutput
from slurm_hooks.slurm.text import Command

RUNNING = ("RUNNING", "CONFIGURING", "COMPLETING")


@dataclass(frozen=True)
class Pool:
    """`command` runs as a worker on each of up to `most` nodes; `flags` are for `malleable run`,
    `options` for sbatch. With the `unit` gpu or task the workers are on parts of nodes."""

    command: tuple[str, ...]
    most: int
    least: int = 0
    flags: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    unit: str = ""


def script(pool: Pool) -> str:
    """The batch script. The shell sees each word as it was given."""
    words = ("malleable", "run", *pool.flags, "--", *pool.command)
    return f"#!/bin/sh\nexec {shlex.join(words)}\n"


def submit(pool: Pool) -> Command:
    """Submits it; prints its id."""
    unit = f",unit={pool.unit}" if pool.unit else ""
    request = f"--malleable={pool.least}-{pool.most}{unit},engine=pool"
    return Command(("sbatch", "--parsable", request, *pool.options), script(pool))


def read_id(text: str) -> int:
    """From what `sbatch --parsable` prints; with a cluster's name behind it. Raises
    UnreadableOutput."""
    found = re.match(r"(\d{1,18})(?:;|$)", text.strip().splitlines()[-1] if text.strip() else "")
    if not found:
        raise UnreadableOutput(f"sbatch printed {text[:200]!r} where the job id was expected")
    return int(found.group(1))


def states(job_id: int) -> Command:
    """Lists the elements of a job, a state each; Slurm refuses it once it has forgotten the job."""
    return Command(("squeue", "--noheader", "--array", f"--jobs={job_id}", "--format=%T"))


def count(text: str) -> Mapping[str, int]:
    """How many elements are in each state."""
    return Counter(line.strip() for line in text.splitlines() if line.strip())


def shown(found: Mapping[str, int]) -> str:
    """The states in words, the size first."""
    running = sum(found.get(state, 0) for state in RUNNING)
    waiting = sum(found.values()) - running
    return f"{running} running, {waiting} waiting"


def has_option(options: Sequence[str], *names: str) -> bool:
    """Whether sbatch is told one of these options already."""
    return any(word.split("=", 1)[0] in names for word in options)
