"""The bench of these tests leaves a cluster without a job."""

from __future__ import annotations

import time

import pytest
from pytest_mock import MockerFixture

from promises.bench import Bench
from sites.admin import ordinary, wait_for_state
from slurm_hooks.sandbox import Sandbox

pytestmark = pytest.mark.slurm


def test_a_job_that_starts_in_another_ones_place_is_cancelled_too(
    bench: Bench, mocker: MockerFixture
) -> None:
    run = Sandbox.run
    nodes = len(bench.observe().nodes)
    running, waiting = (ordinary(bench.box, f"--nodes={nodes}", seconds=600) for _ in range(2))
    wait_for_state(bench.box, running, ["RUNNING"])
    wait_for_state(bench.box, waiting, ["PENDING"])

    def run_on_a_busy_host(box: Sandbox, argv: list[str], **more: object) -> object:
        done = run(box, argv, **more)
        time.sleep(3 if argv[0] == "scancel" else 0)
        return done

    mocker.patch.object(Sandbox, "run", run_on_a_busy_host)
    bench.cancel_all()
