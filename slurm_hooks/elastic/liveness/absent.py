"""Fragments that run, according to Slurm, and have not joined in the shared directory.

Where the directory is not the same on all nodes, each fragment finds an empty one and trains
alone, and nothing fails. So the first member of a training checks now and then whether everybody
who is wanted has joined, and if some have been missing for long asks Slurm once whether they run.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from slurm_hooks.elastic.batch import expected
from slurm_hooks.elastic.batch.remark import write_remark
from slurm_hooks.elastic.batch.squeue import answer
from slurm_hooks.elastic.liveness.file_system import local_kind
from slurm_hooks.elastic.liveness.watch import Unchanged
from slurm_hooks.elastic.log import say, suppressed
from slurm_hooks.elastic.rendezvous.state import Outcome, State

PATIENCE_S = 120.0


def missing(state: State, fragments: Iterable[int]) -> tuple[int, ...]:
    """Which of the fragments are not in the state, and have not finished either."""
    here = {m.fragment for m in state.members} | {fragment for fragment, _, _ in state.done}
    return tuple(sorted(set(fragments) - here))


def running(text: str, now: float, patience_s: float = PATIENCE_S) -> tuple[int, ...]:
    """Fragments that have run for so long, from the answer to expected.request."""
    return tuple(
        row.fragment
        for row in expected.rows(text)
        if row.state == "RUNNING" and 0 < row.starts <= now - patience_s
    )


def sentence(fragments: tuple[int, ...], directory: str) -> str:
    """What the user is to read."""
    names = ", ".join(str(f) for f in fragments[:8])
    kind = local_kind(directory)
    doubt = f"it is on {kind} here: do" if kind else "is it on a file system that"
    return (
        f"fragments {names} have been running for minutes but have not joined in {directory}: "
        f"{doubt} all nodes share{' it' if kind else ''}, and does the script start torchrun?"
    )


class Absence:
    """Reports once that fragments are missing. `ask` is given the command and returns what
    squeue prints."""

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

    def look(self, now: float, state: State, token: str) -> None:
        """Ask Slurm if that is due; only the first member does. Does not block."""
        away = missing(state, state.wanted)
        is_first = bool(state.members) and state.members[0].token == token
        quiet_s = self._quiet.observe(now, away)
        is_due = away and is_first and state.outcome is Outcome.OPEN and quiet_s >= PATIENCE_S
        if is_due and not self._has_asked:
            with suppressed(RuntimeError, doing="starting a thread that asks Slurm"):
                threading.Thread(target=self.check, args=(state,), daemon=True).start()
                self._has_asked = True

    def check(self, state: State) -> None:
        """Ask Slurm, and report those that run and are not in `state`."""
        away = missing(state, running(self._ask(expected.request(self._array)), time.time()))
        if away:
            say(sentence(away, self._directory))
            write_remark(sentence(away, self._directory))
