"""Let a Dask worker leave well: it finishes its tasks and gives its results to other workers.

    dask worker --preload leave.py --preload-nanny leave.py ...

`dask worker` alone ends at SIGTERM. Its results are lost, and Dask computes them again. With this
file the worker gets no new tasks and has half of the notice to finish. The scheduler moves its
results to the workers that stay. `malleable run` limits the time for all of that.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress
from typing import Union

from distributed import Nanny, Worker

NOTICE_S = 20.0  # unless the environment says otherwise
LOOK_S = 0.1


def dask_setup(server: Union[Nanny, Worker]) -> None:
    """Start, as Dask calls it in the nanny's process and in the worker's."""
    loop = asyncio.get_running_loop()
    if isinstance(server, Nanny):
        loop.add_signal_handler(signal.SIGTERM, _pass_on, server)
        return
    going: list[asyncio.Task[None]] = []

    def go() -> None:
        if not going:  # its nanny may pass on a signal that it has already
            going.append(loop.create_task(_leave(server)))

    loop.add_signal_handler(signal.SIGTERM, go)


def _pass_on(nanny: Nanny) -> None:
    nanny.close_gracefully(reason="leave")  # no other worker in its place
    with suppress(ProcessLookupError, TypeError):  # it has ended, or has not begun
        os.kill(nanny.pid, signal.SIGTERM)


async def _leave(worker: Worker) -> None:
    await _retire(worker, remove=False)
    over = time.monotonic() + _patience_s()
    while worker.state.executing and time.monotonic() < over:
        await asyncio.sleep(LOOK_S)
    await _retire(worker, remove=True)
    await worker.close(nanny=True, reason="leave")


async def _retire(worker: Worker, remove: bool) -> None:
    await worker.scheduler.retire_workers(
        workers=[worker.address], close_workers=False, remove=remove, stimulus_id="leave"
    )


def _patience_s() -> float:
    """Half of the time that a planned leave or a preemption gives."""
    names = ("MALLEABLE_NOTICE_S", "MALLEABLE_FAREWELL_S")
    return min(float(os.environ.get(name) or NOTICE_S) for name in names) / 2
