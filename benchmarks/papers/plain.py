"""Policies without weighing: no nodes for any job, or an equal number for all."""

from __future__ import annotations

from collections.abc import Sequence

from papers.question import Question, Row
from slurm_hooks.replay.work import Kind


class Nothing:
    """No job gets a node: the machine as it was."""

    sees_ends = False

    def decide(self, question: Question) -> Sequence[Row]:
        """Zero for every job."""
        return [(0,) for _ in question.jobs]


class Equal:
    """BFTrainer's baseline: the same number for all, and the rest to the first jobs."""

    sees_ends = False

    def decide(self, question: Question) -> Sequence[Row]:
        """floor(nodes / jobs) for each job, at most MAX. The rest fills the first jobs up
        to MAX.
        """
        jobs, most = question.jobs, question.capacity[0]
        share = most // len(jobs) if jobs else 0
        sizes = [_allowed(job.kind, share) for job in jobs]
        left = most - sum(sizes)
        for at, job in enumerate(jobs):
            size = _allowed(job.kind, sizes[at] + left)
            left -= size - sizes[at]
            sizes[at] = size
        return [(n,) for n in sizes]


def _allowed(kind: Kind, nodes: int) -> int:
    return min(nodes, kind.max_nodes) if nodes >= kind.min_nodes else 0
