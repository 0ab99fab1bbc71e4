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
    """A pool: `command` runs as a worker on each of up to `most` nodes. `flags` are for `malleable
    run`, `options` for sbatch. With the `unit` gpu or task the workers are on parts of nodes."""

    command: tuple[str, ...]
    most: int
    least: int = 0
    flags: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    unit: str = ""


def script(pool: Pool) -> str:
    """Return the batch script. The shell sees each word unchanged."""
    words = ("malleable", "run", *pool.flags, "--", *pool.command)
    return f"#!/bin/sh\nexec {shlex.join(words)}\n"


def submit(pool: Pool) -> Command:
    """Return the command that submits the pool and prints its id."""
    unit = f",unit={pool.unit}" if pool.unit else ""
    request = f"--malleable={pool.least}-{pool.most}{unit},engine=pool"
    return Command(("sbatch", "--parsable", request, *pool.options), script(pool))


def read_id(text: str) -> int:
    """Return the job id that `sbatch --parsable` prints, perhaps before a cluster's name. Raises
    UnreadableOutput."""
    match = re.match(r"(\d{1,18})(?:;|$)", text.strip().splitlines()[-1] if text.strip() else "")
    if not match:
        raise UnreadableOutput(f"sbatch printed {text[:200]!r} where the job id was expected")
    return int(match.group(1))


def states(job_id: int) -> Command:
    """Ask for the state of each element. Slurm refuses it once it has forgotten the job."""
    return Command(("squeue", "--noheader", "--array", f"--jobs={job_id}", "--format=%T"))


def count(text: str) -> Mapping[str, int]:
    """Return how many elements are in each state."""
    return Counter(line.strip() for line in text.splitlines() if line.strip())


def shown(counts: Mapping[str, int]) -> str:
    """Return the states in words, the size first."""
    running = sum(counts.get(state, 0) for state in RUNNING)
    waiting = sum(counts.values()) - running
    return f"{running} running, {waiting} waiting"


def has_option(options: Sequence[str], *names: str) -> bool:
    """Tell whether sbatch already gets any of these options."""
    return any(word.split("=", 1)[0] in names for word in options)
