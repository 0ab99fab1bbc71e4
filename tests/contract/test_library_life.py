"""In every situation of a life, libslurm and squeue show the same snapshot."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from capture import CONF, NODES, SCRIPT, Life, live
from slurm_hooks.model import Snapshot
from slurm_hooks.slurm.gateway import observe
from slurm_hooks.slurm.live import Live, WithLibrary
from waiting import wait_until

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.pyslurm,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0, reason="submits as another user, which needs root"),
]


@dataclass
class Compared(Life):
    """A life that reads through both."""

    by_library: list[str] = field(default_factory=list)  # the situations squeue was not asked in

    def keep(self, situation: str, holds: Callable[[Snapshot], bool], limit_s: int = 60) -> None:
        """Wait for the situation, and until two readings by squeue are equal."""
        wait_until(lambda: holds(self.look()[0]), limit_s, lambda: (situation, self.look()[0]))
        before, between, after = wait_until(self._three_looks, explain=lambda: situation)
        assert between == before == after, situation

    def _three_looks(self) -> Any:
        environment = dict(self.box.environment)
        port = WithLibrary(Live(20.0, environment=environment))
        before = timeless(self.look()[0])
        between = timeless(observe(port, ["malleable"]))
        after = timeless(self.look()[0])
        if before != after:
            return None
        self.by_library += [] if any(a.argv[0] == "squeue" for a in port.asked) else ["yes"]
        return before, between, after


def timeless(seen: Snapshot) -> Snapshot:
    """The snapshot without the clock."""
    return replace(seen, now=seen.now - timedelta(seconds=seen.now.timestamp()))


def test_the_same_life_through_both(
    pyslurm_of_this_slurm: str, bare_sandbox: Any, tmp_path: Path
) -> None:
    box = bare_sandbox(nodes=NODES, extra_conf=CONF)
    script = box.work / "fragment.sh"
    script.write_text(SCRIPT)
    script.chmod(0o755)
    life = Compared(box, tmp_path)
    live(life)
    assert len(life.by_library) >= 2  # held, planned; then a fragment fails
