"""Run a study whose workers come and go: every task gets a result, and no trial stays RUNNING.

A task must have a result, and a trial of Optuna is an attempt at it. The study begins with a
waiting trial for each task. A trial whose worker is lost becomes FAIL, and a new trial with the
same parameters waits in its place. Job, fragment and restart count name a worker. A lost worker no
longer touches its file. This file does not depend on the objective: copy it beside your own search.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import TrialPruned, UpdateFinishedTrialError
from optuna.storages.journal import JournalFileOpenLock
from optuna.trial import FrozenTrial, Trial, TrialState

LIVE = {TrialState.WAITING, TrialState.RUNNING, TrialState.COMPLETE, TrialState.PRUNED}
SETTLED = {TrialState.COMPLETE, TrialState.PRUNED}
ERRORS = 3  # of one task, before it is left without a result
LOCK_GRACE_S = 15  # a lock of a worker that was killed is broken after so long
TERMINATED = 128 + signal.SIGTERM


class Leaving(Exception):
    """This worker has to leave. Its trial was saved at the last report."""


@dataclass(frozen=True)
class Worker:
    """A run of a fragment: `name` stays when the fragment comes back, `run` does not."""

    name: str
    run: str

    @property
    def label(self) -> str:
        return f"{self.name}-{self.run}"


def this_worker(env: Mapping[str, str] = os.environ) -> Worker:
    """The worker as Slurm names it. Outside of Slurm host and process name it."""
    if "MALLEABLE_JOB_ID" not in env:
        return Worker(f"{socket.gethostname()}-{os.getpid()}", "0")
    name = f"{env['MALLEABLE_JOB_ID']}-{env.get('MALLEABLE_FRAGMENT', '0')}"
    return Worker(name, env.get("SLURM_RESTART_COUNT", "0"))


def owner_of(trial: FrozenTrial) -> str:
    """The label of its worker, empty until the worker has written it."""
    return str(trial.user_attrs.get("worker", ""))


def lacking(trials: Sequence[FrozenTrial], total: int) -> list[int]:
    """The tasks that no trial has or has settled, without those that have raised ERRORS times."""
    held = {trial.user_attrs.get("task") for trial in trials if trial.state in LIVE}
    errors = [t.user_attrs.get("task") for t in trials if "error" in t.user_attrs]
    return [n for n in range(total) if n not in held and errors.count(n) < ERRORS]


def is_spare(trial: FrozenTrial, trials: Sequence[FrozenTrial]) -> bool:
    """Tell whether an older trial has the same task, so that this trial is superfluous."""
    task = trial.user_attrs.get("task")
    return task is None or any(
        other.number < trial.number and other.state in LIVE and other.user_attrs.get("task") == task
        for other in trials
    )


def lost(trials: Sequence[FrozenTrial], me: Worker, ages_s: Mapping[str, float]) -> list[int]:
    """Numbers of running trials whose worker is lost.

    A worker is lost if it is an earlier run of `me`, or not in `ages_s` (seconds since the file of
    each living worker was touched).
    """
    running = [trial for trial in trials if trial.state is TrialState.RUNNING]
    return [trial.number for trial in running if _is_lost(owner_of(trial), me, ages_s)]


def _is_lost(owner: str, me: Worker, ages_s: Mapping[str, float]) -> bool:
    if owner == me.label:
        return False
    return owner.rpartition("-")[0] == me.name or owner not in ages_s


def last_parameters(trials: Sequence[FrozenTrial], task: int) -> dict[str, Any]:
    """The parameters of the newest attempt at the task, so that its checkpoint still fits."""
    attempts = [trial for trial in trials if trial.user_attrs.get("task") == task]
    return dict(attempts[-1].params) if attempts else {}


class Beats:
    """A file of each worker in the study's directory, touched as long as the worker lives.

    Ages are differences between times of that file system, so clocks of hosts may differ.
    """

    def __init__(self, place: Path, me: Worker, silence_s: float) -> None:
        self._place = place / "workers"
        self._file = self._place / me.label
        self._silence_s = silence_s
        self.every_s = silence_s / 10
        self._place.mkdir(parents=True, exist_ok=True)

    def touched(self) -> dict[str, float]:
        """When the file of each worker that is not silent was touched."""
        self._file.touch()
        times = {}
        for path in self._place.iterdir():
            with suppress(OSError):
                times[path.name] = path.stat().st_mtime
        now = times[self._file.name]
        return {name: at for name, at in times.items() if now - at <= self._silence_s}

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Touch the file until the end of the block, and remove it then."""
        self._file.touch()
        over = threading.Event()
        thread = threading.Thread(target=self._go_on, args=(over,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self._file.unlink(missing_ok=True)

    def _go_on(self, over: threading.Event) -> None:
        while not over.wait(self.every_s):
            with suppress(OSError):  # a file system in trouble: the next one
                self._file.touch()


@dataclass(frozen=True)
class Attempt:
    """The argument of an objective: Optuna's trial, and the place of its checkpoint."""

    trial: Trial
    checkpoint: Path
    leaving: threading.Event

    def report(self, value: float, step: int) -> None:
        """Report this step after its checkpoint is written. Raises TrialPruned, Leaving."""
        self.trial.report(value, step)
        if self.trial.should_prune():
            raise TrialPruned
        if self.leaving.is_set():
            raise Leaving


@dataclass(frozen=True)
class Search:
    """A worker's part in a study of `total` tasks, with its files in `place`."""

    study: optuna.Study
    total: int
    place: Path
    me: Worker
    beats: Beats
    leaving: threading.Event

    def work(self, objective: Callable[[Attempt], float]) -> int:
        """Do trial after trial. Return 0 once all are done, TERMINATED if the worker had to
        leave."""
        with self.beats.going_on():
            seen = self.beats.touched()
            while not self.leaving.is_set():
                trials = self._mended()
                states = [trial.state for trial in trials]
                if TrialState.WAITING in states:
                    self._try_one(objective)
                    seen = self.beats.touched()
                elif TrialState.RUNNING not in states:
                    _tell("finish")
                    return 0
                elif self._others_live(trials, seen):
                    return 0
                else:
                    time.sleep(self.beats.every_s)
            self._mended()
        return TERMINATED

    def _others_live(self, trials: Sequence[FrozenTrial], seen: Mapping[str, float]) -> bool:
        """Tell whether every running trial's worker has shown life since this worker found no work.

        Such a worker finishes the study, or a later worker will miss it.
        """
        now = self.beats.touched()
        owners = {owner_of(t) for t in trials if t.state is TrialState.RUNNING}
        return all(now.get(owner, 0.0) > seen.get(owner, 0.0) for owner in owners)

    def _mended(self) -> list[FrozenTrial]:
        """The trials, once the trials of lost workers have failed and every task has a trial."""
        trials = self._trials()
        if not self._lost(trials) and not lacking(trials, self.total):
            return trials
        with _locked(self.place / "mend"):
            for number in self._lost(self._trials()):
                with suppress(UpdateFinishedTrialError):
                    self.study.tell(number, state=TrialState.FAIL, skip_if_finished=True)
            trials = self._trials()
            for task in lacking(trials, self.total):
                parameters = last_parameters(trials, task)
                self.study.enqueue_trial(parameters, user_attrs={"task": task})
        trials = self._trials()
        _tell("wish", str(sum(t.state in LIVE - SETTLED for t in trials)))
        return trials

    def _lost(self, trials: Sequence[FrozenTrial]) -> list[int]:
        """The lost trials, by the workers' files after the trials were read. A worker has its file
        before it has a trial."""
        return lost(trials, self.me, self._living(trials))

    def _living(self, trials: Sequence[FrozenTrial]) -> dict[str, float]:
        """Labels of workers that live.

        They include the empty label while a trial without an owner is young. Its worker may be
        about to write its label.
        """
        living = self.beats.touched()
        starts = [t.datetime_start for t in trials if t.state is TrialState.RUNNING]
        ages = [time.time() - at.timestamp() for at in starts if at is not None]
        if min(ages, default=0.0) < 10 * self.beats.every_s:
            living[""] = time.time()
        return living

    def _trials(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False)

    def _try_one(self, objective: Callable[[Attempt], float]) -> None:
        trial = self.study.ask()
        try:
            trial.set_user_attr("worker", self.me.label)
            frozen = next(t for t in self._trials() if t.number == trial.number)
            if is_spare(frozen, self._trials()):
                self.study.tell(trial, state=TrialState.FAIL)
                return
            file = self.place / f"task-{frozen.user_attrs['task']}.checkpoint"
            self._settle(trial, objective, Attempt(trial, file, self.leaving))
        except UpdateFinishedTrialError:
            print(f"trial {trial.number}: taken for lost, and given to another worker", flush=True)

    def _settle(
        self, trial: Trial, objective: Callable[[Attempt], float], attempt: Attempt
    ) -> None:
        try:
            self.study.tell(trial, objective(attempt))
        except TrialPruned:
            self.study.tell(trial, state=TrialState.PRUNED)
        except Leaving:
            self.study.tell(trial, state=TrialState.FAIL)
            return  # the next attempt goes on from the checkpoint
        except UpdateFinishedTrialError:
            raise
        except Exception as error:
            traceback.print_exc()
            trial.set_user_attr("error", repr(error))
            self.study.tell(trial, state=TrialState.FAIL)
        attempt.checkpoint.unlink(missing_ok=True)


def _tell(*words: str) -> None:
    """Tell the planner, if there is a planner, how many nodes are useful or that all is done."""
    if "MALLEABLE_JOB_ID" in os.environ and (command := shutil.which("malleable")):
        with suppress(subprocess.TimeoutExpired):
            subprocess.run([command, *words], check=False, timeout=20)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = JournalFileOpenLock(str(path.absolute()), grace_period=LOCK_GRACE_S)
    lock.acquire()
    try:
        yield
    finally:
        with suppress(RuntimeError):  # broken by somebody who waited for too long
            lock.release()
