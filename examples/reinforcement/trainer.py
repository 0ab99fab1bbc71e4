"""Learn from rollouts of the queue and publish new weights, as an ordinary job.

The checkpoint of a version is written before its weights, and names its rollouts. So a trainer that
is killed and requeued continues from there, and counts each rollout once. The trainer drops
rollouts of weights that are too old. It corrects the others by the ratio of likelihoods.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any, Optional

import torch
from exchange import Exchange, version_of
from policy import Policy, learn
from wish import Wish

LOOK_S = 0.1


class Trainer:
    def __init__(self, exchange: Exchange, options: argparse.Namespace) -> None:
        self._exchange, self._options = exchange, options
        self._file = options.place / "checkpoint.pt"
        self._policy = Policy()
        self._adam = torch.optim.Adam(self._policy.parameters(), lr=3e-3)
        self._wish = Wish(exchange, options.workers)
        self._counts = {"taken": 0, "dropped": 0, "unreadable": 0}
        self.version = 0
        if self._file.exists():
            self._load(torch.load(self._file, weights_only=True))
        exchange.publish(self.version, self._policy.state_dict())

    def step(self) -> None:
        """Make the next version."""
        began = time.monotonic()
        rollouts = self._collect()
        waited = time.monotonic() - began
        learn(self._policy, self._adam, list(rollouts.values()))
        ages = [self.version - version_of(name) for name in rollouts]
        self._counts["taken"] += len(rollouts)
        self.version += 1
        self._save(rollouts)  # from here on these rollouts are counted
        self._exchange.publish(self.version, self._policy.state_dict())
        self._exchange.remove(set(rollouts))
        for name in rollouts:
            print(f"taken {name}", flush=True)
        reward = sum(float(r["rewards"].mean()) for r in rollouts.values()) / len(rollouts)
        counts = " ".join(f"{name} {count}" for name, count in self._counts.items())
        print(f"version {self.version}: reward {reward:.3f} {counts}", end=" ")
        print(f"ages {ages} waited {waited:.1f} s", flush=True)
        self._wish.follow(len(self._exchange.waiting()))

    def _collect(self) -> dict[str, dict[str, Any]]:
        """Collect the rollouts of a version, by name."""
        rollouts: dict[str, dict[str, Any]] = {}
        while True:
            for name in self._exchange.waiting():
                if name not in rollouts and (rollout := self._usable(name)):
                    rollouts[name] = rollout
                if len(rollouts) == self._options.rollouts:
                    return rollouts
            self._wish.follow(len(rollouts))
            time.sleep(LOOK_S)

    def _usable(self, name: str) -> Optional[dict[str, Any]]:
        """The rollout, or `None` after its removal if it is too old, of another run, or damaged."""
        is_young = 0 <= self.version - version_of(name) <= self._options.stale
        rollout = self._exchange.get(name) if is_young else None
        if rollout is None:
            kind = "unreadable" if is_young else "dropped"
            self._counts[kind] += 1
            print(f"{kind} {name}", flush=True)
            self._exchange.remove({name})
        return rollout

    def _save(self, rollouts: dict[str, Any]) -> None:
        content = {"policy": self._policy.state_dict(), "adam": self._adam.state_dict()}
        content.update({"version": self.version, "counts": self._counts, "from": list(rollouts)})
        self._exchange.save(self._file, content)

    def _load(self, saved: dict[str, Any]) -> None:
        self._policy.load_state_dict(saved["policy"])
        self._adam.load_state_dict(saved["adam"])
        self.version, self._counts = saved["version"], saved["counts"]
        self._exchange.remove(set(saved["from"]))
        print(f"goes on at version {self.version}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--place", type=Path, default=Path("run"), help="directory of the exchange")
    parser.add_argument("--versions", type=int, default=100, help="versions of the weights in all")
    parser.add_argument("--rollouts", type=int, default=8, help="rollouts of a version")
    parser.add_argument("--stale", type=int, default=4, help="oldest usable rollout, in versions")
    parser.add_argument("--workers", type=int, default=16, help="MAX of the pool")
    options = parser.parse_args()
    exchange = Exchange(options.place)
    exchange.set_over(False)
    trainer = Trainer(exchange, options)
    while trainer.version < options.versions:
        trainer.step()
    exchange.set_over(True)  # each worker ends, and so does the pool


if __name__ == "__main__":
    main()
