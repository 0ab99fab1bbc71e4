"""Workers kept warm beside the running workers, so that a new round does not wait for interpreters
and imports.

A warm process (see warm_worker.py) is handed out instead of a new process (see starting.py). It is
a child of the agent like any other. A worker that does not fit exactly starts the ordinary way: for
another program, in a changed environment, or after the death of a warm process.

A CUDA context takes some hundred MB of the device, and a device in exclusive mode has a single
context. So only the first workers of an agent make theirs ahead, since no training runs beside them
yet. The user can change this.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from slurm_hooks.elastic.engines.torchrun.import_ahead import is_of_the_round
from slurm_hooks.elastic.engines.torchrun.warm_worker import PROGRAM
from slurm_hooks.elastic.log import suppressed
from slurm_hooks.elastic.polling import readable
from slurm_hooks.elastic.script.learned import is_told, name_of

DELAY_S = 1.0  # a round has begun: its own first steps go first
HUNG_S = 60.0  # imports that take longer may never end
LOOK_S = 5.0  # for the imports of the job, while they are unknown


class Contexts(Enum):
    """Which warm workers make their CUDA context in advance."""

    NONE = "none"
    FIRST = "first"  # only the workers of a newcomer
    ALL = "all"  # also workers started while others run


def warm_modules(env: Mapping[str, str]) -> list[str] | None:
    """Return modules that MALLEABLE_WARM adds to the imports of warm workers. If it is 0 there are
    no warm workers, and the result is `None`.
    """
    words = env.get("MALLEABLE_WARM", "").split(",")
    if words == ["0"]:
        return None
    names = [w for w in words if w not in ("cuda", "nocuda")]
    return [n for n in names if all(part.isidentifier() for part in n.split("."))]


def warm_contexts(env: Mapping[str, str]) -> Contexts:
    """Return the setting of MALLEABLE_WARM for CUDA: `cuda` always, `nocuda` never."""
    words = env.get("MALLEABLE_WARM", "").split(",")
    if "nocuda" in words:
        return Contexts.NONE
    return Contexts.ALL if "cuda" in words else Contexts.FIRST


def is_same_environment(began: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Tell whether a process begun with the first environment may go on with the second."""

    def lasting(env: Mapping[str, str]) -> dict[str, str]:
        return {name: env[name] for name in env if not is_of_the_round(name)}

    return lasting(began) == lasting(wanted)


