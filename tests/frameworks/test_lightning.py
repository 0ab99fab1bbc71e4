"""A Lightning script without a line of ours."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from elastic.gang import Gang
from waiting import wait_until

pytest.importorskip("lightning.pytorch", reason="not installed: make test-frameworks")

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(1200)]


@pytest.mark.nightly
def test_a_search_that_draws_another_model_continues(gang: Gang) -> None:
    gang.script = Path(__file__).with_name("train_search.py")
    gang.start(1, "1:1", 0)
    wait_until(lambda: len(gang.steps()) > 10, explain=gang.dump)
    os.kill(min(gang.worker_pids(1)), signal.SIGTERM)
    assert gang.wait_exit(1, timeout=200) == [0], gang.dump()
    assert "belongs to another model" in gang.log(1)
