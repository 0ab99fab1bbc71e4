"""From nodes to counts and back: the question to a policy, and the moves that it answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from papers.question import Held, Question, Row
from papers.supply import Classes, Supply
from slurm_hooks.replay.running import Running


@dataclass(frozen=True)
class Move:
    """The nodes that a job gives up and gets, by node."""

    job: Running
    gone: Sequence[int]
    new: Sequence[int]


def question(jobs: Sequence[Running], supply: Supply, classes: Classes, now: float) -> Question:
    """The question in counts: the nodes of each job, and all nodes."""
    capacity = [0] * len(classes.open_s)
    for c in classes.of_node.values():
        capacity[c] += 1
    capacity[0] = supply.present - sum(capacity)
    held = tuple(Held(job.kind, _row(job, classes), now - job.entered_s) for job in jobs)
    return Question(held, tuple(capacity), classes.open_s)


def _row(job: Running, classes: Classes) -> Row:
    if classes.is_one:
        return (len(job.nodes),)
    row = [0] * len(classes.open_s)
    for node in job.nodes:
        row[classes.of_node.get(node, 0)] += 1
    return tuple(row)


def moves(
    jobs: Sequence[Running],
    asked: Question,
    rows: Sequence[Row],
    classes: Classes,
    free: Iterable[int],
) -> list[Move]:
    """Name the nodes: a job gives up its newest nodes, and gets the nodes that became free last.

    A node that a job gives up is given to another at once. A gang starts with its minimum or not at
    all.
    """
    gone = [
        _given_up(job, held.row, row, classes) for job, held, row in zip(jobs, asked.jobs, rows)
    ]
    pool: list[list[int]] = [[] for _ in classes.open_s]
    for node in [*free, *(node for nodes in gone for node in nodes)]:
        pool[classes.of_node.get(node, 0)].append(node)
    planned = []
    for job, held, row, nodes in zip(jobs, asked.jobs, rows, gone):
        new = [] if row == held.row else _gained(job, held.row, row, pool)
        if new or nodes:
            planned.append(Move(job, nodes, new))
    return planned


def _gained(job: Running, held: Row, row: Row, pool: Sequence[list[int]]) -> list[int]:
    """The nodes a job gets, taken from the pool (class)."""
    counts = [max(0, min(n - has, len(there))) for n, has, there in zip(row, held, pool)]
    if sum(held) + sum(counts) < job.kind.min_nodes:
        return []
    return [there.pop() for n, there in zip(counts, pool) for _ in range(n)]


def _given_up(job: Running, held: Row, row: Row, classes: Classes) -> list[int]:
    """The nodes that a job gives back: its newest nodes of each class."""
    if row == held:
        return []
    if classes.is_one:
        count = held[0] - row[0]
        return list(job.nodes)[-count:] if count > 0 else []
    gone = []
    over = [max(0, has - wanted) for has, wanted in zip(held, row)]
    for node in reversed(job.nodes):
        c = classes.of_node.get(node, 0)
        if over[c]:
            over[c] -= 1
            gone.append(node)
    return gone
