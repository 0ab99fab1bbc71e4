"""`wish{N,T}`: how many nodes this job wants from now on, in the Comment of the writer's element.

The newest wish of all elements counts, so it carries its time.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping

from slurm_hooks.elastic.batch.comment_writer import CONFIRM_S, writer_of
from slurm_hooks.elastic.batch.standing import element
from slurm_hooks.protocol.comment import MOST_NODES, Wish

TRIES = 4  # to write it and read it there


class WishError(Exception):
    """The wish cannot be reported. The message says why, and how to mend that."""


def read_nodes(text: str, most: str = "") -> int:
    """Read a number of nodes, at most the MAX that the job has asked for. Raises WishError."""
    is_number = text.isascii() and text.isdigit() and len(text) < 6 and int(text) <= MOST_NODES
    if not is_number:
        raise WishError(f"{text[:20]!r} is not a number of nodes; give 0 to {MOST_NODES}")
    return min(int(text), int(most)) if most.isascii() and most.isdigit() else int(text)


def wish_of(env: Mapping[str, str], text: str) -> tuple[str, Wish]:
    """Return the element that reports it, and the wish of this moment, at most MAX. Raises
    WishError.
    """
    nodes, name = read_nodes(text, env.get("MALLEABLE_MAX", "")), element(env)
    if not name:
        raise WishError("this is no fragment of a malleable job: malleable wish --job JOBID N")
    return name, Wish(nodes, int(time.time()))


def write_wish(env: Mapping[str, str], text: str) -> int:
    """Tell Slurm, and return the nodes wished for. Takes seconds at most. Raises WishError."""
    name, wish = wish_of(env, text)
    try:
        _write(name, wish)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", "") or str(error)
        raise WishError(f"Slurm refuses the wish: {' '.join(said.split())[:200]}") from None
    return wish.nodes


def _write(name: str, wish: Wish) -> None:
    """Write it, and again if the agent wrote at the same moment and ours is lost. Raises OSError,
    SubprocessError.
    """
    for _ in range(TRIES):
        if writer_of(name).write("wish", wish):
            break
        time.sleep(CONFIRM_S)
