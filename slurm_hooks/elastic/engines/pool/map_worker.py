"""`malleable map-worker DIRECTORY`: a worker of `malleable map`, started by `malleable run`.

It claims a task, runs it, records its end, and claims the next. At a notice (SIGURG) it begins no
further task, and its present task gets the rest of the notice. At SIGTERM the task gets SIGTERM. A
task that was stopped is given back, to be done again. A worker that finds no task ends with 0. The
guard, a worker without a task, stays until all tasks have ended: others may give tasks back.
"""

from __future__ import annotations

import os
import random
import secrets
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from slurm_hooks.elastic.agent.options import number
from slurm_hooks.elastic.agent.workers_here import request_of
from slurm_hooks.elastic.batch.wish import WishError, write_wish
from slurm_hooks.elastic.engines.pool.task_files import TaskFiles, read_inputs
from slurm_hooks.elastic.log import debug, say, suppressed
from slurm_hooks.elastic.signals import SignalListener
from slurm_hooks.protocol.map_directory import Order, read_order
from slurm_hooks.protocol.tasks import (
    State,
    Task,
    Worker,
    ended,
    given_back,
    is_earlier_run,
)

POLL_S = 0.2
BEAT_S = 5.0
LOST_S = 60.0  # without a beat; the clocks of nodes are not compared
WAIT_S = 1.0  # between two looks of the guard
LOOKS = 3
SPARE_S = 8.0  # of the notice, for the task's own end and what follows
NOTICE_S = 20.0


@dataclass
class Sightings:
    """When the beat of each task last changed, by the clock of this process."""

    lost_s: float = LOST_S
    _seen: dict[str, tuple[int, float]] = field(default_factory=dict)

    def is_lost(self, task: Task, mark: int, now: float) -> bool:
        """Tell whether its owner has been silent for too long."""
        known = self._seen.get(task.name)
        if known is None or known[0] != mark:
            self._seen[task.name] = (mark, now)
            return False
        return now - known[1] >= self.lost_s


