"""The last step of a training, kept in the memory of the nodes for a framework that has its own
checkpoints.

A script may train several times in a process. The number of a step tells the n-th training of a
process from the others, so a training never resumes from another's state. Each has its own file. If
a node is lost during the second training, the first may run again. Then each resumes from its own
copy.

The last step stays in memory until the next training of the process begins, for a script that
starts again during its last evaluation. But a script may leave out a training whose result it finds
on disk. Then its next training is the n-th. So the last step has a mark, the line of the script
that began the training, and only a training from this line takes it. A line in a loop is no mark:
it begins many trainings, and their last steps are forgotten.
"""

from __future__ import annotations

import dis
import itertools
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

from slurm_hooks.elastic.log import debug, say
from slurm_hooks.elastic.names import OWN_CHECKPOINTS, unsupported
from slurm_hooks.elastic.private_directory import job_directory
from slurm_hooks.elastic.script.checkpoint import Checkpoint
from slurm_hooks.elastic.script.group_backend import device

_RUN_BITS = 32
_runs = itertools.count()
_open: list[StepMemory] = []  # at most the memory of the training that has not ended
_ended: list[range] = []  # the steps of the training that ended last, if they are kept
_MARK = "began_at"
_LIBRARIES = ("slurm_hooks.", "lightning.", "pytorch_lightning.", "transformers.")
_JUMPS = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)


def _file(env: Mapping[str, str], run: int) -> Path | None:
    """Return the file in the job's directory to which the last agent writes this training."""
    place = job_directory(env)
    return place / (f"last-step-{run}.pt" if run else "last-step.pt") if place else None


def end_open() -> None:
    """End a training that has not said that it has ended: it ended by an error, which the script
    has caught.
    """
    while _open:
        _open[0].end()


def harmless(errors: tuple[type[Exception], ...] = (Exception,)) -> Callable[[Any], Any]:
    """Decorate the hooks of a callback, which has a `library` and `has_failed`.

    An error gives a line in the job's log. From then on the callback does not act, and the training
    goes on.
    """

    def decorated(hook: Any) -> Any:
        @wraps(hook)
        def called(self: Any, *words: Any, **named: Any) -> None:
            if self.has_failed:
                return
            try:
                hook(self, *words, **named)
            except errors as error:
                self.has_failed = True
                why = f"{hook.__name__}: {type(error).__name__}: {error}"
                say(unsupported(self.library, why, OWN_CHECKPOINTS))
                for memory in _open:
                    memory.abandon()

        return called

    return decorated


def is_alike(kept: Mapping[str, Any], model: Any, is_strict: bool = True) -> bool:
    """Tell whether the kept state can belong to this model: a script may choose other sizes of its
    model in each process. `is_strict`: no part may be missing.
    """
    try:
        there, here = _shapes(kept), _shapes(model.state_dict())
    except Exception as error:  # parameters whose shapes are not known yet
        debug("comparing the model with the kept model", error)
        return True
    same = all(there[name] == here[name] for name in there.keys() & here.keys())
    return same and (not is_strict or there.keys() == here.keys())


def _shapes(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return shapes by names, without the names of wrappers."""
    return {
        name.removeprefix("module.").replace("_orig_mod.", ""): getattr(value, "shape", None)
        for name, value in state.items()
    }


def _began_at() -> str:
    """Return the lines of the script that began this training, outermost last, or an empty text if
    one of them is in a loop.
    """
    frames = list(itertools.dropwhile(_is_library, _frames()))
    if any(map(_is_in_loop, frames)):
        return ""
    files = (frame for frame in frames if not frame.f_code.co_filename.startswith("<"))
    return " ".join(f"{frame.f_code.co_filename}:{frame.f_lineno}" for frame in files)


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_library(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith(_LIBRARIES)


def _is_in_loop(frame: FrameType) -> bool:
    """Tell whether a later jump leads back before the call that this frame is in."""
    jumps = (step for step in dis.get_instructions(frame.f_code) if step.opcode in _JUMPS)
    return any(jump.argval <= frame.f_lasti < jump.offset for jump in jumps)


def _is_same_for_all(is_same: bool) -> bool:
    """Tell whether it is so in all processes: the script may begin a training at other lines."""
    flag = torch.tensor(float(is_same), device=device())
    if dist.is_initialized() and dist.get_world_size() > 1:
        dist.all_reduce(flag, op=dist.ReduceOp.MIN)
    return bool(flag)


class StepMemory:
    """The memory of the training that begins now. All processes make and use it, after they have
    formed their process group.
    """

    def __init__(self) -> None:
        end_open()
        _open.append(self)
        self._began_at, self.is_over = _began_at(), False
        run = next(_runs)
        self._first = run << _RUN_BITS
        self._is_abandoned = False
        self._steps = range(self._first, self._first + (1 << _RUN_BITS))
        owner, file = _file(os.environ, 0), _file(os.environ, run)
        self._checkpoint: Checkpoint | None = Checkpoint(
            file, owner=os.path.abspath(owner) if owner else "", steps=self._steps
        )
        while _ended:
            self._checkpoint.forget(_ended.pop())

    def load(self) -> tuple[int, dict[str, Any]]:
        """Return the newest step of this training that any process of the job's nodes has kept, and
        its content, or (-1, {}). From then on `is_over` tells whether it is the last step.
        """
        if self._checkpoint is None:
            return -1, {}
        step, content = self._checkpoint.load()
        began_at = content.pop(_MARK, "")
        if began_at and not _is_same_for_all(began_at == self._began_at):
            self._checkpoint.forget(self._steps)
            content = {}
        self.is_over = bool(content and began_at)
        return (step - self._first, content) if content else (-1, {})

    def fits(self, step: int, kept: Mapping[str, Any], model: Any, is_strict: bool = True) -> bool:
        """Tell whether the loaded state can belong to this model. Another model's state is reported
        and dropped, or it would count until this training is as far.
        """
        if is_alike(kept, model, is_strict):
            return True
        say(
            "the step in memory belongs to another model: training resumes from the last checkpoint"
        )
        if self._checkpoint is not None:
            self._checkpoint.forget(range(self._first + step, self._first + step + 1))
        return False

    def watch(self, **objects: Any) -> None:
        """See Checkpoint. A state that cannot be kept gives a line in the job's log."""
        if self._checkpoint is not None and not self._is_abandoned:
            self._checkpoint.watch(**objects)

    def reached(self, step: int) -> None:
        """See Checkpoint. This step's evaluation and checkpoints may follow, so it does not wait
        here for a planned change.
        """
        self.is_over = False
        if self._checkpoint is not None and not self._is_abandoned:
            self._checkpoint.mark(self._first + step)

    def pause(self) -> None:
        """See Checkpoint. The next step begins now."""
        if self._checkpoint is not None and not self._is_abandoned:
            self._checkpoint.pause()

    def abandon(self) -> None:
        """Keep no further step, and let the training go on."""
        self._is_abandoned = True
        if self._checkpoint is not None:
            self._checkpoint.end()

    def finish(self) -> None:
        """The training has made its last step, which is the step reached last."""
        if self._checkpoint is not None and self._began_at and not self._is_abandoned:
            if not self.is_over:  # else it is there
                self._checkpoint.finish({_MARK: self._began_at})
            self.is_over = True

    def end(self) -> None:
        """The training has ended. Unless its last step is kept with its mark, drop all steps."""
        if self._checkpoint is not None:
            _open.remove(self)
            self._checkpoint.end()
            if self.is_over:
                _ended.append(self._steps)
            else:
                self._checkpoint.forget(self._steps)
            self._checkpoint = None
