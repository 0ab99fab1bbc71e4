"""The only code that acts on the fragment's own element in Slurm: it writes where the fragment
stands into the Comment, and puts the element back into the held state when the fragment leaves.

One agent of a fragment reports, that of its first node; the others only wait where it waits.
Outside of a job array nothing is reported.
"""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Optional

from slurm_hooks.elastic.batch import job_comment
from slurm_hooks.elastic.batch.expected import ArrayFacts
from slurm_hooks.elastic.batch.lease import ask_all
from slurm_hooks.elastic.batch.news import CONFIRM_S, News
from slurm_hooks.elastic.batch.progress_entry import Progress
from slurm_hooks.elastic.batch.standing import element, is_reporter, run_of
from slurm_hooks.elastic.log import debug, endured, say, suppressed
from slurm_hooks.elastic.signals import SignalListener
from slurm_hooks.words.comment import Comment, Loss, Standing, parse

AGAIN_S = 5.0  # after a failure, and twice as long each time
AGAIN_MOST_S = 60.0
START_S = 5.0
FRESH_S = 20.0  # for so long what was asked at the start is as good as a new answer
FINISH_S = 60.0
SPREAD_S = 0.25  # for each fragment: all join at the same moment, and a site may limit requests
SPREAD_MOST_S = 15.0  # well below `failures.join_s`, after which its absence is told
SPREAD_LIKE = 8  # fragments, where it is not known how many there are
LOOK_S = 20.0  # after `joined` and `trained`: another process may have written in between
_SILENT = (
    "{missing} not found in PATH, perhaps because this is a container: Slurm cannot hear from this "
    "training, which limits its job to one fragment; add Slurm's commands to the container"
)


