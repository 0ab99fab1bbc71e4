"""Replica groups of a torchft training on this host, each with its own torchrun agent."""

from __future__ import annotations

import json
from pathlib import Path

from waiting import PATIENCE_S, wait_until

from .gang import Gang

SCRIPT = Path(__file__).with_name("train_torchft.py")


class Groups(Gang):
    """A Gang with the environment that the plugin sets for engine=torchft.

    Steps are the steps that any group has finished: (time, step, groups that took part, fragment).
    """

    smallest, largest = 1, 6

    def __init__(self, job_path: Path, work: Path) -> None:
        super().__init__(job_path, work)
        self.script = SCRIPT

    def environment(self, fragment: int, nnodes: str, restarts: int = 0) -> dict[str, str]:
        return {
            **super().environment(fragment, "1", restarts),
            "MALLEABLE_ENGINE": "torchft",
            "MALLEABLE_MIN": str(self.smallest),
            "MALLEABLE_MAX": str(self.largest),
            "MALLEABLE_UNIT": "1",
            "RUST_LOG": "warn",
            **self.extra,
        }

    def add(self, *fragments: int) -> None:
        for fragment in fragments:
            self.start(fragment, "1", 100_000)

    def steps(self) -> list[tuple[float, int, int]]:
        """See Gang."""
        return [(at, step, world) for at, step, world, _ in self.group_steps()]

    def group_steps(self) -> list[tuple[float, int, int, int]]:
        rows = []
        for path in self.work.glob("steps-*.log"):
            fragment = int(path.stem.partition("-")[2])
            words = [line.split() for line in path.read_text().splitlines()]
            rows += [(float(w[0]), int(w[1]), int(w[2]), fragment) for w in words if len(w) == 3]
        return sorted(rows)

    def settle(self, groups: int, since: float, timeout: float = PATIENCE_S) -> float:
        """Wait until steps are done by so many groups. Return the time of the first such step after
        `since`.
        """

        def seen() -> float:
            after = [(t, w) for t, _, w, _ in self.group_steps() if t > since]
            if len(after) <= 2 * groups or any(w != groups for _, w in after[-2 * groups :]):
                return 0.0
            return next(t for t, w in after if w == groups)

        return wait_until(seen, timeout, self.dump)

    def pause(self, since: float, going: tuple[int, ...] = ()) -> float:
        """The longest time without a finished step of any remaining group."""
        times = [t for t, _, _, f in self.group_steps() if t > since - 0.5 and f not in going]
        return max(b - a for a, b in zip(times, times[1:]))

    def keeper(self) -> int:
        """The fragment that keeps the lighthouse."""
        state = json.loads(self.state().splitlines()[0])
        return int(state["round"][2][0])

    def alive(self) -> list[int]:
        return sorted(f for f, agent in self.agents.items() if agent.poll() is None)

    def finish(self) -> dict[int, dict[str, float]]:
        """Let the training end. Return each group's findings about its model."""
        last = self.alive()
        (self.work / "enough").touch()
        assert self.wait_exit(*last) == [0] * len(last), self.dump()
        return {f: json.loads((self.work / f"finished-{f}").read_text()) for f in last}
