"""Checkpoints that survive a change of size: a file, and a copy in the memory of each node.

The file is written whole or not at all. The copies are for survivors: they are read without the
file system, and since they cost no disk they can be taken often. All processes resume from the same
step, the newest that any of them has. Only data is read, never code.

A script that names its live objects (`watch`) and its step boundaries (`reached`) need not take
copies. The last boundary is written to memory when a process is about to end. In both cases the
agent that leaves last writes its node's copy to the file (left_behind.py).
"""

from __future__ import annotations

import operator
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from slurm_hooks.elastic.log import debug, say
from slurm_hooks.elastic.mailbox import ALL_STEPS, MailboxReader, seat
from slurm_hooks.elastic.script import device_events, observation, stored
from slurm_hooks.elastic.script.file_writer import FileWriter, await_files
from slurm_hooks.elastic.script.image import Image
from slurm_hooks.elastic.script.just_in_time import JustInTime
from slurm_hooks.elastic.script.left_behind import say_what_was_cut_off
from slurm_hooks.elastic.script.node_memory import NodeMemory, packed
from slurm_hooks.elastic.script.optimizer_steps import OptimizerSteps
from slurm_hooks.elastic.script.packed import INSTEAD
from slurm_hooks.elastic.script.peers import Peers
from slurm_hooks.elastic.script.planned_stop import PlannedStop
from slurm_hooks.elastic.script.replicas import difference
from slurm_hooks.elastic.script.stored_step import step_on_disk
from slurm_hooks.elastic.script.watched import Watched

_watching: set[Checkpoint] = set()  # until end()