class MapWorker:
    """Methods raise OSError if the directory cannot be reached."""

    def __init__(self, files: TaskFiles, me: Worker, env: Mapping[str, str]) -> None:
        self._files = files
        self._me = me
        self._env = env
        self._order: Order = read_order(files.place)
        self._inputs = read_inputs(files.place)
        self._signals = SignalListener()
        self._signals.silence()
        self._sightings = Sightings()
        self._notice_s = number(env.get("MALLEABLE_NOTICE_S", "")) or NOTICE_S
        self._looks = 0
        self._unit = unit_of(env)
        self._most = max(1, number(env.get("MALLEABLE_MAX", "")) // self._unit)

    def work(self) -> None:
        """Work until no task is left here, or this worker has to leave."""
        self._take_back_own()
        while not self._is_leaving:
            tasks = self._files.all()
            waiting = [task for task in tasks if task.state is State.TODO]
            if waiting and not self._files.is_stopped:
                self._files.leave()
                self._wish(tasks)
                if not self._do_all(waiting):  # others have them, or the list is old
                    self._signals.wait_end(POLL_S)
                continue
            others = [task for task in tasks if task.state is State.RUN]
            is_open = others or self._may_miss(tasks)
            if not (is_open and self._files.is_guard()):
                break
            self._take_back_lost(others)
            self._signals.wait_end(WAIT_S)
        self._files.leave()

    def _may_miss(self, tasks: Sequence[Task]) -> bool:
        """Tell whether some tasks are missing from the list, in this look but not in several looks
        in a row. A file that is renamed while a directory is listed may be missing.
        """
        is_whole = len({task.number for task in tasks}) >= len(self._inputs)
        self._looks = 0 if is_whole else self._looks + 1
        return 0 < self._looks < LOOKS

    @property
    def _is_leaving(self) -> bool:
        return self._signals.is_terminated or self._signals.has_notice

    def _take_back_own(self) -> None:
        self._files.forget_earlier_runs()
        for task in self._files.all():
            if task.state is State.RUN and is_earlier_run(task.owner, self._me):
                self._files.move(task, given_back(task))

    def _take_back_lost(self, running: Sequence[Task]) -> None:
        for task in running:
            if self._sightings.is_lost(task, self._files.age_mark(task), time.monotonic()):
                say(f"the worker of task {task.number} is lost; the task will run again")
                self._files.move(task, given_back(task))

    def _do_all(self, waiting: Sequence[Task]) -> bool:
        """Do all tasks that no other worker claims, and tell whether it did any.

        The order begins with the first tasks, a little different in each worker. Tasks that may
        have killed their worker come last.
        """
        spread, has_worked = 2 * self._most, False

        def turn(task: Task) -> tuple[int, float]:
            return task.interrupted, task.number + random.uniform(0, spread)

        for task in sorted(waiting, key=turn):
            if self._is_leaving or self._files.is_stopped:
                break
            mine = self._files.claim(task)
            if mine is not None:
                has_worked = True
                self._do(mine)
        return has_worked

    def _do(self, task: Task) -> None:
        began = time.time()
        try:
            code = self._run(task)
        except (OSError, ValueError) as error:  # ValueError: an input with a NUL in it
            if isinstance(error, OSError) and error.filename is None:
                raise
            said = f"cannot run it: {error}\n"
            self._files.draft(task, "err").write_text(said, errors="backslashreplace")
            code = 127
        if code is None:
            self._files.discard(task)
            self._files.move(task, given_back(task))
            return
        after = ended(task, code, self._order.retries)
        if self._files.age_mark(task):  # still ours
            seconds = round(time.time() - began, 3)
            result = {"exit_code": code, "seconds": seconds, "host": os.uname().nodename}
            self._files.publish(task, {**result, "tries": 1 + task.failed + task.interrupted})
            self._files.move(task, after)
        if after.state is State.FAILED and not self._order.keep_going:
            self._files.stop()

    def _run(self, task: Task) -> Optional[int]:
        """Return the exit code as a shell has it, or `None` if the task was interrupted."""
        text = self._inputs[task.number - 1]
        env = {**self._env, "MALLEABLE_TASK": str(task.number), "MALLEABLE_INPUT": text}
        paths = (self._files.draft(task, kind) for kind in ("out", "err"))
        out, err = (path.open("wb") for path in paths)
        with out, err:
            words = self._order.words(text)
            child = subprocess.Popen(
                words, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )
            is_ours = self._watch(child, task)
        if child.returncode:
            time.sleep(POLL_S)  # Slurm's signals reach the task and this process in any order
        if not is_ours or (child.returncode and self._is_leaving):
            return None
        return child.returncode if child.returncode >= 0 else 128 - child.returncode

    def _watch(self, child: subprocess.Popen[bytes], task: Task) -> bool:
        """Watch until it has ended, and tell whether the task has remained ours."""
        next_beat, over = time.monotonic() + BEAT_S, float("inf")
        is_ours, is_asked = True, False
        while True:
            try:
                child.wait(POLL_S)
                return is_ours
            except subprocess.TimeoutExpired:
                now = time.monotonic()
            if now >= next_beat:
                next_beat = now + BEAT_S
                with suppressed(OSError, doing="showing that this worker lives"):
                    is_ours = self._files.beat(task)
            if self._signals.has_notice:
                over = min(over, now + max(0.0, self._notice_s - SPARE_S))
            if not is_asked and (self._signals.is_terminated or not is_ours or now >= over):
                child.send_signal(signal.SIGTERM)  # once: it may be saving
                is_asked = True

    def _wish(self, tasks: Sequence[Task]) -> None:
        """Tell Slurm for how many nodes there is work, once for each number."""
        workers = wish_for(tasks, self._most)
        nodes = workers and workers * self._unit
        if nodes is None or not self._files.is_first(f"wish.{self._me.job}.{nodes}"):
            return
        try:
            write_wish(self._env, str(nodes))
        except WishError as error:
            debug("telling how many tasks are left", error)


def identity(env: Mapping[str, str]) -> Worker:
    """Return the run of the element to which this environment belongs."""
    return Worker(
        number(env.get("SLURM_ARRAY_JOB_ID", "")),
        number(env.get("SLURM_ARRAY_TASK_ID", "")),
        number(env.get("SLURM_RESTART_COUNT", "")),
        secrets.token_hex(4),
    )


def unit_of(env: Mapping[str, str]) -> int:
    """Return how many nodes, GPUs or tasks, as Slurm counts them, a worker uses."""
    request = request_of(env)
    return request.unit if request else max(1, number(env.get("MALLEABLE_UNIT", "")))


def wish_for(tasks: Iterable[Task], most: int) -> Optional[int]:
    """Return how many workers to wish for, or `None` for no wish.

    It is a power of two and at least twice the number of tasks that are left, so that no working
    fragment is asked to leave. It is `None` if that is `most` or more, or if no task waits.
    """
    states = [task.state for task in tasks]
    left = sum(state in (State.TODO, State.RUN) for state in states)
    if State.TODO not in states:
        return None
    workers: int = 1 << (2 * left - 1).bit_length()
    return workers if workers < most else None


def main(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Return the exit code: 0 if no task is left for this worker."""
    if len(argv) != 1:
        say("usage: malleable map-worker DIRECTORY, as `malleable map` starts it")
        return os.EX_USAGE
    me = identity(env)
    try:
        MapWorker(TaskFiles(Path(argv[0]), me), me, env).work()
    except (OSError, ValueError) as error:
        say(f"{argv[0]}: {error}")
        return 1
    return 0
