"""Observe a script that reports nothing itself: steps of torch's optimizers, samples drawn from a
DataLoader, and checkpoints written by torch.save or torch.distributed.checkpoint. Only numbers go
out.

It begins before the script does, so that every name by which the script may know these functions
has the observed function. They return and raise as before. In one case it also repairs:
process_groups.py mends how torch cleans up.
"""

from __future__ import annotations

import functools
import io
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Optional

from slurm_hooks.elastic.log import debug, suppressed
from slurm_hooks.elastic.mailbox import MAILBOX, MailboxReader
from slurm_hooks.elastic.observed import Observed
from slurm_hooks.elastic.script import learned
from slurm_hooks.elastic.script.after_import import AfterImport
from slurm_hooks.elastic.script.observer import Observer, samples_in
from slurm_hooks.elastic.script.process_groups import outlive_reducer
from slurm_hooks.elastic.speed import Speed

SWITCH = "MALLEABLE_OBSERVE"
_observer: Optional[Observer] = None


def is_wanted(env: Mapping[str, str]) -> bool:
    """Tell whether there is an agent to tell, and the user has not switched this off."""
    return MAILBOX in env and env.get(SWITCH) != "0"


def begin(env: Mapping[str, str]) -> None:
    """Observe this process from now on, if that is wanted."""
    global _observer  # noqa: PLW0603
    if _observer is not None or not is_wanted(env):
        return
    _observer = Observer(tell=functools.partial(learned.tell, dict(env)))
    AfterImport(
        {
            "torch.serialization": _see_files,
            "torch.distributed.checkpoint.state_dict_saver": _see_checkpoints,
            "torch.optim.optimizer": _see_steps,
            "torch.utils.data.dataloader": _see_draws,
            "torch.nn.parallel.distributed": _see_parallel,
            "accelerate.data_loader": _see_dispatched,
        }
    ).install()


def announce() -> None:
    """Tell the agent that this process is observed, so that a step is to be expected."""
    if _observer is not None:
        MailboxReader(os.environ).write_speed(Speed())


def see_saved(began: float) -> None:
    """A checkpoint begun at this moment (time.monotonic()) is complete, written by other means than
    torch's. No effect without an observer.
    """
    if _observer is not None:
        _observer.see_saved(began)


def see_end() -> None:
    """This process has made its last step: a training has ended, or the whole script has. A further
    step takes that back. No effect without an observer.
    """
    if _observer is not None:
        _observer.see_end()


def see_call(function: str) -> None:
    """See Observer. No effect without an observer."""
    if _observer is not None:
        _observer.see_call(function)


def see_reported(samples: int) -> None:
    """Note the script's report, also if no observer runs."""
    global _observer  # noqa: PLW0603
    if _observer is None:
        _observer = Observer()
    _observer.see_reported(samples)


def seen() -> Observed:
    """Return the observations of this process."""
    return Observed() if _observer is None else _observer.seen


def _see_steps(module: Any) -> None:
    observer, torch = _observer, module.torch
    assert observer is not None

    def see(optimizer: Any, *_: object) -> None:
        if torch.compiler.is_compiling():
            return  # this hook is not part of compiled code
        try:  # a tenth of what `suppressed` takes
            observer.see_step(optimizer)
        except Exception as error:  # the training goes on
            debug("counting a step", error)

    module.register_optimizer_step_post_hook(see)


def _see_draws(module: Any) -> None:
    observer, kind = _observer, module._BaseDataLoaderIter
    assert observer is not None
    plain = kind.__next__
    trains = sys.modules["torch"].is_grad_enabled

    @functools.wraps(plain)
    def draw(self: Any) -> Any:
        data = plain(self)
        with suppressed(Exception, doing="counting samples"):
            most = getattr(self._index_sampler, "batch_size", 0) if self._auto_collation else 0
            samples = samples_in(data, most) if trains() else 0
            if not observer.is_dispatching:
                observer.see_draw(self, samples)
        return data

    kind.__next__ = draw


def _see_dispatched(module: Any) -> None:
    """If accelerate draws in the first process for all of them, count each process's share."""
    observer, kind = _observer, module.DataLoaderDispatcher
    assert observer is not None
    plain = kind._fetch_batches
    trains = sys.modules["torch"].is_grad_enabled

    @functools.wraps(plain)
    def fetch(self: Any, *args: Any, **kwargs: Any) -> Any:
        observer.is_dispatching = True
        try:
            batches = plain(self, *args, **kwargs)
        finally:
            observer.is_dispatching = False
        with suppressed(Exception, doing="counting samples for all processes"):
            whole = batches[1][0]  # the shapes of the batch, None at the end
            if whole is not None:
                samples = samples_in(whole, 0) / self.state.num_processes if trains() else 0.0
                observer.see_draw(self, samples)
        return batches

    kind._fetch_batches = fetch


def _see_parallel(module: Any) -> None:
    observer, kind = _observer, module.DistributedDataParallel
    assert observer is not None
    plain = kind.__init__

    @functools.wraps(plain)
    def begin(self: Any, *args: Any, **kwargs: Any) -> None:
        plain(self, *args, **kwargs)
        observer.see_parallel(self)
        with suppressed(Exception, doing="owning the process group of a module"):
            outlive_reducer(self)

    kind.__init__ = begin


def _see_files(module: Any) -> None:
    plain = module.save

    @functools.wraps(plain)
    def save(*args: Any, **kwargs: Any) -> Any:
        began, file = time.monotonic(), _file_of(args, kwargs)
        before = _position(file)
        result = plain(*args, **kwargs)
        _pause()
        _note(began, _written(file, before))
        return result

    module.save = save


def _see_checkpoints(module: Any) -> None:
    for name in ("save", "save_state_dict", "async_save"):
        if hasattr(module, name):
            setattr(module, name, _seen_when_done(getattr(module, name)))


def _seen_when_done(plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def save(*args: Any, **kwargs: Any) -> Any:
        began = time.monotonic()
        result = plain(*args, **kwargs)
        _pause()
        future = getattr(result, "upload_completion", result)
        if callable(getattr(future, "add_done_callback", None)):
            future.add_done_callback(functools.partial(_note_success, began))
        else:
            _note(began, None)
        return result

    return save


def _note_success(began: float, future: Any) -> None:
    with suppressed(Exception, doing="reading whether a checkpoint is complete"):
        if future.exception() is None:
            _note(began, None)


def _pause() -> None:
    if _observer is not None:
        _observer.see_pause()


def _note(began: float, size: Optional[int]) -> None:
    if _observer is not None:
        _observer.see_saved(began, size)


def _file_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    return kwargs.get("f") if len(args) < 2 else args[1]


def _position(file: Any) -> int:
    """Return the position of the next bytes in an open file, -1 if unknown."""
    if isinstance(file, io.IOBase):
        with suppressed(Exception, doing="reading where a checkpoint begins"):
            return file.tell()
    return -1


def _written(file: Any, before: int) -> Optional[int]:
    """Return how many bytes were written into it, `None` if unknown."""
    with suppressed(Exception, doing="reading how large a checkpoint is"):
        if isinstance(file, (str, os.PathLike)):
            return os.stat(file).st_size
        if before >= 0:
            return int(file.tell()) - before
    return None
