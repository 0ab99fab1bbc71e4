"""The batch process of an element: it runs the user's script, and keeps the job up (keeper.py).

When the script has ended, it ends the whole job if the training has finished, and tries again if
the script has failed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Optional

from slurm_hooks.elastic.agent.options import OptionError
from slurm_hooks.elastic.batch.command import answer, tell
from slurm_hooks.elastic.batch.standing import run_of
from slurm_hooks.elastic.engines.kin import adopt, dies_with
from slurm_hooks.elastic.log import say
from slurm_hooks.elastic.private_directory import DirectoryError, make_private
from slurm_hooks.elastic.selfservice.keeper import (
    AGAIN_S,
    MOST_FAILURES,
    Ended,
    Hopeless,
    Keeper,
    Slurm,
)
from slurm_hooks.elastic.selfservice.notes import Notes
from slurm_hooks.elastic.selfservice.plan import Plan, environment, load
from slurm_hooks.elastic.selfservice.upkeep import Row

POLL_S = 0.5
ANSWER_S = 600.0  # so long the end waits for Slurm's answer
TERMINATED = 128 + signal.SIGTERM
PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGINT)
ORDINALS = ("", "first", "second")


class Element:
    """This element. Methods raise Ended once SIGTERM has come and the script has ended."""

    def __init__(
        self, plan: Plan, env: Mapping[str, str], shared: Path, notes: Notes, keeper: Keeper
    ) -> None:
        self._plan = plan
        self._env = environment(plan, env, shared)
        self._fragment = int(env["SLURM_ARRAY_TASK_ID"])
        self._run = run_of(env)
        self._notes = notes
        self._keeper = keeper
        self._child: Optional[subprocess.Popen[bytes]] = None
        self._is_terminated = False

    def run(self, words: Sequence[str]) -> int:
        """Run the script with these arguments to its end. Return the exit code of the element."""
        self._listen()
        adopt()
        self._notes.come(self._fragment)
        if self._notes.has_finished():
            say("the job has finished: nothing is left to do for this element")
            return 0
        self._meet_others()
        argv = [*self._plan.interpreter, self._plan.script, *words]
        mortal = dies_with(os.getpid())
        self._child = subprocess.Popen(argv, env=self._env, preexec_fn=mortal)  # noqa: PLW1509
        has_told = False
        while (code := self._reap()) is None:
            self._pause(POLL_S)
            if not self._is_terminated:
                self._keeper.attend()
            elif not has_told:
                self._notes.leave(self._fragment)  # the end may be a SIGKILL
                has_told = True
        if self._is_terminated:
            self._await_descendants()
            self._notes.leave(self._fragment)
            raise Ended
        return self._conclude(code)

    def _reap(self) -> Optional[int]:
        """Return the exit code of the script, `None` while it runs. Collect what it has left to
        this process.
        """
        child = self._child
        with suppress(ChildProcessError):
            while child is not None and child.returncode is None:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return None
                if pid == child.pid:
                    child.returncode = code_of(status)
        return child.returncode if child else 0

    # -- signals

    def _listen(self) -> None:
        signal.signal(signal.SIGTERM, self._on_term)
        for number in PASSED_ON:
            signal.signal(number, self._on_other)

    def _on_term(self, signum: int, frame: FrameType | None) -> None:
        """Slurm sends it to every process of the job, and a shell ends at once. This process stays
        until the training has saved.
        """
        self._is_terminated = True

    def _on_other(self, signum: int, frame: FrameType | None) -> None:
        """`--signal=B:USR1@60` reaches this process alone."""
        if self._child is not None:
            with suppress(OSError):
                self._child.send_signal(signum)

    def _await_descendants(self) -> None:
        with suppress(ChildProcessError):
            while True:
                os.wait()

    def _pause(self, limit_s: float) -> None:
        until = time.monotonic() + limit_s
        while not self._is_terminated and time.monotonic() < until:
            time.sleep(min(POLL_S, limit_s))

    # -- the beginning and the end

    def _meet_others(self) -> None:
        while (may_begin := self._keeper.may_begin()) is None and not self._is_terminated:
            self._pause(self._keeper.pause_s)
        if not may_begin:
            self._give_back()

    def _give_back(self) -> int:
        """Have Slurm end this run. Raises Ended, or Hopeless if Slurm does not do it: nobody keeps
        a node for nothing.
        """
        until = time.monotonic() + ANSWER_S
        while not self._is_terminated and time.monotonic() < until:
            self._keeper.requeue()
            self._pause(AGAIN_S)
        if self._is_terminated:
            raise Ended
        raise Hopeless(f"fragment {self._fragment} ends: Slurm does not requeue it")

    def _conclude(self, code: int) -> int:
        if self._keeper.is_outlived():
            raise Ended
        known = self._answer()
        own = self._keeper.own(known)
        if self._is_terminated or (own and not own.is_here):
            raise Ended
        is_over = any(row.has_finished for row in known) or (own and not own.has_agent)
        if code == 0 and is_over and not self._plan.wanted.engine.is_pool:
            self._notes.finish()
            self._keeper.cancel(known, only_pending=True)
        if code == 0 and own and self._plan.wanted.engine.is_pool:
            if own.is_leaving(self._run):  # Slurm's answer is on its way
                return self._give_back()
            self._end_pool(known, own)
            return 0
        if code == 0 and (is_over or own is None):
            return 0
        if own and own.has_trained(self._run):
            self._notes.forget_failures(self._fragment)
        return self._fail(known, code)

    def _end_pool(self, known: Sequence[Row], own: Row) -> None:
        """This worker has found no work. `malleable finish` ends the others. The last that runs
        ends those that wait.
        """
        is_finished = any(row.has_finished for row in known)
        others = [row for row in known if row != own and row.is_on_a_node]
        if is_finished or not others:
            self._notes.finish()
            self._keeper.cancel(known)

    def _answer(self) -> list[Row]:
        """Ask Slurm until it answers: how the job ends depends on it."""
        until = time.monotonic() + ANSWER_S
        while not (known := self._keeper.rows()) and time.monotonic() < until:
            self._pause(AGAIN_S / 2)
            if self._is_terminated:
                raise Ended
        return known

    def _fail(self, known: Sequence[Row], code: int) -> int:
        """Try again, up to MOST_FAILURES. Then the job ends, unless others run well."""
        how = f"failed with exit code {code}" if code else "ended before its training had finished"
        failures = self._notes.fail(self._fragment, self._run)
        if failures < MOST_FAILURES:
            which = ORDINALS[failures]
            say(f"the script {how} for the {which} time; it is tried again")
            return self._give_back()
        others = {row.fragment for row in known if row.is_here} - self._notes.failed()
        if others or not known:
            say(f"fragment {self._fragment} leaves: its script has failed {MOST_FAILURES} times")
        elif self._notes.give_up():
            say(f"the job ends: its script has failed {MOST_FAILURES} times without progress")
            self._keeper.cancel(known)
        return code or 1


def code_of(status: int) -> int:
    """Return the exit code of a process as a shell gives it."""
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def main(words: Sequence[str], env: Mapping[str, str]) -> int:
    """Run an element. `words` are the plan's path and the arguments of the user's script."""
    try:
        plan = load(Path(words[0]))
        shared = plan.directory(Path.cwd(), int(env["SLURM_ARRAY_JOB_ID"]))
        make_private(shared)
        notes = Notes(shared)
        notes.forget_older(os.stat(words[0]).st_mtime)  # slurmctld may have begun to count again
        keeper = Keeper(plan, env, notes, Slurm(answer, tell))
        return Element(plan, env, shared, notes, keeper).run(words[1:])
    except Ended:
        return TERMINATED
    except Hopeless as error:
        say(str(error))
        return 1
    except (OSError, DirectoryError, OptionError, ValueError, TypeError, LookupError) as error:
        say(f"this element cannot run: {error}")
        return os.EX_UNAVAILABLE
