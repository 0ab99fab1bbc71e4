"""Find fragments that run, according to Slurm, and have not joined in the shared directory.

If the directory differs between nodes, each fragment finds an empty directory and trains alone,
without an error. So the first member of a training checks now and then whether all wanted fragments
have joined. If some have been missing for long, it asks Slurm once whether they run.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from slurm_hooks.elastic.batch import expected
from slurm_hooks.elastic.batch.command import answer
from slurm_hooks.elastic.batch.remark import withdraw_remark, write_remark
from slurm_hooks.elastic.liveness.file_system import local_kind
from slurm_hooks.elastic.liveness.watch import Unchanged
from slurm_hooks.elastic.log import say, suppressed
from slurm_hooks.elastic.rendezvous.state import Outcome, State

PATIENCE_S = 120.0


def missing(state: State, fragments: Iterable[int]) -> tuple[int, ...]:
    """Return the fragments that are not in the state, and have not finished either."""
    here = {m.fragment for m in state.members} | {fragment for fragment, _, _ in state.done}
    return tuple(sorted(set(fragments) - here))


def running(text: str, now: float, patience_s: float = PATIENCE_S) -> tuple[int, ...]:
    """Return fragments that have run for so long, from the answer to expected.request."""
    return tuple(
        row.fragment
        for row in expected.rows(text)
        if row.state == "RUNNING" and 0 < row.starts <= now - patience_s
    )


def sentence(fragments: tuple[int, ...], directory: str) -> str:
    """Return the sentence for the user."""
    names = ", ".join(str(f) for f in fragments[:8])
    is_one = len(fragments) == 1
    who = f"fragment {names} runs but has" if is_one else f"fragments {names} run but have"
    kind = local_kind(directory)
    where = f"{directory} (on {kind} here)" if kind else directory
    return (
        f"{who} not joined: a slow start, a node cut off, a script without torchrun, or nodes that "
        f"do not share {where}"
    )


class Absence:
    """Reports once that fragments are missing, and takes the remark back when they have joined.
    `ask` gets the command and returns squeue's output.
    """

    def __init__(
        self,
        directory: str,
        env: Mapping[str, str] = os.environ,
        ask: Callable[[Sequence[str]], str] = answer,
    ) -> None:
        self._directory = directory
        self._array = env.get("SLURM_ARRAY_JOB_ID", "")
        self._ask = ask
        self._quiet = Unchanged()
        self._has_asked = not self._array.isdigit()
        self._reported: tuple[int, ...] = ()
        self._remark = ""

    def look(self, now: float, state: State, token: str) -> None:
        """Ask Slurm if that is due. Only the first member does. Does not block."""
        if self._reported and not missing(state, self._reported):
            withdraw_remark(self._remark)
            self._reported = ()
        away = missing(state, state.wanted)
        is_first = bool(state.members) and state.members[0].token == token
        quiet_s = self._quiet.observe(now, away)
        is_due = away and is_first and state.outcome is Outcome.OPEN and quiet_s >= PATIENCE_S
        if is_due and not self._has_asked:
            with suppressed(RuntimeError, doing="starting a thread that asks Slurm"):
                threading.Thread(target=self.check, args=(state,), daemon=True).start()
                self._has_asked = True

    def check(self, state: State) -> None:
        """Ask Slurm, and report the fragments that run and are not in `state`."""
        away = missing(state, running(self._ask(expected.request(self._array)), time.time()))
        if away:
            self._remark = sentence(away, self._directory)
            say(self._remark)
            write_remark(self._remark)
            self._reported = away