class OwnElement:
    """Methods do not raise, and are cheap except `report_started`, `report_finished`,
    `report_apart` and `put_back`."""

    def __init__(self, env: Mapping[str, str], signals: SignalListener) -> None:
        self._env = env
        self._element = element(env)
        self._is_reporter = bool(self._element) and is_reporter(env)
        self._run = run_of(env)
        self._signals = signals
        self._standing: Optional[Standing] = None  # that is to be written
        self._facts = ArrayFacts()
        self._asked_at = float("-inf")
        self._wake = threading.Event()
        self._thread: Optional[threading.Thread] = None
        self._has_trained = False
        self._has_begun = False  # of this training something is recorded
        self._has_complained = False
        self._is_mute = False  # Slurm's commands were missing at the start
        self._news = News(self._element if self._is_reporter else "")

    def take_facts(self) -> Optional[ArrayFacts]:
        """What Slurm said of this job's array at the start; None if it did not, or that is too long
        ago."""
        is_fresh = time.monotonic() - self._asked_at < FRESH_S
        return self._facts if is_fresh and self._facts.ends else None

    @property
    def told_loss(self) -> Optional[Loss]:
        """What a hit costs, as the Comment says for certain."""
        return self._news.told_loss

    @property
    def told_progress(self) -> Optional[Progress]:
        """How fast the job trains, as the Comment says for certain."""
        return self._news.told_progress

    def report_started(self) -> None:
        """This process is an agent, and its training is about to begin. It may give up at any
        moment, so this returns when that is recorded, or after START_S; then, or without
        Slurm's commands, it is written in the background. Once a training; what the agent has
        reported of one that goes on stays."""
        self._has_trained = self._has_begun = False
        if not self._is_reporter or self._standing not in (None, Standing.FINISHED):
            return
        self._standing = Standing.STARTED
        missing = job_comment.missing_commands()
        self._is_mute = bool(missing)
        if missing:
            say(_SILENT.format(missing=" and ".join(missing)))
        deadline = time.monotonic() + START_S
        comment = self._ask()
        while time.monotonic() < deadline:
            try:
                self._write(Standing.STARTED, deadline - time.monotonic(), comment)
                return
            except OSError as error:
                debug("writing `started`", error)
                break
            except subprocess.SubprocessError as error:
                debug("writing `started`", error)
                comment = None
                time.sleep(CONFIRM_S)
        self.report(Standing.STARTED)

    def _ask(self) -> Optional[str]:
        """One question for all that is wanted of Slurm at the start; returns the Comment."""
        self._facts = ask_all(self._env)
        self._asked_at = time.monotonic()
        return self._facts.comment

    def report(self, standing: Standing) -> None:
        """Write it in the background, again until it is recorded or another is to be."""
        if not self._is_reporter:
            return
        self._standing = standing
        self._wake.set()
        if self._thread is None:
            thread = threading.Thread(target=self._run_on, daemon=True)
            with suppressed(RuntimeError, doing=f"starting a thread for `{standing.value}`"):
                thread.start()
                self._thread = thread

    def report_trained(self) -> None:
        """There is evidence of progress; reported once a run, by a leaver as the last thing."""
        if self._has_trained:
            return
        self._has_trained = True
        if self._standing is not Standing.LEAVING:
            self.report(Standing.TRAINED)

    def report_loss(self, loss: Optional[Loss]) -> None:
        """What losing a node without notice costs the training, or that nobody knows (None);
        written in the background: `told_loss` says whether it is there."""
        self._news.report_loss(loss)

    def report_progress(self, progress: Progress) -> None:
        """How fast the job trains; written in the background: `told_progress` says whether it is
        there."""
        self._news.report_progress(progress)

    def report_finished(self) -> None:
        """The training has finished; returns when that is recorded, within a minute or so.
        Without it the exit of the script will count as a failure, unless nothing was ever
        recorded, as where Slurm's commands are missing: then this returns at once."""
        if not self._is_reporter or (self._is_mute and job_comment.missing_commands()):
            return
        self._standing = Standing.FINISHED
        deadline = time.monotonic() + FINISH_S
        while not self._is_written(Standing.FINISHED):
            if time.monotonic() > deadline:
                say("the training has finished, but Slurm does not accept the note that says so")
                return
            time.sleep(CONFIRM_S)

    def report_apart(self) -> None:
        """This fragment gives up, since others of its job train in another directory; returns when
        that is recorded, or after FINISH_S."""
        if not self._is_reporter:
            return
        self._standing = Standing.APART
        deadline = time.monotonic() + FINISH_S
        while not self._is_written(Standing.APART) and time.monotonic() < deadline:
            time.sleep(CONFIRM_S)

    def _run_on(self) -> None:
        is_endured = endured("writing to Slurm where this fragment stands")
        pause_s = AGAIN_S
        while True:
            self._wake.clear()
            with is_endured:
                if self._is_up_to_date():
                    pause_s = AGAIN_S
                    self._wake.wait()
                    continue
            is_new = self._wake.wait(pause_s * random.uniform(0.5, 1.0))
            pause_s = AGAIN_S if is_new else min(2 * pause_s, AGAIN_MOST_S)

    def _is_up_to_date(self) -> bool:
        standing = self._standing
        if standing in (None, Standing.FINISHED):
            return True
        if standing not in (Standing.JOINED, Standing.TRAINED):
            return self._is_written(standing)
        self._wake.wait(self._spread_s())
        return standing is not self._standing or self._is_written(standing, self._look_later)

    def _spread_s(self) -> float:
        fragments = len(set(self._facts.wanted)) or SPREAD_LIKE
        return random.uniform(0.0, min(SPREAD_MOST_S, SPREAD_S * fragments))

    def _look_later(self) -> None:
        self._wake.wait(LOOK_S)  # or until there is something else to write

    def _is_written(
        self, standing: Standing, pause: Callable[[], object] = lambda: time.sleep(CONFIRM_S)
    ) -> bool:
        """Write it, and check after a pause that it stays; whether it does, or is outdated."""
        errors = OSError, subprocess.SubprocessError
        with suppressed(*errors, doing=f"writing `{standing.value}`"):
            self._write(standing)
            written_at = time.monotonic()
            pause()
            if self._standing is not standing:
                return True
            found = parse(job_comment.read_since(self._element, written_at))
            return found.says(standing, self._run)
        return False

    def _write(
        self,
        standing: Standing,
        limit_s: float = 2 * job_comment.TIMEOUT_S,
        before: Optional[str] = None,
    ) -> None:
        """Write it unless it is outdated by then. Raises OSError, SubprocessError."""

        def edit(before: Comment) -> Optional[Comment]:
            self._news.told_loss = before.loss
            if self._has_begun and before.says(Standing.FINISHED, self._run):
                self._standing = Standing.FINISHED  # `malleable finish` has said so
            is_current = self._standing is standing
            return replace(before, standing=standing, run=self._run) if is_current else None

        job_comment.change(self._element, edit, limit_s, before)
        self._has_begun = True

    def put_back(self) -> None:
        """Have Slurm put this element back into the held state, and wait for the end that it
        makes of this agent: the batch script must not go on, its exit code would be taken for
        the fragment's. Returns at once outside of an array, else after SIGTERM. A scancel that
        has come already is not undone."""
        if not self._element:
            return
        self._signals.silence()
        is_asked = not self._is_reporter
        if self._has_trained and self._is_reporter:
            self._write_trained()
        while not self._signals.is_terminated:
            is_asked = is_asked or self._requeue()
            self._signals.wait_end(AGAIN_S)

    def _write_trained(self) -> None:
        self._standing = Standing.TRAINED
        with suppressed(OSError, subprocess.SubprocessError, doing="writing `trained`"):
            self._write(Standing.TRAINED)

    def _requeue(self) -> bool:
        """Whether Slurm has accepted. Never once more after that: the element may be in its
        next run by then. Not requeuehold, which hides an operator's hold (22.05): a user's
        hold leaves that as it is, and what is held stays so over a requeue."""
        return self._scontrol("uhold") and self._scontrol("requeue")

    def _scontrol(self, verb: str) -> bool:
        try:
            done = subprocess.run(
                ["scontrol", verb, self._element],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=job_comment.TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            self._complain(verb, str(error))
            return False
        if done.returncode:
            self._complain(verb, done.stderr or done.stdout or f"exit code {done.returncode}")
        return done.returncode == 0

    def _complain(self, verb: str, why: str) -> None:
        """Once: the node is not given back for now, and somebody may wonder. Not if this agent
        is ended anyway."""
        line = f"scontrol {verb} {self._element} failed: {' '.join(why.split())[:200]}"
        if self._has_complained or self._signals.is_terminated:
            debug(line)
            return
        self._has_complained = True
        say(f"{line}; retrying, and keeping this node until it succeeds")
