"""The workers of a fragment: a command, or in a pool on parts of nodes a command for each unit.

There each worker has its own GPUs, a share of the processors, and a name in MALLEABLE_WORKER: 3-0
and 3-1 in fragment 3. The fragment lasts until its last worker ends.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Optional

from slurm_hooks.elastic.agent.options import engine, number
from slurm_hooks.elastic.agent.workers_here import request_of, workers_here
from slurm_hooks.elastic.engines.command import Command, pass_on_no_more, pass_on_signals
from slurm_hooks.elastic.engines.order import Order

_DEVICES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
_SHARED = ("SLURM_CPUS_ON_NODE", "SLURM_CPUS_PER_TASK")


class Workers:
    """Starts the commands when it is made. Raises OptionError, and OSError if a command cannot
    start. In the main thread only.
    """

    def __init__(self, order: Order, env: Mapping[str, str]) -> None:
        self._commands: list[Command] = []
        try:
            for own in shares(env):
                self._commands.append(Command(order.command, {**env, **own}, order.signal))
        except OSError:
            self.end_rest()
            raise
        self._codes: dict[Command, int] = {}
        pass_on_signals(self._commands)

    def exit_code(self) -> Optional[int]:
        """Return `None` while a worker runs, then the first exit code that is not 0, else 0."""
        for command in self._running():
            code = command.exit_code()
            if code is not None:
                self._codes[command] = code
        if self._running():
            return None
        return next((code for code in self._codes.values() if code), 0)

    def _running(self) -> list[Command]:
        return [command for command in self._commands if command not in self._codes]

    def stop(self, grace_s: float) -> None:
        """Send each running worker its signal, and SIGKILL to the rest after `grace_s`."""
        until, running = time.monotonic() + grace_s, self._running()
        for command in running:
            command.ask()
        for command in running:
            command.await_end(until, grace_s)
        self.end_rest()

    def end_rest(self) -> None:
        """Kill all that is left of them."""
        for command in self._commands:
            command.end_rest()
        pass_on_no_more()


def shares(env: Mapping[str, str]) -> list[dict[str, str]]:
    """Return each worker's own variables. Raises OptionError."""
    request, row = request_of(env), engine(env)
    if request is None or row is None or not row.is_pool:
        return [{}]
    all_, unit = workers_here(env), request.unit
    count = max(1, all_ // unit)
    same = {"SLURM_GPUS_ON_NODE": str(unit)} if env.get("SLURM_GPUS_ON_NODE") else {}
    for name in _SHARED:
        if number(env.get(name, "")):
            same[name] = str(max(1, number(env[name]) // count))
    devices = {name: env.get(name, "").split(",") for name in _DEVICES}
    known = {name: every for name, every in devices.items() if len(every) == all_}
    workers = []
    for n in range(count):
        own = {name: ",".join(every[n * unit :][:unit]) for name, every in known.items()}
        name = f"{env.get('MALLEABLE_FRAGMENT', '')}-{n}"
        workers.append({**same, **own, "MALLEABLE_WORKER": name})
    return workers
