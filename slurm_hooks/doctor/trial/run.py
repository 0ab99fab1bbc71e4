"""Carries out the active check: submits, looks until each step has come true, and cleans up.

Whatever happens, the last thing is that both jobs are cancelled by their name and are seen to be
gone. A signal does not interrupt a command; it ends the check before the next one.
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
from slurm_hooks.model import FragmentState, MalleableJob
from slurm_hooks.model.plural import plural
from slurm_hooks.slurm.gateway import read_jobs
from slurm_hooks.slurm.live import Port
from slurm_hooks.slurm.text import Command

LOOK_EVERY_S = 1.0
CLEAN_LIMIT_S = 90.0
PATIENCE_S = 30.0
ORDINARY_S = 3
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Step(enum.Enum):
    """What a malleable job goes through, in this order."""

    SUBMIT = "submit"
    START = "start"
    GROW = "grow"
    YIELD = "yield"
    RETURN = "return"
    FINISH = "finish"
    CLEAN = "clean up"


@dataclass(frozen=True)
class Done:
    """A step that came true: how long it took and what was seen."""

    step: Step
    seconds: float
    saw: str


class StepFailed(MalleableError):
    """A step did not come true; `step` is its, `job_id` that of the malleable job (0: none)."""

    exit_code = Exit.FOUND

    def __init__(self, step: Step, text: str, job_id: int = 0) -> None:
        super().__init__(text)
        self.step, self.job_id = step, job_id


@dataclass
class Trial:
    """One check.

    `port` speaks to Slurm as the user, `meanwhile` is called between looks (it may tick), `tell`
    with each step that came true, `explain` with the job that failed, while it is there; its lines
    become the `reasons`. They go to `tell_late`, once a step, when one takes over `patience_s`.
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
        """The whole life. Raises StepFailed, KeyboardInterrupt after a signal, and what commands
        raise; in every case nothing is left, or the error says what is."""
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
        self._wait(Step.GROW, deadline, lambda job: _running(job, self.wish.nodes))
        self._yield(deadline)
        self._wait(Step.RETURN, deadline, lambda job: _running(job, self.wish.nodes))
        self._finish(deadline)

    @property
    def asked(self) -> int:
        """How many commands the check itself ran, most of them to look."""
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

    def _yield(self, deadline: float) -> None:
        """An ordinary job wants a node of ours, and has it when it runs."""
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
        found = script.pick_partition(self.port.ask(script.partitions_of(node)), self.partitions)
        if not found:
            raise UsageError(
                f"{node} is in no partition for ordinary jobs that is up: name one with "
                "--ordinary-partition"
            )
        return found

    def _finish(self, deadline: float) -> None:
        """The signal is sent until it is heard: a fragment may just be starting."""
        began = time.monotonic()
        job = self._look()
        while job and any(f.is_active for f in job.fragments):
            with suppress(CommandRefused):  # it ended this moment
                self.port.ask(script.finish(self.wish, self.job_id))
            self._pause(Step.FINISH, began)
            job = self._look()
            if time.monotonic() > deadline:
                raise StepFailed(Step.FINISH, _seen(job), self.job_id)
        self._wait(Step.FINISH, deadline, _ended, began)

    def _wait(
        self,
        step: Step,
        deadline: float,
        is_so: Callable[[Optional[MalleableJob]], str],
        since: Optional[float] = None,
    ) -> None:
        began = time.monotonic() if since is None else since
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
        found = read_jobs(self.port, self.partitions, ())
        return next((job for job in found if job.job_id == self.job_id), None)

    def _pause(self, step: Step, began: float, saw: str = "") -> None:
        """Between two looks. `saw` says what is waited for, if not for the malleable job."""
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
        """Wait; with the signals noted, KeyboardInterrupt if one comes."""
        self._stop.wait(seconds)
        self._check()

    @contextmanager
    def signals_noted(self) -> Iterator[None]:
        """Meanwhile a signal interrupts no command, and none is lost."""
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
        """Cancel by name until twice in a row nothing is left: an sbatch that was killed may have
        been heard. Raises RetryLater with what is left."""
        began, empty, left = time.monotonic(), 0, "unknown"
        while time.monotonic() - began < CLEAN_LIMIT_S:
            with suppress(MalleableError):  # nothing to cancel, or no answer: it is looked at next
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
        raise RetryLater(f"jobs of this check are left: {left}; {todo}")


def _running(job: Optional[MalleableJob], least: int) -> str:
    """Where the fragments train, if on so many nodes; else empty."""
    nodes = sorted(job.nodes) if job else []
    return f"on {', '.join(nodes)}" if len(nodes) >= least else ""


def _ended(job: Optional[MalleableJob]) -> str:
    """What became of the fragments, once none waits or runs; else empty."""
    ended = {FragmentState.DONE, FragmentState.CANCELLED}
    states = [f.state for f in job.fragments] if job else []
    is_over = set(states) <= ended and FragmentState.DONE in states
    done = states.count(FragmentState.DONE)
    return f"{plural(done, 'fragment')} ended with exit code 0" if is_over else ""


def _seen(job: Optional[MalleableJob]) -> str:
    if job is None:
        return "Slurm no longer knows the job"
    return "; ".join(
        f"{f.id} is {f.mark.stopped or f.state.value}" + (f" ({f.reason})" if f.reason else "")
        for f in job.fragments
    )
