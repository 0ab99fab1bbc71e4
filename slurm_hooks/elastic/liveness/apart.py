"""Tell whether other fragments of this job train in another directory of the same name.

If nodes do not share the work directory, each fragment finds an empty directory. Each fragment
would then train alone, all on the same checkpoint. Two witnesses show this: Slurm's Comment of a
fragment, and the shared state. A fragment that has joined a round by its Comment, and was never in
the state, is in another directory. The fragments with the lowest number go on, and the others give
up.

If no fragment reaches the job's minimum, no fragment joins a round. Then each says after a minute
that it waits. A fragment that waits, but not here, is in another directory, and all give up. A
fragment that has only started may need minutes to import torch, or be on a node that died.

If a user has removed the directory of a job that trains, newcomers see the same picture. But then
the others find the new directory, and come after they have stopped their workers. So newcomers wait
for that.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence

from slurm_hooks.elastic.batch.command import answer
from slurm_hooks.elastic.liveness.absent import missing
from slurm_hooks.elastic.liveness.file_system import local_kind
from slurm_hooks.elastic.log import say_if_possible, suppressed
from slurm_hooks.elastic.rendezvous.state import State
from slurm_hooks.protocol.comment import HEAD_WIDTH, Standing, parse

PATIENCE_S = 60.0  # before a round, or in a round, without expected fragments
_ROW = re.compile(r"\d+_(\d{1,9})\|(\d{1,9})\|(.*)")


def request(array_job: str) -> list[str]:
    """Return the command that lists the running elements: name, restart count, begin of Comment."""
    fields = f"-OJobArrayID:|,restartcnt:|,comment:{HEAD_WIDTH}"
    return ["squeue", "--noheader", f"--job={array_job}", "--array", "--states=running", fields]


def said(text: str, *standings: Standing) -> frozenset[int]:
    """Return the fragments with one of these standings in their present run, from the answer to
    `request`.
    """
    rows = (match.groups() for match in map(_ROW.match, text.splitlines()) if match)
    return frozenset(
        int(fragment)
        for fragment, run, comment in rows
        if any(parse(comment).says(standing, int(run)) for standing in standings)
    )


def joined(text: str) -> frozenset[int]:
    """Return the fragments that have joined a round in their present run, from the answer to
    `request`.
    """
    return said(text, Standing.JOINED, Standing.TRAINED)


def elsewhere(state: State, fragments: frozenset[int]) -> tuple[int, ...]:
    """Return which of the fragments that have joined a round never did so here. After a second
    round here that is unknown.
    """
    if state.rounds > 1:
        return ()
    gone = {cause.fragment for cause in state.gone}
    return missing(state, fragments - gone - set(state.round.fragments if state.round else ()))


def is_to_give_up(state: State, others: Sequence[int]) -> bool:
    """Tell whether the `others` go on and this fragment gives up: they train, and the training has
    not begun here or they come first.
    """
    here = [m.fragment for m in state.members]
    return bool(others) and (state.round is None or min(others) < min(here, default=0))


class Apart:
    """The findings of an agent. `why` says why it must give up, or is empty.

    It does not give up before `linger_s` have passed, so that other waiting agents can see it.
    """

    def __init__(
        self,
        directory: str,
        env: Mapping[str, str] = os.environ,
        ask: Callable[[Sequence[str]], str] = answer,
    ) -> None:
        self.why = ""
        self.linger_s = 0.0
        self._answer = ""  # to be judged
        self._asked_at = 0.0
        self._has_waited = False
        self._directory = directory
        self._array = env.get("SLURM_ARRAY_JOB_ID", "")
        self._ask = ask
        self._since, self._formed_at = 0.0, 0
        self._doubts: tuple[float, tuple[int, ...]] | None = None  # since when, of which fragments
        is_own = (
            env.get("MALLEABLE_DIR", "") == directory
        )  # not a directory that the user has chosen
        self._is_known = is_own and self._array.isdigit()
        self._has_asked = not self._is_known

    def holds_up(self, now: float, state: State) -> bool:
        """Tell whether the first round of `state` must wait, since others train and may still come.

        Asks Slurm, within seconds. Fragments that have not come in a minute are elsewhere.
        """
        if self._doubts is None:
            self._doubts = now, self._find(state)
            if is_to_give_up(state, self._doubts[1]):
                who = subject(self._doubts[1], "train")
                be = "is" if len(self._doubts[1]) == 1 else "are"
                wait = f"waiting for up to {PATIENCE_S:.0f} s"
                say_if_possible(f"{who} and {be} not in this directory yet: {wait}")
        since, others = self._doubts
        if not is_to_give_up(state, missing(state, others)):
            return False
        if now - since >= PATIENCE_S:
            self.check(state)
            self._doubts = now, ()
        return now - since < PATIENCE_S

    def check(self, state: State) -> None:
        """Ask Slurm now, within seconds, if expected fragments are not in `state`."""
        others = self._find(state)
        if is_to_give_up(state, others):
            self.why = sentence(others, self._directory)

    def _find(self, state: State) -> tuple[int, ...]:
        if not self._is_known or state.rounds > 1 or not missing(state, state.wanted):
            return ()
        return elsewhere(state, joined(self._ask(request(self._array))))

    def look(self, now: float, state: State) -> None:
        """While this agent trains, check once, in the background, after a minute of its round."""
        formed_at = state.round.formed_at if state.round else 0
        if not self._since or formed_at != self._formed_at:
            self._since, self._formed_at = now, formed_at
        if self._has_asked or now - self._since < PATIENCE_S:
            return
        with suppressed(RuntimeError, doing="starting a thread that asks for fragments elsewhere"):
            self._has_asked = True
            threading.Thread(target=self.check, args=(state,), daemon=True).start()

    def wait(self, now: float, state: State) -> bool:
        """While this agent waits for its first round, ask once a minute, in the background. Return
        True once, after the first minute: then others must hear of it.
        """
        self._judge(state)
        self._asked_at = self._asked_at or now
        if not self._is_known or now - self._asked_at < PATIENCE_S:
            return False
        is_first, self._has_waited = not self._has_waited, True
        with suppressed(RuntimeError, doing="starting a thread that asks for fragments elsewhere"):
            self._asked_at = now
            threading.Thread(target=self._seek, daemon=True).start()
        return is_first

    def _seek(self) -> None:
        self._answer = self._ask(request(self._array))

    def _judge(self, state: State) -> None:
        """Judge by Slurm's answer, if it is there, and by the present members: a fragment may have
        come while Slurm was asked.
        """
        text, self._answer = self._answer, ""
        if not text:
            return
        if others := elsewhere(state, joined(text)):
            self.why = sentence(others, self._directory)
        elif others := elsewhere(state, said(text, Standing.WAITING, Standing.APART)):
            self.linger_s = PATIENCE_S
            self.why = sentence(others, self._directory, "run")


def sentence(fragments: Sequence[int], directory: str, verb: str = "train") -> str:
    """Return the sentence for the user. The directory comes last, since it may be long."""
    who = subject(fragments, verb)
    kind = local_kind(directory)
    where = f"{directory}, on {kind} of this node" if kind else directory
    return (
        f"{who} in another directory of this name: submit from one that all nodes share, which is "
        f"not so for {where}"
    )


def subject(fragments: Sequence[int], verb: str) -> str:
    """Return the first fragments, and their action."""
    names = ", ".join(str(f) for f in fragments[:8])
    return f"fragment {names} {verb}s" if len(fragments) == 1 else f"fragments {names} {verb}"
