"""PyTorch Lightning: scripts resume at the step at which they were stopped, and end at once on
request, without a line of their own.

Written against lightning 2.6.6. The script's own checkpoints go on unchanged. At the start the
newer of its checkpoints and the copy in memory counts.
"""

from __future__ import annotations

import importlib
import signal
from typing import Any

import torch

from slurm_hooks.elastic.frameworks.lightning_position import Position
from slurm_hooks.elastic.frameworks.step_memory import StepMemory, harmless
from slurm_hooks.elastic.log import say, suppressed
from slurm_hooks.elastic.script.observation import see_end

_WHOLE = frozenset({"DDPStrategy", "SingleDeviceStrategy"})  # each process has all of the state
_COMPOSED = "_HandlersCompose"
# Errors of a missing name in this Lightning. All processes meet them, so all load the same file.
_RENAMED = (AttributeError, ImportError, LookupError, TypeError)


def callback(package: str) -> Any:
    """Return a callback for the package that asks for it, `lightning.pytorch` or
    `pytorch_lightning`.
    """
    base: Any = importlib.import_module(package).Callback
    return type("MalleableCallback", (_Callback, base), {"library": package})()


class _Callback:
    """Lightning's hooks, in the order of their calls.

    They do not raise, with one exception: an error that a single process may meet while it loads.
    That process would train from another step than the others.
    """

    library = "lightning.pytorch"
    has_failed = False

    def __init__(self) -> None:
        self._memory: StepMemory | None = None
        self._position = Position()
        self._step, self._is_boundary = 0, False

    @harmless(_RENAMED)
    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """The processes have met. No checkpoint is loaded yet."""
        if stage != "fit":
            return
        self.end()
        self._position = Position()
        if _WHOLE.isdisjoint(kind.__name__ for kind in type(trainer.strategy).__mro__):
            say(
                f"the state is sharded by {type(trainer.strategy).__name__}: training resumes from "
                "the last checkpoint"
            )
            return
        self._memory = StepMemory()
        step, content = self._memory.load()
        if content:
            _load_from_memory(trainer, self._memory, step, content)

    def state_dict(self) -> dict[str, Any]:
        """Return our part of each checkpoint."""
        return {} if self.has_failed else self._position.state_dict()

    @harmless()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Called if a checkpoint has our part, before there are samplers."""
        self._position.load_state_dict(state_dict)

    @harmless()
    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Checkpoints are loaded, except for the loops."""
        self._position.place_sampler(trainer)

    @harmless()
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """All parts of a checkpoint are there."""
        self._position.place_loop(trainer)
        _end_by_default(trainer)
        self._step = trainer.global_step
        optimizers = {f"optimizer{n}": each for n, each in enumerate(trainer.optimizers)}
        if self._memory is not None:
            try:
                self._memory.watch(model=pl_module, rest=_Rest(trainer), **optimizers)
            except TypeError as error:
                say(f"{error}; training resumes from the last checkpoint")
                self.end()

    @harmless()
    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        """The next step begins, if the last batch ended a step."""
        if self._memory is not None and self._is_boundary:
            self._memory.pause()

    @harmless()
    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """A step boundary, if this batch was the last of a step."""
        self._position.advance(trainer)
        self._is_boundary = trainer.global_step != self._step
        if self._memory is not None and self._is_boundary:
            self._step = trainer.global_step
            self._memory.reached(self._step)

    @harmless()
    def on_train_end(self, *_: Any) -> None:
        """All steps are done."""
        if self._memory is not None:
            self._memory.finish()

    def on_fit_end(self, *_: Any) -> None:
        """Leave other trainings of this process alone."""
        see_end()
        with suppressed(Exception, doing="forgetting what was kept of a training"):
            self.end()

    def end(self) -> None:
        """Keep no further state."""
        if self._memory is not None:
            self._memory.end()
            self._memory = None


def _end_by_default(trainer: Any) -> None:
    """Remove Lightning's handler of SIGTERM, which broadcasts to processes that may be gone. The
    earlier handler is put back.
    """
    if type(signal.getsignal(signal.SIGTERM)).__name__ == _COMPOSED:
        before = trainer._signal_connector._original_handlers.get(signal.SIGTERM)
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


class _Rest:
    """The parts of a Lightning checkpoint other than the states of model and optimizers."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        package = _package_of(trainer)
        self._call: Any = importlib.import_module(f"{package}.trainer.call")
        self._version = str(importlib.import_module(package).__version__)
        self._has_hooks = _has_hooks(trainer)

    def state_dict(self) -> dict[str, Any]:
        trainer, connector = self._trainer, self._trainer._checkpoint_connector
        if self._has_hooks:
            whole = connector.dump_checkpoint(weights_only=False)
            return {k: v for k, v in whole.items() if k not in ("state_dict", "optimizer_states")}
        precision = trainer.precision_plugin
        rest = {
            "pytorch-lightning_version": self._version,
            "epoch": trainer.current_epoch,
            "global_step": trainer.global_step,
            "loops": {"fit_loop": trainer.fit_loop.state_dict()},
            "callbacks": self._call._call_callbacks_state_dict(trainer),
            "lr_schedulers": [c.scheduler.state_dict() for c in trainer.lr_scheduler_configs],
            type(precision).__qualname__: precision.state_dict(),
        }
        precision.on_save_checkpoint(rest)
        return rest

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Does not act: Lightning loads them from the copy that `_load_from_memory` puts in place
        of a file.
        """


def _package_of(trainer: Any) -> str:
    return "pytorch_lightning" if _is_old_name(type(trainer)) else "lightning.pytorch"


def _is_old_name(kind: type) -> bool:
    return any(base.__module__.startswith("pytorch_lightning.") for base in kind.__mro__)


def _has_hooks(trainer: Any) -> bool:
    """Tell whether the script adds its own parts to checkpoints."""
    if trainer.datamodule is not None:
        return True
    things = [trainer.lightning_module, *trainer.callbacks]
    return any(
        not _is_of_framework(getattr(type(thing), "on_save_checkpoint", None)) for thing in things
    )


def _is_of_framework(function: Any) -> bool:
    module = str(getattr(function, "__module__", "lightning."))
    return module.startswith(("lightning.", "pytorch_lightning."))


def _load_from_memory(trainer: Any, memory: StepMemory, step: int, content: dict[str, Any]) -> None:
    """Make Lightning find the copy in memory where it would read a file, unless the file is newer
    or the copy belongs to another model.
    """
    connector, module = trainer._checkpoint_connector, trainer.lightning_module
    plain = connector.resume_start

    def resume_start(path: Any = None, *words: Any, **named: Any) -> None:
        connector.resume_start = plain
        is_ours = memory.fits(step, content["model"], module, module.strict_loading)
        if not is_ours or (path and _step_of(path) > step):
            plain(path, *words, **named)
            return
        connector._ckpt_path = None
        connector._loaded_checkpoint = _as_lightning(content)
        trainer.should_stop = memory.is_over  # a callback may have stopped it before its last step
        say(f"resuming at step {step}, kept in memory")

    connector.resume_start = resume_start


def _step_of(path: Any) -> int:
    """Return a checkpoint file's step, -1 if it is damaged or out of reach."""
    with suppressed(Exception, doing=f"reading the step of {path}"):
        stored = torch.load(path, map_location="cpu", weights_only=False, mmap=True)
        return int(stored["global_step"])
    return -1


def _as_lightning(content: dict[str, Any]) -> dict[str, Any]:
    optimizers = [content[f"optimizer{n}"] for n in range(len(content) - 2)]
    return {**content["rest"], "state_dict": content["model"], "optimizer_states": optimizers}
