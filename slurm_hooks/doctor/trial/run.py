"""Run the active check: submit, wait until each step is reached, and clean up.

At the end it always cancels both jobs by their name, and waits until they are gone. A signal does
not interrupt a command. It ends the check before the next command.
"""

from __future__ import annotations

import enum
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Callable, Optional

from slurm_hooks.doctor.trial import script
from slurm_hooks.doctor.trial.script import Wish
from slurm_hooks.errors import CommandRefused, Exit, MalleableError, RetryLater, UsageError
from slurm_hooks.model import FragmentState, MalleableJob, Said
from slurm_hooks.model.moments import plural
from slurm_hooks.slurm.gateway import read_jobs
from slurm_hooks.slurm.live import Port
from slurm_hooks.slurm.text import Command

LOOK_EVERY_S = 1.0
CLEAN_LIMIT_S = 90.0
PATIENCE_S = 30.0
ORDINARY_S = 3
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Step(enum.Enum):
    """The steps of a malleable job's life, in order."""

    SUBMIT = "submit"
    START = "start"
    GROW = "grow"
    YIELD = "yield"
    RETURN = "return"
    FINISH = "finish"
    CLEAN = "clean up"


@dataclass(frozen=True)
class Done:
    """A step that was reached: its duration and the observation."""

    step: Step
    seconds: float
    saw: str


class StepFailed(MalleableError):
    """A step was not reached. `job_id` is the malleable job's id, 0 without a job."""

    exit_code = Exit.FOUND

    def __init__(self, step: Step, text: str, job_id: int = 0) -> None:
        super().__init__(text)
        self.step, self.job_id = step, job_id


