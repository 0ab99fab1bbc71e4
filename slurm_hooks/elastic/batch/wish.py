"""`wish{N,T}`: how many nodes this job wants from now on, in the Comment of its own element.

The newest of all elements counts, which is why it has the time.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from dataclasses import replace

from slurm_hooks.elastic.batch import job_comment
from slurm_hooks.elastic.batch.news import CONFIRM_S
from slurm_hooks.elastic.batch.standing import element
from slurm_hooks.words.comment import MOST_NODES, Wish, parse

TRIES = 3


class WishError(Exception):
    """The wish cannot be told; the message says why, and what to do."""


class UnheardError(WishError):
    """Slurm does not take it now, as when slurmctld is busy."""


def read_nodes(text: str, most: str = "") -> int:
    """A number of nodes, at most the MAX that the job has asked for. Raises WishError."""
    is_number = text.isascii() and text.isdigit() and len(text) < 6 and int(text) <= MOST_NODES
    if not is_number:
        raise WishError(f"{text[:20]!r} is not a number of nodes from 0 to {MOST_NODES}")
    return min(int(text), int(most)) if most.isascii() and most.isdigit() else int(text)


def write_wish(env: Mapping[str, str], text: str) -> int:
    """Tell Slurm; returns the nodes wished for, which are at most MAX. Takes seconds at most.
    Raises WishError."""
    nodes, name = read_nodes(text, env.get("MALLEABLE_MAX", "")), element(env)
    if not name:
        raise WishError("this is not in a fragment of a malleable job: name one with --job")
    try:
        _write(name, nodes, int(time.time()))
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", "") or str(error)
        raise UnheardError(f"Slurm does not take it: {' '.join(said.split())[:200]}") from None
    return nodes


def _write(name: str, nodes: int, now: int) -> None:
    """Again if the agent has written at the same moment, and ours is lost. Raises OSError,
    SubprocessError."""
    for _ in range(TRIES):
        job_comment.change(name, lambda before: replace(before, wish=Wish(nodes, now)))
        time.sleep(CONFIRM_S)
        found = parse(job_comment.read(name)).wish
        if found and found.at >= now:
            break
