"""On a real Slurm, users and administrators change everything at once, and no promise breaks.

CHURN_S is the number of seconds (default: 60). CHURN_SEED repeats a course.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from functools import partial

import pytest

from promises.bench import Bench
from promises.churn import Churn
from promises.churn_checker import (
    Rule,
    faults_in,
    gone,
    moved_nodes,
    node_lists,
    not_back,
    not_started,
    over_ceiling,
    past_planned_starts,
    past_reservations,
    revived,
    roaming,
    shared_nodes,
    started_on_drained,
    starving,
    waits_for_us,
)
from slurm_hooks.sandbox import Sandbox
from waiting import wait_until

CHURN_S = float(os.environ.get("CHURN_S", "60"))
SEED = int(os.environ.get("CHURN_SEED", random.SystemRandom().randrange(10**6)))
NODES = 8
SETTLE_S = 60
pytestmark = [pytest.mark.slurm, pytest.mark.timeout(CHURN_S + SETTLE_S + 240)]


@pytest.fixture
def bench(fresh_sandbox: Callable[..., Sandbox]) -> Bench:
    bench = Bench(fresh_sandbox(nodes=NODES))
    bench.share_at_once()  # no node may be idle a minute later, and a job may begin small for five
    return bench


def rules(churn: Churn) -> tuple[Rule, ...]:
    """The rules with their graces: the next tick sees a change, and a released fragment has its
    time-out.

    A fragment that must leave has its notice, a tick that puts it back, and Slurm's KillWait.
    """
    lease, kill_s = churn.bench.settings.lease, 5
    leave_s = lease.notice_s + kill_s + 5
    heedful = partial(past_planned_starts, heedful=churn.heedful)
    return (
        *map(Rule, (shared_nodes, moved_nodes, started_on_drained, revived, node_lists)),
        Rule(over_ceiling, leave_s, 3),
        Rule(past_reservations, leave_s, 3),
        Rule(heedful, leave_s, 3),
        Rule(roaming, 5, 2),
        Rule(not_started, lease.start_timeout_s + 5, 3),
        Rule(not_back, 10, 3),
        Rule(waits_for_us, 20, 3),
    )


def test_no_promise_breaks_while_everything_changes(bench: Bench) -> None:
    churn = Churn(bench, random.Random(SEED))
    print(f"CHURN_SEED={SEED}")
    try:
        churn.start()
        until = time.monotonic() + CHURN_S
        while time.monotonic() < until:
            churn.step()
        churn.calm()
        least = {job: made.least for job, made in churn.living.items()}
        elements = {job: made.most for job, made in churn.living.items()}

        def lacking() -> list[str]:
            look = churn.tick()
            idle = [f"{n.name} is idle" for n in look.nodes if n.state == "idle"]
            return [*starving(look, least), *gone(look, elements), *idle]

        wait_until(lambda: not lacking(), SETTLE_S, lacking, every_s=1)
        faults = faults_in(churn.looks, rules(churn))
        assert not faults, faults
    finally:
        print("\n".join([*churn.done, churn.summary]))
        bench.malleable("on")
