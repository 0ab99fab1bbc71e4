"""Measure ticks and the allocator beyond the machine at hand, for docs/developers/scale.md.

Ticks run without Slurm, from text to text, up to 100,000 nodes, 1,000 malleable jobs of 64
fragments and 100,000 pending jobs of others: processor seconds, in parts. The allocator solves
problems of that size as a whole, and divided into independent parts (POP: Narayanan et al., SOSP
2021). Each part has a share of the jobs, their nodes and of the free nodes. The reported share is
the value that is left.
"""

from __future__ import annotations

import random
import sys
import time
from dataclasses import replace

from allocator import make_problem
from parts.printing import Row, arguments, seconds_of, show, tell, timed
from parts.slurm_text import Answers, answers
from parts.tick_plan import FRAGMENTS, snapshot
from parts.tick_whole import measured

from slurm_hooks.allocation.allocate import allocate
from slurm_hooks.allocation.problem import JobAsk, Limits, NodeClass, Problem
from slurm_hooks.allocation.value import value
from slurm_hooks.planning.check import Half, check
from slurm_hooks.planning.plan import make_plan
from slurm_hooks.settings.values import Mode, Settings
from slurm_hooks.slurm.actions import commands
from slurm_hooks.slurm.cluster import parse_cluster
from slurm_hooks.slurm.jobs import parse_jobs

MACHINES = ((10_000, 300, 50_000), (40_000, 1_000, 100_000), (100_000, 1_000, 100_000))
PROBLEMS = ((300, 10_000, 30), (1_000, 30_000, 30), (1_000, 100_000, 100))
PARTS = (1, 2, 4, 8)
LIMITS = Limits(seconds=60.0)
CPU = time.process_time


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--sizes", type=int, default=len(MACHINES), help="the first so many")
    sizes = parser.parse_args().sizes
    ticks = [{**measured(*machine), **parts_of_a_tick(*machine)} for machine in MACHINES[:sizes]]
    show("a tick, processor seconds", ticks)
    solved = [divided(make_problem(*shape), n) for shape in PROBLEMS[:sizes] for n in PARTS]
    show("the allocator, in whole and in parts", solved)
    return tell("scale", ticks=ticks, allocator=solved)


def parts_of_a_tick(nodes: int, jobs: int, others: int) -> Row:
    """Microseconds to read a record of each kind, and seconds to plan, to check, to write
    commands.
    """
    seen = snapshot(nodes, jobs, FRAGMENTS)
    port, without = answers(seen, others), answers(seen)
    ours_s, whole_s = _reading(without), _reading(port)
    nodes_s = seconds_of(lambda: parse_cluster(port.cluster), CPU)
    plan, plan_s = timed(lambda: make_plan(seen, Settings(mode=Mode("on")), CPU), CPU)
    guard_s = seconds_of(
        lambda: check(plan, Half.FIRST, seen, seen, Settings(mode=Mode("on"))), CPU
    )
    changes, write_s = timed(lambda: commands(plan.actions, {}, (n.name for n in seen.nodes)), CPU)
    return {
        "fragment_us": round(1e6 * ours_s / (jobs * FRAGMENTS), 1),
        "other_us": round(1e6 * (whole_s - ours_s) / others, 1),
        "node_us": round(1e6 * nodes_s / nodes, 1),
        "plan_s": round(plan_s, 2),
        "guard_s": round(guard_s, 2),
        "write_s": round(write_s, 2),
        "commands_kib": round(sum(len(c.stdin) for c in changes) / 1024),
    }


def _reading(port: Answers) -> float:
    return seconds_of(lambda: parse_jobs(port.queue, ["malleable"]), CPU)


def divided(problem: Problem, parts: int) -> Row:
    """The total value of so many parts, each solved separately, and their seconds."""
    whole = value(problem, allocate(problem, LIMITS, clock=time.monotonic).counts)
    got, seconds = 0.0, []
    for part in split(problem, parts):
        allocation, took = timed(
            lambda part=part: allocate(part, LIMITS, clock=time.monotonic), CPU
        )
        got += value(part, allocation.counts)
        seconds.append(took)
    return {
        "jobs": len(problem.jobs),
        "nodes": sum(c.capacity for c in problem.classes),
        "classes": len(problem.classes),
        "parts": parts,
        "all_s": round(sum(seconds), 2),
        "longest_s": round(max(seconds), 2),
        "share": round(got / whole, 5),
    }


def split(problem: Problem, parts: int) -> list[Problem]:
    """Problems with every so-manieth job, in random order, with their nodes.

    Each problem has as many of the free nodes of each class.
    """
    order = list(problem.jobs)
    random.Random(1).shuffle(order)
    problems = []
    for at in range(parts):
        jobs = tuple(order[at::parts])
        classes = tuple(_share(problem, i, jobs, parts) for i in range(len(problem.classes)))
        problems.append(replace(problem, jobs=jobs, classes=classes))
    return problems


def _share(problem: Problem, i: int, jobs: tuple[JobAsk, ...], parts: int) -> NodeClass:
    whole = problem.classes[i]
    held = sum(job.held[i] for job in problem.jobs)
    mine = sum(job.held[i] for job in jobs)
    return replace(whole, capacity=mine + (whole.capacity - held) // parts)


if __name__ == "__main__":
    sys.exit(main())