@dataclass
class Trial:
    """A run of the check.

    `port` asks Slurm as the user. `meanwhile` is called between questions, and may run a tick.
    `tell` gets each step that was reached. `explain` gets the id of a job that failed, and returns
    the `reasons`. If a step takes more than `patience_s`, `tell_late` gets reasons once.
    """

    wish: Wish
    port: Port
    partitions: tuple[str, ...]
    tell: Callable[[Done], None]
    meanwhile: Callable[[], None] = lambda: None
    explain: Callable[[int], list[str]] = lambda _: []
    tell_late: Callable[[Step, list[str]], None] = lambda *_: None
    patience_s: float = PATIENCE_S
    job_id: int = 0
    reasons: list[str] = field(default_factory=list)
    done: list[Done] = field(default_factory=list)
    _late: set[Step] = field(default_factory=set)
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Run the whole life. Raises StepFailed, KeyboardInterrupt after a signal, and the errors
        of commands. It always cleans up, or the error names the jobs that are left."""
        with self.signals_noted():
            try:
                self._live()
            except StepFailed as error:
                self.reasons = self.explain(error.job_id) if error.job_id else []
                raise
            finally:
                self._clean()

    def _live(self) -> None:
        deadline = time.monotonic() + self.wish.limit_s
        self._note(Step.SUBMIT, self._submit)
        self._wait(Step.START, deadline, lambda job: _running(job, 1))
        self._wait(Step.GROW, deadline, self._grown)
        self._yield(deadline)
        self._wait(Step.RETURN, deadline, lambda job: _running(job, self.wish.nodes))
        self._wait(Step.FINISH, deadline, self._finished)

    @property
    def asked(self) -> int:
        """The number of commands that the check ran."""
        return len(self.port.asked)

    # -- the steps

    def _submit(self) -> str:
        self.job_id = self._sbatch(script.submit_malleable(self.wish), Step.SUBMIT)
        return f"job {self.job_id}: --malleable=1-{self.wish.nodes}"

    def _sbatch(self, command: Command, step: Step) -> int:
        self._check()
        try:
            said = self.port.ask(command)
        except CommandRefused as error:
            raise StepFailed(step, f"sbatch was refused: {error}", self.job_id) from error
        head = said.strip().split(";")[0]
        if not (head.isascii() and head.isdigit()):
            raise StepFailed(step, f"sbatch printed no job id but {said[:200]!r}", self.job_id)
        return int(head)

    def _grown(self, job: Optional[MalleableJob]) -> str:
        """The nodes, when the job has all. A job that started on all of them did not grow."""
        nodes = _running(job, self.wish.nodes)
        return f"{nodes}, all from the start" if nodes and nodes == self.done[-1].saw else nodes

    def _yield(self, deadline: float) -> None:
        """Submit an ordinary job for a node of ours, and wait until it runs."""
        job = self._look()
        node = min(job.nodes, default="") if job else ""
        if not node:
            raise StepFailed(Step.YIELD, "no fragment runs any more", self.job_id)
        began = time.monotonic()
        partition = self._partition_for(node)
        other = self._sbatch(
            script.submit_ordinary(self.wish, partition, node, ORDINARY_S), Step.YIELD
        )
        while True:
            said = self.port.ask(script.state_of(other)).strip()
            if said.split("|")[0] in ("RUNNING", "COMPLETING", "COMPLETED"):
                break
            if time.monotonic() > deadline:
                text = f"ordinary job {other} in {partition} did not start on {node}: {said!r}"
                raise StepFailed(Step.YIELD, text, self.job_id)
            self._pause(Step.YIELD, began, f"ordinary job {other} in {partition}: {said}")
        self._remember(Step.YIELD, began, f"{node} to job {other} in partition {partition}")

    def _partition_for(self, node: str) -> str:
        if self.wish.ordinary_partition:
            return self.wish.ordinary_partition
        chosen = script.pick_partition(self.port.ask(script.partitions_of(node)), self.partitions)
        if not chosen:
            raise UsageError(
                f"{node} is in no partition for ordinary jobs that is up: name one with "
                "--ordinary-partition"
            )
        return chosen

    def _finished(self, job: Optional[MalleableJob]) -> str:
        """Send the signal until it takes effect. A script dies of it before its first line, so an
        agent must have spoken."""
        active = [f for f in job.fragments if f.is_active] if job else []
        has_begun = self.wish.is_plain or all(f.said is not Said.NOTHING for f in active)
        if active and has_begun:
            with suppress(CommandRefused):  # it ended this moment
                self.port.ask(script.finish(self.wish, self.job_id))
        return _ended(job)

    def _wait(
        self,
        step: Step,
        deadline: float,
        is_so: Callable[[Optional[MalleableJob]], str],
    ) -> None:
        began = time.monotonic()
        while True:
            job = self._look()
            saw = is_so(job)
            if saw:
                return self._remember(step, began, saw)
            if job is None or all(f.mark.stopped for f in job.fragments):
                raise StepFailed(step, f"the job was stopped: {_seen(job)}", self.job_id)
            if time.monotonic() > deadline:
                raise StepFailed(step, f"not within the time limit: {_seen(job)}", self.job_id)
            self._pause(step, began)

    # -- looking and waiting

    def _look(self) -> Optional[MalleableJob]:
        self._check()
        jobs = read_jobs(self.port, self.partitions, ())
        return next((job for job in jobs if job.job_id == self.job_id), None)

    def _pause(self, step: Step, began: float, saw: str = "") -> None:
        """Wait between two questions. `saw` describes another job if the step waits for it."""
        self._check()
        self.meanwhile()
        if step not in self._late and time.monotonic() - began > self.patience_s:
            self._late.add(step)
            self.tell_late(step, [saw] if saw else self.explain(self.job_id))
        self._stop.wait(LOOK_EVERY_S)

    def _check(self) -> None:
        if self._stop.is_set():
            raise KeyboardInterrupt

    def _note(self, step: Step, act: Callable[[], str]) -> None:
        began = time.monotonic()
        self._remember(step, began, act())

    def _remember(self, step: Step, began: float, saw: str) -> None:
        done = Done(step, time.monotonic() - began, saw)
        self.done.append(done)
        self.tell(done)

    def rest(self, seconds: float) -> None:
        """Wait. Within `signals_noted` a signal raises KeyboardInterrupt."""
        self._stop.wait(seconds)
        self._check()

    @contextmanager
    def signals_noted(self) -> Iterator[None]:
        """Within the block signals do not interrupt commands, and are not lost."""
        before = {number: signal.getsignal(number) for number in _SIGNALS}
        for number in _SIGNALS:
            signal.signal(number, lambda *_: self._stop.set())
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    # -- the end

    def _clean(self) -> None:
        """Cancel by name until no job is left twice in a row: a killed sbatch may still have
        submitted a job. Raises RetryLater with the jobs that are left."""
        began, empty, left = time.monotonic(), 0, "unknown"
        while time.monotonic() - began < CLEAN_LIMIT_S:
            with suppress(MalleableError):  # no job to cancel, or no answer: checked next
                self.port.ask(script.cancel_all(self.wish))
            try:
                left = " ".join(self.port.ask(script.what_is_left(self.wish)).split())
            except MalleableError as error:
                left = f"unknown ({error})"
            empty = 0 if left else empty + 1
            if empty == 2:
                return self._remember(Step.CLEAN, began, "no job is left")
            time.sleep(LOOK_EVERY_S / 2)
        todo = f"cancel them with `scancel --name={self.wish.name}`"
        raise RetryLater(f"jobs of this test are left: {left}; {todo}")


def _running(job: Optional[MalleableJob], least: int) -> str:
    """The nodes of the fragments, if at least `least`, else empty."""
    nodes = sorted(job.nodes) if job else []
    return f"on {', '.join(nodes)}" if len(nodes) >= least else ""


def _ended(job: Optional[MalleableJob]) -> str:
    """The end of the fragments, when all have ended, else empty."""
    ended = {FragmentState.DONE, FragmentState.CANCELLED}
    states = [f.state for f in job.fragments] if job else []
    is_over = set(states) <= ended and FragmentState.DONE in states
    done = states.count(FragmentState.DONE)
    return f"{plural(done, 'fragment')} ended with exit code 0" if is_over else ""


def _seen(job: Optional[MalleableJob]) -> str:
    if job is None:
        return "Slurm no longer has the job"
    return "; ".join(
        f"{f.id} is {f.mark.stopped or f.state.value}" + (f" ({f.reason})" if f.reason else "")
        for f in job.fragments
    )
