"""torchft's lighthouse, served by this process. It decides for all replica groups which of them
take part in a step. Only this module uses torchft.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from slurm_hooks.elastic.agent.companion import EngineError
from slurm_hooks.elastic.log import suppressed

QUORUM_TICK_MS = 50
_SEED_S = timedelta(seconds=5)
_QUIET = "RUST_LOG"


class LighthouseError(EngineError):
    """torchft is missing or not as expected. The message tells the user how to mend that."""


@dataclass(frozen=True)
class LighthouseTiming:
    """Timeouts. A group that is silent for `beat_s` is dead. A step waits `join_s` for a group that
    lives but does not come.
    """

    beat_s: float
    join_s: float


def load() -> Any:
    """Return torchft's servers and clients. Raises LighthouseError."""
    own = os.environ.get(_QUIET)
    if own is None:
        os.environ[_QUIET] = "error"  # else it logs every step; read at its import
    try:
        from torchft import coordination  # noqa: PLC0415  (only this engine needs it)
    except ImportError as error:
        raise LighthouseError(
            f"engine=torchft needs torchft in the environment of the job: {error}; "
            "try `pip install torchft`"
        ) from None
    finally:
        if own is None:
            del os.environ[_QUIET]  # not for the training processes
    return coordination


class Lighthouse:
    """A lighthouse that serves until closed. Raises LighthouseError.

    It listens as `host` if that is an address of this node, else on all interfaces. The kernel
    chooses the `port`.
    """

    def __init__(self, host: str, timing: LighthouseTiming) -> None:
        self._torchft = load()
        self._host = f"[{host}]" if ":" in host else host
        self._server = self._serve(timing)
        self.port = int(self._server.address().rpartition(":")[2])

    def _serve(self, timing: LighthouseTiming) -> Any:
        fault: Exception | None = None
        for address in (
            f"{self._host}:0",
            "[::]:0",
            "0.0.0.0:0",
        ):  # the last is for hosts without IPv6
            try:
                return self._torchft.LighthouseServer(
                    bind=address,
                    min_replicas=1,
                    join_timeout_ms=round(timing.join_s * 1000),
                    quorum_tick_ms=QUORUM_TICK_MS,
                    heartbeat_timeout_ms=round(timing.beat_s * 1000),
                )
            except (RuntimeError, TypeError, OSError) as error:
                fault = error
        raise LighthouseError(f"torchft's lighthouse does not start: {fault}")

    def count_to(self, quorum: int) -> None:
        """Run empty quorums, so that the next quorum of the training is `quorum` + 1 or later.

        The beat of the empty group is heard for `beat_s` afterwards. The first step waits that
        long, so that all the groups can arrive.
        """
        errors = RuntimeError, TimeoutError, TypeError  # if this fails, a further step is lost
        with suppressed(*errors, doing="running empty quorums"):
            self._count_to(quorum)

    def _count_to(self, quorum: int) -> None:
        empty = self._torchft.ManagerServer(
            replica_id="nobody",
            lighthouse_addr=f"http://{self._host}:{self.port}",
            hostname="127.0.0.1",
            bind="127.0.0.1:0",
            store_addr="127.0.0.1:1",
            world_size=1,
            heartbeat_interval=timedelta(milliseconds=100),
            connect_timeout=_SEED_S,
            quorum_retries=0,
        )
        try:
            port = empty.address().rpartition(":")[2]
            client = self._torchft.ManagerClient(
                f"http://127.0.0.1:{port}", connect_timeout=_SEED_S
            )
            for _ in range(quorum):
                client._quorum(
                    group_rank=0,
                    step=0,
                    checkpoint_metadata="",
                    shrink_only=False,
                    timeout=_SEED_S,
                    commit_failures=1,  # this raises the number although no group joins
                    init_sync=False,
                )
        finally:
            empty.shutdown()

    def close(self) -> None:
        """Serve no more. A caller that waits for an answer is cut off."""
        with suppressed(RuntimeError, doing="closing the lighthouse"):
            self._server.shutdown()
        self._server = None  # shutdown() only stops listening
