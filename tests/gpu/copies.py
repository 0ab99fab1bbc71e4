"""Watch a state of so many MiB on a device, and copy it as at the end of a process.

Arguments: device, MiB. It prints a JSON object. `ready_s`: the seconds until memory for copies was
there, while the training could go on. `told_s`: the log's expectation for a copy.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import torch

from slurm_hooks.elastic.mailbox import Mailbox
from slurm_hooks.elastic.script.checkpoint import Checkpoint

TENSOR_MIB = 64


def state(device: str, mib: int) -> torch.nn.Module:
    """Tensors of 64 MiB at most."""
    sizes = [TENSOR_MIB] * (mib // TENSOR_MIB) + [mib % TENSOR_MIB] * (mib % TENSOR_MIB > 0)
    words = (torch.ones(size << 18, device=device) for size in sizes)
    return torch.nn.ParameterList(torch.nn.Parameter(one) for one in words)


def timed(step: int, checkpoint: Checkpoint) -> float:
    """Seconds of a copy at this boundary."""
    checkpoint.reached(step)
    jit: Any = checkpoint._just_in_time
    began = time.monotonic()
    jit.keep()
    took_s = time.monotonic() - began
    assert checkpoint._memory.newest() == step, "the state does not fit into memory"
    jit._let_go()
    return took_s


def main() -> None:
    device, mib = sys.argv[1], int(sys.argv[2])
    mailbox = Mailbox()
    os.environ.update(mailbox.environment())
    checkpoint = Checkpoint(None)
    checkpoint.watch(model=state(device, mib))
    began = time.monotonic()
    checkpoint.reached(0)
    readiness: Any = checkpoint._just_in_time and checkpoint._just_in_time._readiness
    while not readiness.is_done:
        time.sleep(0.01)
    row = {"mib": mib, "ready_s": time.monotonic() - began, "told_s": mailbox.writing_s()}
    row |= {"first_s": timed(1, checkpoint)}
    row |= {"later_s": min(timed(step, checkpoint) for step in (2, 3, 4))}
    checkpoint.end()
    print(json.dumps({key: round(value, 4) for key, value in row.items()}))


if __name__ == "__main__":
    main()
