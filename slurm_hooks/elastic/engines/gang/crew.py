"""The programs that an agent runs in a round: the command, and the daemons that the leader of an
MPI asks for.

First the members tell each other their addresses, at the agent of rank 0.
"""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Optional

from slurm_hooks.elastic.agent.options import number
from slurm_hooks.elastic.agent.session import Session
from slurm_hooks.elastic.agent.workers_here import request_of, workers_here
from slurm_hooks.elastic.engines.command import Command, write_program
from slurm_hooks.elastic.engines.gang import world as worlds
from slurm_hooks.elastic.engines.gang.channel import ChannelError, Listener
from slurm_hooks.elastic.engines.gang.engine import (
    GangEngine,
    files_of,
    lays_out,
    variables_of,
)
from slurm_hooks.elastic.engines.gang.gathering import GATHER, Gatherings, gather
from slurm_hooks.elastic.engines.gang.launching import LAUNCH, Daemons
from slurm_hooks.elastic.engines.gang.world import GangWorld, Place, place_said
from slurm_hooks.elastic.engines.order import Order
from slurm_hooks.elastic.log import debug, say, suppressed
from slurm_hooks.elastic.private_directory import DirectoryError
from slurm_hooks.elastic.rendezvous.state import Round

ARRIVE_S = 60.0
MEET_S = 5.0


class Crew:
    """`env` is the fragment's environment, and `host` the address of this node. `find_secret`
    returns the job's present secret.
    """

    def __init__(
        self,
        order: Order,
        env: Mapping[str, str],
        host: str,
        find_secret: Callable[[], bytes],
        engine: GangEngine,
    ) -> None:
        self._order, self._env, self._host = order, env, host
        self._find_secret = find_secret
        self._secret = find_secret()
        self._engine = engine
        self._daemons = Daemons()
        handlers = {GATHER: Gatherings().handle, LAUNCH: self._daemons.handle}
        self._listener = Listener(self._secret, handlers)
        self._command: Optional[Command] = None
        self._folder: Optional[Path] = None
        self._round: Optional[Round] = None
        self._rank = 0

    @property
    def port(self) -> int:
        """The port at which this agent answers the other agents of its job."""
        return self._listener.port

    def begin_round(self, round_: Round, rank: int, is_broken: Callable[[], bool]) -> bool:
        """Meet the others and start. Return False if the round breaks before.

        Raises OptionError if the engine returns no texts, SystemExit if the engine raises.
        """
        self._round, self._rank = round_, rank
        with suppressed(DirectoryError, doing="reading the job's secret again"):
            # A user may have removed it. A member that joins now knows the present secret.
            self._secret = self._listener.secret = self._find_secret()
        with socket.socket(_family(self._host)) as reserved:
            reserved.bind(("", 0))
            mine = self._place(reserved.getsockname()[1])
            said = self._gather("places", mine.as_said(), ARRIVE_S, is_broken)
        if said is None:
            return False
        try:
            places = tuple(map(place_said, said))
        except (TypeError, ValueError) as error:
            debug("reading the addresses of the members", error)
            return False
        self._start(GangWorld(round_.number, rank, places, self._folder_of(round_.number)))
        return True

    @property
    def _name(self) -> str:
        return self._env.get("MALLEABLE_ENGINE", "")

    def _place(self, port: int) -> Place:
        name = self._env.get("SLURMD_NODENAME", "") or self._host
        return Place(self._host, name, port, self.port, slots(self._env))

    def _start(self, world: GangWorld) -> None:
        env = {**self._env, **worlds.common_variables(world)}
        if not lays_out(self._engine):
            self._run({**env, **self._variables(world)})
            return
        env = worlds.without_slurm(env)
        self._daemons.begin_round(world.round, env)
        if world.rank == 0:
            self._lay_out(world.folder, files_of(self._engine, self._name, world))
            agents = {"MALLEABLE_AGENTS": worlds.agents_of(world)}
            self._run({**env, **self._variables(world), **agents})

    def _variables(self, world: GangWorld) -> Mapping[str, str]:
        return variables_of(self._engine, self._name, world)

    def _run(self, env: Mapping[str, str]) -> None:
        self._command = Command(self._order.command, env, self._order.signal)
        self._command.pass_on_signals()

    def _folder_of(self, number: int) -> str:
        """Return a folder in the job's own directory. So no file stays on the node of a leader that
        is killed, and `old_jobs` knows the name.
        """
        return str(Path(self._env["MALLEABLE_DIR"]).absolute() / f"laid-out-{number}")

    def _lay_out(self, folder: str, files: Mapping[str, str]) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(mode=0o700, exist_ok=True)
        for name, text in files.items():
            write_program(self._folder / name, text)

    @property
    def has_command(self) -> bool:
        """True if the command of this round runs here, and not at the leader alone."""
        return self._command is not None

    def exit_code(self, session: Session) -> Optional[int]:
        """Return the exit code of the command here, or `None` while it runs. If only the leader has
        a command, it is 0 after that has finished.
        """
        if self._command is not None:
            return self._command.exit_code()
        return 0 if session.is_ending() else None

    def meet(self, is_broken: Callable[[], bool]) -> None:
        """Wait, seconds at most, until all members are about to stop. A member that stops alone
        breaks the work of the others, which may count that as their own failure.
        """
        self._gather("stop", None, MEET_S, is_broken)

    def _gather(
        self, point: str, said: object, patience_s: float, is_broken: Callable[[], bool]
    ) -> Optional[Sequence[object]]:
        round_ = self._round
        assert round_ is not None
        key = f"{round_.number}.{round_.formed_at}.{point}"
        request = {"key": key, "rank": self._rank, "size": len(round_.order), "said": said}
        try:
            address = (round_.host, round_.port)
            return gather(address, self._secret, request, patience_s, is_broken)
        except ChannelError as error:
            say(str(error))
            return None

    def end_round(self, grace_s: Optional[float] = None) -> None:
        """Stop the programs that run here, within the order's grace unless another is given."""
        allowed_s = self._order.grace_s if grace_s is None else grace_s
        if self._command is not None:
            self._command.stop(allowed_s)
            self._command = None
        self._daemons.end_round(allowed_s)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def close(self) -> None:
        """Answer no more."""
        self._listener.close()


def slots(env: Mapping[str, str]) -> int:
    """Return how many processes an MPI may start on a node: the job's tasks there, 1 without such a
    number. On a part of a node each worker counts as a process.
    """
    if request_of(env):
        return workers_here(env)
    counts = (number(env.get(name, "")) for name in ("SLURM_NTASKS_PER_NODE", "SLURM_NTASKS"))
    return next((count for count in counts if count), 1)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