class WarmWorker:
    """A warm worker for `program`, the words after `python -u`. With a `seat` its CUDA context is
    made for the worker of that local rank. The words of `binding` stand before Python.
    """

    def __init__(
        self,
        program: Sequence[str],
        extra: Sequence[str],
        seat: int | None,
        binding: tuple[str, ...] = (),
    ) -> None:
        self.env = dict(os.environ)
        self._began = time.monotonic()
        self._binding = binding
        self._seat = "" if seat is None else str(seat)
        self._channel, theirs = socket.socketpair()
        words = [str(theirs.fileno()), "0", self._seat, ",".join(extra), *program]
        with theirs:
            self.process = subprocess.Popen(
                [*binding, sys.executable, "-u", "-c", PROGRAM, *words],
                env=self.env,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def fits(self, env: Mapping[str, str], binding: tuple[str, ...] = ()) -> bool:
        """Tell whether it lives and could be the worker with this environment and binding."""
        if self.process.poll() is not None or binding != self._binding:
            return False
        if time.monotonic() - self._began > HUNG_S and not self.is_ready(0.0):
            return False
        if not is_same_environment(self.env, env):
            return False
        if not self._seat:
            return True
        visible = "CUDA_VISIBLE_DEVICES"  # looked at once, when the context is made
        return (env.get("LOCAL_RANK"), env.get(visible)) == (self._seat, self.env.get(visible))

    def is_ready(self, timeout_s: float) -> bool:
        """Tell whether its imports are done, or it is dead."""
        return bool(readable([self._channel.fileno()], timeout_s))

    def hand_over(self, argv: Sequence[str], env: Mapping[str, str], outputs: list[Any]) -> None:
        """Make it the worker. Raises OSError if it is gone."""
        redirect = [n for n, file in zip((1, 2), outputs) if file is not None]
        order = {"argv": list(argv), "env": dict(env), "redirect": redirect}
        handles = [file.fileno() for file in outputs if file is not None]
        text = json.dumps(order).encode() + b"\n"
        sent = socket.send_fds(self._channel, [text], handles) if handles else 0
        if text[sent:]:  # an empty send fails after the worker has all and has closed its end
            self._channel.sendall(text[sent:])
        self._channel.close()

    def dismiss(self) -> None:
        """End it. It holds no data."""
        self._channel.close()
        self.process.kill()
        self.process.wait()


class WarmPool:
    """As many warm workers for `program` as this agent runs. They start `delay_s` after a round
    began, and import `extra` as well. `bindings` are the words before Python by local rank, if any.
    """

    def __init__(
        self,
        program: Sequence[str],
        count: int,
        extra: Sequence[str] = (),
        contexts: Contexts = Contexts.FIRST,
        delay_s: float = DELAY_S,
        bindings: Sequence[tuple[str, ...]] = (),
    ) -> None:
        self._program = tuple(program)
        self._bindings = bindings or [()] * count
        self._count = count
        self._extra = tuple(extra)
        self._contexts = contexts
        self._delay_s = delay_s
        self._workers: list[WarmWorker] = []
        self._due = self._next_look = 0.0
        self._has_begun = self._has_learned = False

    def take(
        self,
        args: Sequence[str],
        env: Mapping[str, str],
        outputs: list[Any],
        binding: tuple[str, ...] = (),
    ) -> subprocess.Popen[bytes] | None:
        """Return a warm process with this binding that now runs `args`, or `None` if no process
        fits.
        """
        self._due = time.monotonic() + self._delay_s
        self._has_begun = True
        known = (sys.executable, "-u", *self._program)
        is_known = tuple(args[: len(known)]) == known
        while self._workers:
            worker = self._workers.pop(0)
            if is_known and worker.fits(env, binding):
                with suppressed(OSError, doing="handing over to a warm worker"):
                    worker.hand_over(args[2:], env, outputs)
                    return worker.process
            worker.dismiss()
        return None

    def prepare(self) -> None:
        """Start missing warm workers when they are due, and return at once otherwise. If that
        fails, workers start cold.
        """
        self._meet_learned()
        if len(self._workers) >= self._count or time.monotonic() < self._due:
            return
        with suppressed(OSError, doing="starting a warm worker"):
            while len(self._workers) < self._count:
                at = len(self._workers)
                seat = at if self._makes_contexts() else None
                worker = WarmWorker(self._program, self._extra, seat, self._bindings[at])
                self._workers.append(worker)

    def is_warming(self) -> bool:
        """Tell whether some of the next workers would start cold."""
        self._next_look = 0.0
        self._meet_learned()
        is_full = len(self._workers) >= self._count
        return not (is_full and all(worker.is_ready(0.0) for worker in self._workers))

    def _meet_learned(self) -> None:
        """Begin again once the imports of the job are known."""
        now = time.monotonic()
        if not self._has_learned and now >= self._next_look:
            self._next_look = now + LOOK_S
            self._has_learned = is_told(os.environ, name_of(self._program))
            if self._has_learned:
                self.dismiss()

    def _makes_contexts(self) -> bool:
        if self._contexts is Contexts.FIRST:
            return not self._has_begun
        return self._contexts is Contexts.ALL

    def wait_ready(self, timeout_s: float) -> None:
        """Return when all are warm, at the latest after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        for worker in self._workers:
            worker.is_ready(max(0.0, deadline - time.monotonic()))

    def dismiss(self) -> None:
        """End the waiting workers."""
        while self._workers:
            self._workers.pop().dismiss()
