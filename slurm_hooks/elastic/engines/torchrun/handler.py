"""torchrun's view of the session: the RendezvousHandler named `malleable`.

The session decides, and keeps this agent on the waiting list. The handler translates: torch's calls
to the session's, stores to torch's types.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from torch.distributed.elastic.rendezvous.api import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousStoreInfo,
)

from slurm_hooks.elastic.agent.actions import GiveUp
from slurm_hooks.elastic.agent.assemble import Parts
from slurm_hooks.elastic.agent.entering import Entering
from slurm_hooks.elastic.batch.remark import write_remark
from slurm_hooks.elastic.engines.torchrun.starting import Processes
from slurm_hooks.elastic.engines.torchrun.store import (
    GATHER_S,
    RoundStore,
    arrive,
    connect,
    meet,
    open_store,
)
from slurm_hooks.elastic.engines.torchrun.stubborn_workers import end_stubborn
from slurm_hooks.elastic.engines.torchrun.warm_pool import WarmPool
from slurm_hooks.elastic.log import say, suppressed
from slurm_hooks.elastic.rendezvous.directory import DirectoryError
from slurm_hooks.elastic.rendezvous.state import Round, Stop

WARM_UP_S = 30.0
UNREACHED = 3  # times in a row that a host may be out of reach
COOL_DOWN_S = 2.0  # before it is tried again: it may have died just now


class MalleableHandler(RendezvousHandler):
    """The handler of an agent. `next_rendezvous` ends the process with SystemExit when this
    fragment leaves, the training is over (0) or cannot go on (1, with a message).
    """

    def __init__(self, parts: Parts, processes: Processes) -> None:
        self._options = parts.options
        self._session = parts.session
        self._signals = parts.signals
        self._forewarning = parts.forewarning
        self.warm_pool: WarmPool | None = None
        self.start_as: Callable[[Sequence[str]], None] = lambda words: None
        self._companion = parts.companion
        self._processes = processes
        self._hosted: Any = None
        self._store: Any = None
        self._ending = parts.ending
        self._ending.dismiss = self._dismiss
        self._session.is_warming = self._is_warming
        self._entering = Entering(self._session, self._companion, self._ending, self._serve)
        self._unreached: list[str] = []  # hosts, since a host was last reached
        self._has_succeeded = False

    def get_backend(self) -> str:
        """See the base class."""
        return self._options.backend

    def get_run_id(self) -> str:
        """See the base class."""
        return self._options.run

    @property
    def use_agent_store(self) -> bool:
        """True: workers use the agent's store. Its port is taken already, so two jobs cannot want
        the same port. Every round has a new store, so the loss of its host does no harm.
        """
        return os.environ.get("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "0") != "1"

    def note_launch(self, words: Sequence[str]) -> None:
        """See Session."""
        self._session.note_launch(words)

    def next_rendezvous(self) -> RendezvousInfo:
        """Join the next round and wait until all its agents are there. Ask for the next action and
        carry it out, until this agent is in a round.
        """
        self._signals.listen()
        if self.warm_pool and not self._session.is_in:
            self.warm_pool.prepare()  # while the others train
            self.warm_pool.wait_ready(WARM_UP_S)
        exit_code = self._processes.exit_code() or int(self._forewarning.has_failed())
        self._session.begin_wait(exit_code)
        self._companion.begin_wait()
        self._hosted = None  # the store of the last round
        try:
            while not (info := self._enter(self._entering.next_round())):
                pass
            self.start_as(self._session.words)
            return info
        except DirectoryError as error:
            write_remark(str(error))
            raise SystemExit(f"malleable: {error}") from None

    def _enter(self, round_: Round) -> RendezvousInfo | None:
        """Meet the others at the store of the round. Return `None` if it breaks before."""
        rank, size = self._session.rank, len(round_.order)
        self._store = self._reach(round_.host, round_.port, rank)
        if self._store and arrive(self._store, size, self):
            if rank:
                say(f"round {round_.number}: rank {rank} of {size}")
            # its host may leave at this moment
            with suppressed(RuntimeError, doing="using the store of the round"):
                return self._info(rank, size, round_.host, round_.port)
        say(f"round {round_.number} failed to start; retrying")
        self._hosted = None
        self._session.begin_wait()
        return None

    def _serve(self) -> int:
        """Return the port of the store of the next round, which this agent serves."""
        if self._hosted is None:
            self._hosted = self._open_store()
        return int(self._hosted.port)

    def _open_store(self) -> Any:
        try:
            return open_store(self._options.host)
        except RuntimeError as error:
            line = (
                f"cannot serve a store as {self._options.host}: {_first_line(error)}; "
                "PET_LOCAL_ADDR must be an address of this node"
            )
            write_remark(line)
            raise SystemExit(f"malleable: {line}") from None

    def _reach(self, host: str, port: int, rank: int) -> Any:
        if rank == 0 and self._hosted is not None:
            return self._hosted
        try:
            store = connect(host, port)
        except RuntimeError as error:
            self._miss(host, port, _first_line(error))
            return None
        self._unreached.clear()
        return store

    def _miss(self, host: str, port: int, error: str) -> None:
        """A store was out of reach, and the next may be elsewhere. Give up if that does not help,
        because each try delays the others.
        """
        failure = f"cannot reach the store of the round at {host} port {port}"
        say(f"{failure}: {error}")
        self._unreached.append(host)
        if self._unreached.count(host) < UNREACHED:
            time.sleep(COOL_DOWN_S)
            return
        line = (
            f"{failure}, {UNREACHED} times; the nodes of the job must be able to connect to each "
            "other on any port"
        )
        write_remark(line)
        self._ending.end_with(GiveUp(line))

    def _info(self, rank: int, size: int, host: str, port: int) -> RendezvousInfo:
        store: Any = RoundStore(self._store, rank, size, self)
        if self.use_agent_store:
            bootstrap = RendezvousStoreInfo(host, port)
        else:
            bootstrap = RendezvousStoreInfo.build(rank, self._store, self._options.host)
        return RendezvousInfo(store, rank, size, bootstrap)

    def is_broken(self) -> bool:
        """See Agent."""
        return self._session.is_broken()

    def succeed(self) -> None:
        """See Agent."""
        self._has_succeeded = True
        self._session.succeed()
        self._companion.succeed()

    def await_end(self) -> None:
        """See Agent. Ends the process if this fragment must leave before."""
        self._ending.await_end()

    def num_nodes_waiting(self) -> int:
        """Return a positive number when the workers must stop for a new round.

        torch calls it every monitor interval, 0.1 s to 0.5 s. So it reads the directory less often.
        """
        self._signals.listen()
        if self.warm_pool:
            self.warm_pool.prepare()
        if self._companion.take_planned_change():
            self._session.hear_planned_change()
        if self._session.is_asked_to_go():
            self._companion.leave()
        reason = self._session.look()
        if reason is Stop.NO:
            return 0
        if reason is not Stop.NOW and self._session.round:
            size, is_paused = len(self._session.round.order), self._session.is_training_paused
            meet(self._store, size, self, linger_s=0.0 if is_paused else GATHER_S)
        if reason is Stop.GROW and self._session.has_ended:
            self._session.call_off()  # others may still stop, which this agent then sees
            return 0
        end_stubborn()
        return 1

    def is_closed(self) -> bool:
        """Tell whether the training has ended."""
        return self._session.is_over()

    def set_closed(self) -> None:
        """Does not act: an agent cannot end the training of the others."""

    def shutdown(self) -> bool:
        """torchrun calls this once, as its last act, unless a signal ended it. After a failure this
        agent is taken off the list, and the others go on without it.
        """
        is_failure = sys.exc_info()[1] is not None
        if not is_failure and not self._has_succeeded and self._session.round:
            self.succeed()  # this torch uses another name for its last barrier
            self.await_end()
        self._ending.close(is_failure)
        return True

    def _is_warming(self) -> bool:
        return self.warm_pool is not None and self.warm_pool.is_warming()

    def _dismiss(self) -> None:
        if self.warm_pool:
            self.warm_pool.dismiss()
        self._store = self._hosted = None


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:200]