class Checkpoint:
    """A checkpoint, to be used by all processes.

    `path` is on a file system that all nodes share, or `None` for a checkpoint in memory alone. If
    a script has several, the first that is used has the memory of the node. The others are files
    alone. Checkpoints of the same `owner` share the memory, each with its own `steps`.
    """

    def __init__(
        self, path: str | Path | None, *, owner: str = "", steps: range = ALL_STEPS
    ) -> None:
        self._path = None if path is None else Path(os.path.realpath(path))
        self._name = "a checkpoint without a file" if path is None else os.path.abspath(path)
        self._owner, self._steps = owner or self._name, steps
        self._is_first_here = seat(os.environ) == 0
        self._file = None if self._path is None else FileWriter(self._path)
        self._watched: Watched | None = None
        self._planned_stop: PlannedStop | None = None
        self._just_in_time: JustInTime | None = None
        self._optimizer_steps: OptimizerSteps | None = None
        self._last = -1  # the step of the last load, reached or save
        self._has_complained = False
        self._faults: dict[bool, str] = {}  # of a given content, and of the watched state

    @cached_property
    def _memory(self) -> NodeMemory:
        mailbox = MailboxReader(os.environ)
        if mailbox.claim_memory(self._owner):
            if self._path is not None:
                mailbox.write_file(self._name, self._steps)
            return NodeMemory(os.environ, self._steps)
        if self._is_first_here:
            say(
                f"{self._name} is kept in its file only; another Checkpoint already uses this "
                "node's memory"
            )
        return NodeMemory({})

    @cached_property
    def _peers(self) -> Peers:
        return Peers(os.environ, self._memory)

    def watch(self, content: Callable[[], dict[str, Any]] | None = None, /, **objects: Any) -> None:
        """Name the objects that a checkpoint consists of: live objects with state_dict() and
        load_state_dict(), or a function that returns the content.

        From then on, if another process dies, the state as of the last `reached` is saved. There is
        no copy until then. Call it once, in the main thread. Raises TypeError for an object that
        cannot be kept.
        """
        if self._watched is not None:
            raise TypeError("watch() was called before; name all objects in one call")
        self._watched = Watched(content, objects)
        if self._watched.sharded:
            say(
                f"{self._watched.sharded} is sharded: a lost node takes its part of the state "
                f"along, so training resumes from the last checkpoint that you write; {INSTEAD}"
            )
        elif threading.current_thread() is not threading.main_thread():
            say(
                "watch() was not called in the main thread, the only thread that gets signals: "
                "training resumes from the last checkpoint that you write; call watch() in the "
                "main thread"
            )
        else:
            self._begin()

    def _begin(self) -> None:
        others = list(_watching)
        _watching.add(self)
        for other in others:
            other._stop()
        if others:
            self._complain_of(others[0])
        elif self._memory.is_there:
            self._planned_stop = PlannedStop(self._keep_here)
            self._listen()

    def _complain_of(self, other: Checkpoint) -> None:
        if self._is_first_here:
            MailboxReader(os.environ).write_file("")
            say(
                f"{self._name} is watched while {other._name} still is: after a lost node "
                "they would go on at different steps, so training resumes from the last "
                "checkpoints that you write; name all objects in one watch(), or end() the first "
                "when it is done"
            )

    def _listen(self) -> None:
        if self._is_first_here:
            assert self._watched is not None
            self._just_in_time = JustInTime(self._watched, self._memory)
            self._just_in_time.listen()
            self._optimizer_steps = OptimizerSteps(
                self._just_in_time.begin_change, self._just_in_time.pause_change
            )

    def end(self) -> None:
        """Watch no longer: this training has ended, and the process goes on."""
        _watching.discard(self)
        self._stop()

    def _stop(self) -> None:
        if self._planned_stop is not None:
            self._planned_stop.end()
            self._planned_stop = None
        if self._just_in_time is not None and self._optimizer_steps is not None:
            self._optimizer_steps.end()
            self._just_in_time.end()
            self._just_in_time = None

    def changing(self) -> None:
        """The state changes from now on, until `reached`. torch's optimizers report this
        themselves. A script calls it only if it changes watched objects in another way.
        """
        if self._just_in_time is not None:
            self._just_in_time.begin_change()
            self._just_in_time.pause_change()

    def reached(self, step: int) -> None:
        """`step` steps are done, and the watched objects do not change until the optimizer's part
        of the next step.

        Costs a lock, a look for a planned change, and a copy of all state that is neither parameter
        nor an optimizer's. If a change is planned, the call waits at the step at which all
        processes stop. Raises TypeError if `step` is no number of steps.
        """
        self.mark(step)
        self.pause()

    def mark(self, step: int) -> None:
        """As `reached`, without the wait."""
        step = self._counted(step)
        observation.see_call("reached")
        if self._watched is not None and False not in self._faults:
            self._check_watched(self._watched)
        if self._just_in_time is not None:
            self._just_in_time.reached(step)

    def pause(self) -> None:
        """Wait to be stopped if all processes stop after the step that was marked last."""
        if self._planned_stop is not None:
            self._planned_stop.pause(self._last)

    def _keep_here(self) -> None:
        if (device := device_events.record()) is not None:  # others may wait for its work
            device.synchronize()
        if self._just_in_time is not None:
            self._just_in_time.keep_here()

    def _check_watched(self, watched: Watched) -> None:
        fault = self._fault(None)
        if fault:
            self._stop()
        if fault and not watched.sharded and self._peers.rank == 0:
            say(f"{fault}; training resumes from the last checkpoint that you write")

    def _fault(self, content: dict[str, Any] | None) -> str:
        """Return why this content, or the watched state, is not the state of all processes.

        They compare it once, before it is kept for the first time. Raises as
        replicas.difference.
        """
        is_given = content is not None
        if is_given not in self._faults:
            world, watched = self._peers.world, None if is_given else self._watched
            known = watched.addresses() if watched else ()
            live = (lambda: content) if is_given else self._live
            self._faults[is_given] = difference(live, world, known) if world > 1 else ""
        return self._faults[is_given]

    def resume(self) -> int:
        """Put the watched objects into the state of the newest checkpoint and return its step.

        Without a checkpoint it returns 0 and changes no object. Raises as `load`, ValueError if an
        object is missing there, and TypeError at once if no objects are watched.
        """
        if self._watched is None or not self._watched.has_objects:
            raise TypeError(
                "resume() loads into watched objects: name them in watch() first, or call load() "
                "if watch() has a function"
            )
        step, content = self.load()
        if content:
            self._watched.load(content)
        return step

    def save(self, step: int, content: dict[str, Any] | None = None, to_file: bool = True) -> None:
        """Keep `content` as the state after `step` steps. By default it is the state of the watched
        objects.

        `content` may hold tensors, numbers, texts, lists, tuples, dictionaries, booleans and None,
        the same in all processes. With `to_file=False` it is kept in memory only. Returns when all
        is copied. The file is written in the background, one at a time.

        Raises TypeError if `step` is no number of steps, if a value, which it names by its key,
        cannot be kept, or if the processes hold different states. Raises OSError if this file, or
        the last, cannot be written.
        """
        step = self._counted(step)
        if fault := self._fault(content):
            raise TypeError(fault)
        if not self._is_first_here:
            return
        began = time.monotonic()
        if self._file is not None:
            self._file.check()
        content = self._live() if content is None else content
        file = self._file if to_file and self._peers.rank == 0 else None
        if file is not None:
            file.wait()
        image = self._memory.write(step, content)
        if image is None and self._memory.is_there:
            debug(f"step {step} does not fit into memory")
        if file is not None:
            self._write(file, step, content, image)
        if image is not None and self._peers.has_other_nodes:
            observation.see_saved(began)  # files are seen as any other of torch.save

    def wait(self) -> None:
        """Wait until the file of the last `save` is written. Raises OSError if that failed."""
        if self._file is not None:
            self._file.wait()

    def _counted(self, step: Any) -> int:
        """Return the step as a plain number. A number that goes down gives a line in the job's log.
        Raises TypeError.
        """
        number, before = _number(step), self._last
        self._last = number
        if number < before and not self._has_complained:
            self._has_complained = True
            if os.environ.get("RANK", "0") == "0" and self._memory.is_there:
                say(
                    f"step {number} comes after step {before}: count steps over the whole "
                    "training, not from 0 in each epoch; after a change of size training resumes "
                    "at the largest"
                )
        return number

    def _write(
        self, file: FileWriter, step: int, content: dict[str, Any], image: Image | None
    ) -> None:
        with suppress(MemoryError, OSError):
            image = image or packed(step, content)
        if image is None:  # no room for a copy: the training waits for the file
            file.write({"step": step, "content": content})
            return
        kept = image

        def data() -> dict[str, Any]:
            return {"step": step, "content": kept.peek()}

        file.start(data, self._memory.reading(kept))

    def _live(self) -> dict[str, Any]:
        if self._watched is None or self._watched.sharded:
            raise TypeError("save() needs content= unless unsharded objects are watched")
        return self._watched.content(self._watched.copy({}))

    def load(self) -> tuple[int, dict[str, Any]]:
        """Return the newest step and its content, the same in all processes, or (0, {}).

        To be called by all of them. A damaged file gives a line in the job's log and does not
        count. Raises OSError if the file cannot be read, ValueError if it is no checkpoint, and
        RuntimeError before init_process_group().
        """
        await_files()
        if self._is_first_here:
            say_what_was_cut_off(self._memory)
        image = self._memory.read(self._memory.newest())
        held = image.step if image else -1
        best_held, on_disk = self._peers.newest(held, self._step_on_disk())
        stored_data: dict[str, Any] = {}
        if on_disk > best_held:
            on_disk, stored_data = self._read_file()
            best_held, on_disk = self._peers.newest(held, on_disk)  # it may have been damaged
        self._last = step = max(best_held, on_disk)
        if step < 0:
            return 0, {}
        if on_disk > best_held:
            if self._peers.world == 1:
                return step, stored_data["content"]
            image = self._adopt(step, stored_data.pop("content")) if self._peers.rank == 0 else None
        elif image is not None and image.step < step:
            image = None
        if self._peers.world > 1:
            return step, self._peers.share(step, image)
        assert image is not None
        return step, image.content()

    def forget(self, steps: range) -> None:
        """Drop these steps, in memory and in the file. To be called by all processes."""
        self._memory.forget(steps)
        self._last = -1 if self._last in steps else self._last
        self._remove_file(steps)

    def _remove_file(self, steps: range) -> None:
        if self._path is not None and self._peers.rank == 0:
            with suppress(OSError):
                if step_on_disk(self._path) in steps:
                    self._path.unlink()

    def finish(self, mark: dict[str, Any]) -> None:
        """Keep the last step in memory alone, with this mark beside its content, or forget all
        steps. To be called by all processes.
        """
        if self._is_first_here:
            MailboxReader(os.environ).write_file("")
            if self._just_in_time is None or not self._just_in_time.keep_result(mark):
                self._memory.forget(self._steps)
        self._remove_file(self._steps)

    def _adopt(self, step: int, content: dict[str, Any]) -> Image:
        return self._memory.adopt(step, content) or packed(step, content)

    def _step_on_disk(self) -> int:
        """Return the step that rank 0 finds, -1 in other processes."""
        if self._path is None or self._peers.rank:
            return -1
        step = stored.find_step(self._path)
        return step if step in self._steps else -1

    def _read_file(self) -> tuple[int, dict[str, Any]]:
        if self._path is None or self._peers.rank:
            return -1, {}
        return stored.read(self._path)


def _number(step: Any) -> int:
    """Return the step as an integer. Raises TypeError."""
    try:
        number = operator.index(step)
    except TypeError:
        number = -1
    if 0 <= number < 1 << 63:
        return number
    raise TypeError(f"step={step!r}: give the number of steps done, an integer from 0 on")
