"""Elements of malleable jobs that no tick touches.

A job_submit that runs after ours or an operator may have moved them to a partition that is not
ours, or site.partitions has changed. There they are not preempted. Others have lost their mark. No
tick starts, renews or ends them. So each tick says where they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from slurm_hooks.model.moments import plural
from slurm_hooks.slurm.mark import MARK

_WAITING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT")
_RUNNING = ("RUNNING", "CONFIGURING", "SUSPENDED")
Stray = tuple[str, str, str, bool]  # job, user, partition, whether it runs


class Strays:
    """The strays in an answer: elements with our mark outside of the lanes, and elements in a lane
    whose mark is gone."""

    def __init__(self, lanes: Collection[str]) -> None:
        self._lanes = lanes
        self._moved: list[Stray] = []
        self._unmarked: dict[str, list[str]] = {}

    def note(self, row: Mapping[str, str]) -> bool:
        """Note a row that is no fragment. Return True if it may be an element of a job of ours."""
        element, state = row["JobArrayID"], row["State"]
        job, is_element, _ = element.partition("_")
        if MARK in row["admin_comment"]:
            if state in (*_WAITING, *_RUNNING):
                self._moved.append((job, row["UserName"], row["Partition"], state in _RUNNING))
                return True
        elif is_element and row["Partition"] in self._lanes and state != "CANCELLED":
            self._unmarked.setdefault(job, []).append(element)
            return True
        return False

    def lines(self, jobs: Mapping[str, str]) -> tuple[str, ...]:
        """Return a line for the running strays of each job, and another for its waiting strays.
        `jobs` have elements in a lane, which is named. Only these have marks that can be gone."""
        moved = (
            _line(*stray, n, [jobs[stray[0]]] if stray[0] in jobs else sorted(self._lanes))
            for stray, n in sorted(Counter(self._moved).items())
        )
        gone = (_unmarked(job, names) for job, names in self._unmarked.items() if job in jobs)
        return (*moved, *gone)


def _unmarked(job: str, elements: list[str]) -> str:
    return (
        f"squeue: job {job}: {', '.join(elements)} left alone: its AdminComment has lost the "
        "mark malleable{...}; write the mark of a waiting element of the job there"
    )


def lines_about(job_id: int, lines: Iterable[str]) -> tuple[str, ...]:
    """Return the lines about elements of this job that no tick touches."""
    ends = (": ", "_", " left alone: ")
    begins = (f"job {job_id} of ", *(f"squeue: job {job_id}{end}" for end in ends))
    return tuple(line for line in lines if line.startswith(begins))


def unknown_text(job_id: int, lines: Iterable[str], name: str = "") -> str:
    """Return why no malleable job has this id: its elements may be elsewhere. `name` is the id as
    its user wrote it."""
    about = lines_about(job_id, lines)
    gone = (
        f"Slurm has no malleable job {name or job_id}: it has ended some time ago, or was "
        "submitted without --malleable (see `malleable status`)"
    )
    return "\n".join(about) or gone


def _line(job: str, user: str, partition: str, runs: bool, count: int, lanes: Sequence[str]) -> str:
    how = "runs" if runs else "waits with"
    where = (
        f"job {job} of {user} {how} {plural(count, 'element')} in partition {partition}, which "
        "site.partitions does not name"
    )
    if runs:
        return f"{where}: there they are ordinary jobs until their time limit, and do not come back"
    back = f"`scontrol update jobid={job} Partition={lanes[0] if len(lanes) == 1 else 'LANE'}`"
    which = "" if len(lanes) == 1 else f", with {' or '.join(lanes)} as LANE"
    return (
        f"{where}: no tick starts them; an operator, or a job_submit after ours, has moved them. "
        f"To move them back: {back}{which}"
    )
