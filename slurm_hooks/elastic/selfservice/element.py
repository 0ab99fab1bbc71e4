"""The batch process of an element: it runs the user's script, and keeps the job up.

It looks at the job from time to time (upkeep.py), leaves before its lease ends, and goes back when
fewer elements than MIN run. When the script has ended, it ends the whole job if the training has
finished, and tries again if the script has failed.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Optional

from slurm_hooks.elastic.agent.options import OptionError, knob
from slurm_hooks.elastic.batch.squeue import answer
from slurm_hooks.elastic.batch.standing import run_of
from slurm_hooks.elastic.engines.kin import adopt
from slurm_hooks.elastic.log import debug, say
from slurm_hooks.elastic.private_directory import DirectoryError, make_private
from slurm_hooks.elastic.selfservice import upkeep
from slurm_hooks.elastic.selfservice.commands import tell
from slurm_hooks.elastic.selfservice.notes import Notes
from slurm_hooks.elastic.selfservice.plan import Plan, environment, load
from slurm_hooks.elastic.selfservice.sending import submit_again
from slurm_hooks.elastic.selfservice.upkeep import Row
from slurm_hooks.words.comment import parse

POLL_S = 0.5
LIST_S = 5.0  # between two looks for notes of the others
EARLY_S = 2.0  # Slurm needs some time until a requeued element waits
MEET_EACH_S = 5.0
FIRST_LOOK_S = 20.0
TERMINATED = 128 + signal.SIGTERM
PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGINT, signal.SIGCONT)
AGAIN_S = 20.0  # until a requeue that Slurm has not carried out is asked for again
MOST_FAILURES = 3
ORDINALS = ("", "first", "second")


def code_of(status: int) -> int:
    """Return the exit code of a process as a shell gives it."""
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


class Element:
    """This element. Slurm's commands may fail: then it is tried again at the next look."""

    def __init__(self, plan: Plan, env: Mapping[str, str], work: Path) -> None:
        self._plan = plan
        self._env = environment(plan, env, work)
        self._array = int(env["SLURM_ARRAY_JOB_ID"])
        self._fragment = int(env["SLURM_ARRAY_TASK_ID"])
        self._name = f"{self._array}_{self._fragment}"
        self._root = plan.root or self._array
        self.shared = Path(self._env["MALLEABLE_DIR"])
        self._run = run_of(env)
        self._notes = Notes(self.shared)
        self._fewest = plan.wanted.fewest if plan.wanted.engine.is_gang else 0
        self._child: Optional[subprocess.Popen[bytes]] = None
        self._is_terminated = self._has_left = False
        self._meet_s = knob(env, "meet_s", upkeep.MEET_S)
        self._rest_s = int(knob(env, "rest_s", upkeep.REST_S))
        self._lease_share = random.random()
        self._next_look = time.monotonic() + FIRST_LOOK_S * random.uniform(0.5, 1.5)
        self._next_listing, self._early_look = 0.0, float("inf")
        self._running = 1
        self._leave_at = self._requeue_at = float("inf")
        self._short_since: Optional[float] = None

    def run(self, words: Sequence[str]) -> int:
        """Run the script with these arguments to its end. Return the exit code of the element."""
        self._listen()
        adopt()
        self._notes.wake(self._fragment)
        if not self._meets_others():
            return self._give_back()
        self._child = subprocess.Popen(
            [*self._plan.interpreter, self._plan.script, *words], env=self._env
        )
        while (code := self._reap()) is None:
            time.sleep(POLL_S)
            if not self._is_terminated:
                self._attend()
        if self._is_terminated:
            self._await_descendants()
            self._notes.leave(self._fragment)
            return TERMINATED
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

    # -- from time to time

    def _meets_others(self) -> bool:
        """Wait for so many elements as MIN asks for. Go back and return False if they do not
        come.
        """
        until = time.monotonic() + self._meet_s
        while self._fewest > 1 and not self._is_terminated:
            known = self._ask()
            if not known or upkeep.running(known) >= self._fewest:
                break
            self._wake(known)
            if time.monotonic() >= until:
                self._rest(known)
                return False
            time.sleep(min(MEET_EACH_S, self._meet_s / 4))
        return not self._is_terminated

    def _attend(self) -> None:
        if time.time() >= self._requeue_at:
            self._requeue_at = time.time() + AGAIN_S
            self._requeue()
        if time.time() >= self._leave_at and not self._has_left:
            self._has_left = True
            if why := tell("scancel", "--quiet", "--signal=URG", "--full", self._name):
                debug(f"telling {self._name} to leave: {why}")
        now = time.monotonic()
        if now >= self._next_listing:
            self._next_listing = now + LIST_S
            self._plan_early_look(now)
        if now < min(self._next_look, self._early_look):
            return
        known = self._ask()
        took_s = time.monotonic() - now if known else upkeep.SLOW
        self._running = upkeep.running(known) or self._running
        self._next_look = now + upkeep.interval_s(self._running, took_s, random.expovariate(1.0))
        self._early_look = float("inf")
        if known:
            self._look(known)

    def _plan_early_look(self, now: float) -> None:
        """Look soon after another element has left, unless one of the others has done so."""
        if not self._notes.left():
            self._early_look = float("inf")
        elif self._early_look == float("inf"):
            self._early_look = now + EARLY_S + random.uniform(0.0, EARLY_S * self._running)

    def _look(self, known: list[Row]) -> None:
        own = self._own(known)
        if own and own.ends:
            self._leave_at = upkeep.leave_at(own.ends, self._plan.lease_s, self._lease_share)
            self._requeue_at = own.ends - upkeep.LAST_S  # a script without an agent does not leave
        if own and own.has_trained(self._run):
            self._notes.forget_failures()
        if any(row.has_finished for row in known):
            return
        if self._is_short(upkeep.running(known)):
            self._rest(known)
            self._requeue_at = 0.0
        else:
            self._wake(known)

    def _is_short(self, running: int) -> bool:
        """Tell whether fewer than MIN have run for a while."""
        now = time.monotonic()
        if running >= self._fewest:
            self._short_since = None
            return False
        self._short_since = self._short_since or now
        self._next_look = min(self._next_look, now + self._meet_s / 2)
        return now - self._short_since >= self._meet_s

    def _own(self, known: list[Row]) -> Optional[Row]:
        return next((row for row in known if row.fragment == self._fragment), None)

    def _ask(self) -> list[Row]:
        """Return the elements of all arrays of this job, none without an answer."""
        arrays = {self._root, self._array}
        if self._plan.mode == "CANCEL":
            arrays |= self._notes.arrays()
        known = upkeep.rows(answer(upkeep.request(arrays, os.getuid())))
        return [row for row in known if row.array in arrays]

    def _wake(self, known: list[Row]) -> None:
        """Let the others start again, now that they may."""
        resting = upkeep.held(known, self._notes.resting())
        self._update([*upkeep.kept_back(known), *resting], "StartTime=now")
        for name in upkeep.names(resting):
            if why := tell("scontrol", "release", name):
                debug(f"scontrol release {name}: {why}")
        if self._plan.mode == "CANCEL":
            self._submit_again(known)
        self._notes.meet(upkeep.settled(known))

    def _update(self, rows: list[Row], word: str) -> None:
        for name in upkeep.names(rows):
            if why := tell("scontrol", "update", f"jobid={name}", word):
                debug(f"{name} {word}: {why}")

    def _submit_again(self, known: list[Row]) -> None:
        """Slurm has cancelled elements here instead of requeueing them."""
        if upkeep.is_cancelled(known, self._root):
            self._cancel(known)
            return
        claimed = [row for row in upkeep.lost(known) if self._notes.claim(row.array, row.fragment)]
        if not claimed:
            return
        array, why = submit_again(self._plan, self._root, [row.fragment for row in claimed])
        if why:
            say(f"{len(claimed)} elements that Slurm took cannot be submitted again: {why}")
        else:
            self._notes.add_array(array)

    def _rest(self, known: list[Row]) -> None:
        """Rest with all others. Those that wait start first, and release this element then."""
        say(
            f"{upkeep.running(known)} of at least {self._fewest} elements run: fragment "
            f"{self._fragment} gives its node back, and comes again in {self._rest_s} s"
        )
        if waiting := upkeep.pending(known):
            self._update(waiting, f"StartTime=now+{self._rest_s}")
            self._notes.rest(self._fragment)
            tell("scontrol", "uhold", self._name)

    # -- the end

    def _conclude(self, code: int) -> int:
        known = self._ask()
        own = self._own(known)
        is_silent = own is not None and parse(own.comment).standing is None
        if code == 0 and (is_silent or any(row.has_finished for row in known)):
            self._end(known)
            return 0
        if code == 0 and self._plan.wanted.engine.is_pool:
            return 0
        return self._fail(known, code or 1)

    def _end(self, known: list[Row]) -> None:
        """No other element needs to start."""
        if waiting := upkeep.pending(known):
            tell("scancel", "--quiet", *upkeep.names(waiting))

    def _fail(self, known: list[Row], code: int) -> int:
        """Try again, up to MOST_FAILURES. Then the job ends, unless others run well."""
        failures = self._notes.fail(self._fragment, self._run)
        if failures < MOST_FAILURES:
            say(
                f"the script failed with exit code {code} for the {ORDINALS[failures]} time; "
                f"it is tried again"
            )
            return self._give_back()
        if {row.fragment for row in known if row.is_here} - self._notes.failed():
            say(f"fragment {self._fragment} ends: its script has failed {failures} times")
            return code
        say(f"the job is cancelled: its script has failed {failures} times without progress")
        self._cancel(known)
        return code

    def _cancel(self, known: list[Row]) -> None:
        arrays = {self._root, self._array, *(row.array for row in known)}
        tell("scancel", "--quiet", *map(str, sorted(arrays)))

    def _give_back(self) -> int:
        """Have Slurm end this element, which then waits again."""
        while not self._is_terminated:
            self._requeue()
            self._await_term(AGAIN_S)
        return TERMINATED

    def _requeue(self) -> None:
        if why := tell("scontrol", "requeue", self._name):
            debug(f"scontrol requeue {self._name}: {why}")

    def _await_term(self, limit_s: float) -> None:
        until = time.monotonic() + limit_s
        while not self._is_terminated and time.monotonic() < until:
            time.sleep(POLL_S)


def main(words: Sequence[str], env: Mapping[str, str]) -> int:
    """Run an element. `words` are the plan's path and the arguments of the user's script."""
    try:
        plan = load(Path(words[0]))
        element = Element(plan, env, Path.cwd())
        make_private(element.shared)
        return element.run(words[1:])
    except (OSError, DirectoryError, OptionError, ValueError, KeyError, IndexError) as error:
        say(f"this element cannot run: {error}")
        return os.EX_UNAVAILABLE
