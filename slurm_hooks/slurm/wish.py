"""Tells Slurm, from a login host, which size a user's job wants now.

The wish is in the Comment of an element, in the form of protocol/comment.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

from slurm_hooks.errors import NotAllowed, RetryLater, UsageError
from slurm_hooks.model import Fragment, FragmentState, MalleableJob, Wish
from slurm_hooks.model.moments import moment
from slurm_hooks.protocol import comment as words
from slurm_hooks.slurm.live import Port
from slurm_hooks.slurm.telemetry import wish_in
from slurm_hooks.slurm.text import Command

# The order in which elements take the wish. Only we write into the Comment of a waiting element.
_ORDER = (
    FragmentState.HELD,
    FragmentState.PENDING,
    FragmentState.RUNNING,
)
_TRIES = 3


def wish(port: Port, job: MalleableJob, size: int, at: float) -> Wish:
    """Limit the job to this size from now on, at most to its MAX.

    Return the wish that Slurm has taken. Raises UsageError, CommandRefused, NotAllowed for another
    user's job, RetryLater if the agent of the element keeps writing.
    """
    job_id = job.job_id
    if not job.way.may_wish:
        raise UsageError(f"job {job_id} is a gang: only a pool (engine=pool) can wish for a size")
    fragment = _writable(job)
    wanted = Wish(moment(int(at)), min(size, job.request.max_nodes))
    question = Command(("squeue", "--noheader", f"--job={fragment.id}", "--format=%k"))
    for _ in range(_TRIES):
        comment = with_wish(port.ask(question).strip("\n"), wanted)
        try:
            port.ask(Command(("scontrol", "update", f"JobId={fragment.id}", f"Comment={comment}")))
        except NotAllowed as error:
            raise NotAllowed(f"job {job_id} belongs to {job.user}: ask as that user") from error
        if parse_wish(port.ask(question).strip("\n")) == wanted:
            return wanted
    raise RetryLater(
        f"job {job_id}: the agent of {fragment.id} keeps overwriting the wish: try again"
    )


def _writable(job: MalleableJob) -> Fragment:
    known = [f for f in job.fragments if f.state in _ORDER]
    if not known:
        raise UsageError(f"job {job.job_id}: no fragment waits or runs, so the job may be ending")
    return min(known, key=lambda f: (_ORDER.index(f.state), f.id.index))


def parse_wish(text: str) -> Optional[Wish]:
    """Return the wish in the text of a Comment, or None without a wish."""
    return wish_in(words.parse(text))


def with_wish(text: str, wish: Wish) -> str:
    """Return the Comment with this wish in place of the old wish, and the rest unchanged."""
    wanted = words.Wish(wish.nodes, int(wish.at.timestamp()))
    return replace(words.parse(text), wish=wanted).text
