"""Play with the newest weights and queue the rollouts, as a worker of a pool.

It can be killed at any moment, and loses only the rollout that it plays. It takes weights between
two rollouts. At SIGTERM it ends the rollout first, if Slurm gives it the time. While the queue is
full it waits. After a minute of that 1 worker stays, and the pool gives the other nodes back.
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import sys
import threading
import time
from pathlib import Path

import torch
from exchange import FULL, Exchange
from policy import Policy, play

LOOK_S = 0.2
PATIENCE_S = 60.0
TERMINATED = 128 + signal.SIGTERM


def main() -> int:
    options = read_options()
    leaving = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: leaving.set())
    torch.set_num_threads(1)
    exchange, policy, version = Exchange(options.place), Policy(), -1
    me, number, worked = name(), 0, time.monotonic()
    while not leaving.is_set():
        if exchange.is_over():
            return 0  # no work left: the pool ends
        if newest := exchange.newest(version):
            version = newest[0]
            policy.load_state_dict(newest[1])
        if version < 0 or len(exchange.waiting()) >= FULL:
            if time.monotonic() - worked > PATIENCE_S:
                worked = time.monotonic()
                exchange.set_wish(1)  # all others leave
            leaving.wait(LOOK_S)
            continue
        number += 1
        mine = f"{version:08}.{me}.{number}.pt"
        print(f"begun {mine}", flush=True)
        rollout = play(policy)
        time.sleep(options.pace)
        exchange.put(mine, rollout)
        print(f"queued {mine}", flush=True)
        worked = time.monotonic()
    return TERMINATED


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--place", type=Path, default=Path("run"), help="directory of the exchange")
    parser.add_argument("--pace", type=float, default=0.0, help="seconds added to each rollout")
    return parser.parse_args()


def name() -> str:
    """The name of this process alone, even on the same node and in the same fragment."""
    fragment = os.environ.get("MALLEABLE_WORKER") or os.environ["MALLEABLE_FRAGMENT"]
    return f"{fragment}-{secrets.token_hex(4)}"


if __name__ == "__main__":
    sys.exit(main())
