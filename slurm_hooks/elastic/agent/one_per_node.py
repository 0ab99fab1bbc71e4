"""Keep a single agent on each node of a fragment: the first that srun has started there.

With several tasks on a node, `srun torchrun` starts an agent for each. If all took part, a round
would have its number of agents from too few nodes. So the others wait for the first agent to end.
They do not end at once, since srun may end a step soon after its first task (--wait, WaitTime).

The first agent listens at an abstract socket name, which disappears with it.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping

from slurm_hooks.elastic.agent.options import number
from slurm_hooks.elastic.batch.remark import write_remark
from slurm_hooks.elastic.lending import is_own
from slurm_hooks.elastic.log import debug, say, suppressed

PATIENCE_S = 60.0  # until the first agent of the node is there; all start at the same time
_EVERY_S = 0.2
_IDS = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_NODEID")
_listening: list[socket.socket] = []  # for as long as this process lives


def stand_by(env: Mapping[str, str], program: str) -> None:
    """Return if this agent is to take part.

    Any other agent says so, waits for the first agent of its node to end, and raises SystemExit
    with 0. `program` is the command that srun has started.
    """
    tasks, nodes = (number(env.get(f"SLURM_STEP_NUM_{kind}", "")) for kind in ("TASKS", "NODES"))
    if tasks <= nodes:  # true outside of a step too
        return
    name = f"\0malleable-first-{os.geteuid()}-" + ".".join(env.get(key, "") for key in _IDS)
    place = number(env.get("SLURM_LOCALID", ""))
    if place == 0:
        _listen(name)
        return
    first = _connect(name)
    if first is None:
        return
    line = (
        f"srun has started {program} several times on one node, and only the first takes part; "
        "write --ntasks-per-node=1"
    )
    say(f"{line}. This is number {place + 1}: it waits for the first to end")
    write_remark(line)
    _await_end(first)
    raise SystemExit(0)


def _listen(name: str) -> None:
    """Listen without answering: the others only ask whether this process is there."""
    with suppressed(OSError, doing="being the agent of this node"):
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(name)
        listener.listen(socket.SOMAXCONN)
        _listening.append(listener)


def _connect(name: str) -> socket.socket | None:
    """Return a connection to the first agent of this node, or `None`."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        asking = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            asking.connect(name)
            if is_own(asking):
                return asking
        except OSError as error:
            debug("looking for the first agent of this node", error)
        asking.close()
        time.sleep(_EVERY_S)
    return None


def _await_end(first: socket.socket) -> None:
    with first, suppressed(OSError, doing="waiting for the first agent of this node"):
        first.recv(1)
