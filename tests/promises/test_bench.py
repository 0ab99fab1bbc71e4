"""The bench of these tests leaves a cluster without a job."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_mock import MockerFixture

from promises.bench import Bench
from sites.admin import ordinary, state_of, wait_for_state
from slurm_hooks.sandbox import Sandbox
from waiting import wait_until

pytestmark = pytest.mark.slurm


def test_a_job_that_starts_in_another_ones_place_is_cancelled_too(
    bench: Bench, mocker: MockerFixture
) -> None:
    run = Sandbox.run
    nodes = len(bench.observe().nodes)
    running, waiting = (ordinary(bench.box, f"--nodes={nodes}", seconds=600) for _ in range(2))
    wait_for_state(bench.box, running, ["RUNNING"])
    wait_for_state(bench.box, waiting, ["PENDING"])

    def states() -> list[str]:
        return [state_of(bench.box, job) for job in (running, waiting)]

    def run_on_a_busy_host(box: Sandbox, argv: list[str], **more: Any) -> object:
        done = run(box, argv, **more)
        if argv[0] == "scancel" and "--partition=main" in argv:
            wait_until(lambda: states()[0] != "RUNNING" and states()[1] != "PENDING")
        return done

    mocker.patch.object(Sandbox, "run", run_on_a_busy_host)
    bench.cancel_all()
    assert states() == ["CANCELLED", "CANCELLED"]
