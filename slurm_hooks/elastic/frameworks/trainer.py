"""The Trainer of Hugging Face transformers. It resumes at the step at which it was stopped, from
the copy in memory or the newest whole checkpoint, without a line in the script.

Written against transformers 5.23. The script's own checkpoints go on unchanged.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch.distributed as dist

from slurm_hooks.elastic.frameworks.entry import is_worker, say_once
from slurm_hooks.elastic.frameworks.step_memory import StepMemory, end_open, harmless
from slurm_hooks.elastic.frameworks.whole import STATE, instead_of, newest_whole, step_of
from slurm_hooks.elastic.log import say
from slurm_hooks.elastic.mailbox import MailboxReader
from slurm_hooks.elastic.names import OWN_CHECKPOINTS, TRANSFORMERS, refusal
from slurm_hooks.elastic.script.observation import see_end

_EPOCH = "_run_epoch"
_FLAGS = ("should_log", "should_evaluate", "should_save")


def get_ready(module: ModuleType) -> None:
    """Prepare transformers.trainer after its import."""
    if line := refusal("transformers", TRANSFORMERS, OWN_CHECKPOINTS):
        say_once(line)
        return
    trainer: Any = module.Trainer
    plain, save, base = trainer.train, trainer._save_checkpoint, module.TrainerCallback
    kind = type("MalleableCallback", (_Callback, base), {})

    def train(self: Any, resume_from_checkpoint: Any = None, *words: Any, **named: Any) -> Any:
        if not is_worker(os.environ):
            return plain(self, resume_from_checkpoint, *words, **named)
        is_sharded = self.is_fsdp_enabled or self.is_deepspeed_enabled
        if is_sharded:
            say("the state is sharded: training resumes from the last checkpoint")
        is_trial = named.get("trial", words[0] if words else None) is not None
        if is_sharded or is_trial:  # another process may try another set of parameters
            end_open()
            place, _ = _on_disk(self, resume_from_checkpoint)
            done = plain(self, place, *words, **named)
            see_end()
            return done
        memory = StepMemory()
        callback = kind(self, memory)
        self.add_callback(callback)
        place = _place(self, resume_from_checkpoint, memory, callback)
        try:
            done = plain(self, place, *words, **named)  # after an error the memory is kept
        finally:
            vars(self).pop(_EPOCH, None)
        see_end()
        memory.end()
        with suppress(ValueError):  # the script has removed it
            self.remove_callback(callback)
        return done

    def save_checkpoint(self: Any, *words: Any, **named: Any) -> Any:
        with MailboxReader(os.environ).busy():
            return save(self, *words, **named)

    trainer.train, trainer._save_checkpoint = _as(plain, train), _as(save, save_checkpoint)


def _as(plain: Any, instead: Any) -> Any:
    instead.__name__, instead.__doc__, instead.__wrapped__ = plain.__name__, plain.__doc__, plain
    return instead


def _place(trainer: Any, resume_from: Any, memory: StepMemory, callback: _Callback) -> Any:
    """Return the place from which the Trainer resumes, the same in all processes."""
    place, on_disk = _on_disk(trainer, resume_from)
    step, content = memory.load()
    if not content or on_disk > step:
        return place
    if not memory.fits(step, content["model"], trainer.model):
        return place
    if memory.is_over and not hasattr(trainer, _EPOCH):
        return place  # this version would make a further step
    if memory.is_over:
        vars(trainer)[_EPOCH] = partial(_skip_epoch, trainer)
    say(f"resuming at step {step}, kept in memory")
    return _as_directory(trainer, callback, content)


def _skip_epoch(trainer: Any, **_: Any) -> None:
    """All steps are done. The Trainer itself looks for that only after a further step."""
    trainer.control.should_training_stop = True


def _on_disk(trainer: Any, resume_from: Any) -> tuple[str | None, int]:
    """Return the checkpoint to resume from and its step, -1 if unknown, the same in all processes.

    The first process looks for all, since it must open each file of a checkpoint to see whether it
    is whole.
    """
    all_ = [(None, -1)] if _rank() else [_look(trainer, resume_from)]
    if dist.is_initialized() and dist.get_world_size() > 1:
        dist.broadcast_object_list(all_, 0)
    return all_[0]


def _rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def _look(trainer: Any, resume_from: Any) -> tuple[str | None, int]:
    if not resume_from:
        return None, -1
    if resume_from is True:
        place = newest_whole(Path(trainer.args.output_dir))
    else:
        place = instead_of(Path(resume_from))
    if place is None:
        say(f"no whole checkpoint in {trainer.args.output_dir} yet: starting from the beginning")
        return None, -1
    if resume_from is not True and str(place) != str(Path(resume_from)):
        say(f"{resume_from} is not whole: resuming from {place}")
    return str(place), step_of(place)


def _as_directory(trainer: Any, callback: _Callback, content: dict[str, Any]) -> str:
    """Return a directory that holds only the Trainer's own state. The other parts are loaded from
    memory when the Trainer would read their files.
    """
    place = tempfile.mkdtemp(prefix="malleable-")
    rest = content["rest"]
    state = {**json.loads(rest["state"]), "log_history": json.loads(rest["history"])}
    (Path(place) / STATE).write_text(json.dumps(state))
    methods: dict[str, Callable[..., None]] = {
        "_load_from_checkpoint": partial(_load_model, trainer, content),
        "_load_optimizer_and_scheduler": partial(_load_optimizer, trainer, content),
        "_load_scaler": partial(_load_scaler, trainer, content),
    }
    vars(trainer).update(methods)

    def loaded() -> None:
        for name in methods:
            vars(trainer).pop(name, None)
        shutil.rmtree(place, ignore_errors=True)

    callback.resumed(loaded, rest["pending"])
    return place


def _load_model(trainer: Any, content: dict[str, Any], _: str, model: Any = None) -> None:
    (trainer.model if model is None else model).load_state_dict(content["model"])


def _load_optimizer(trainer: Any, content: dict[str, Any], _: str) -> None:
    trainer.optimizer.load_state_dict(content["optimizer"])
    trainer.lr_scheduler.load_state_dict(content["scheduler"])


def _load_scaler(trainer: Any, content: dict[str, Any], _: str) -> None:
    if "scaler" in content:
        trainer.accelerator.scaler.load_state_dict(content["scaler"])


class _Callback:
    """transformers' events. A step's end may ask for logging, evaluating or saving, which come
    after the boundary. If they are cut off, the next step does them.
    """

    library = "transformers"
    has_failed = False

    def __init__(self, trainer: Any, memory: StepMemory) -> None:
        self._trainer = trainer
        self._memory = memory
        self._rest = _Rest()
        self._loaded: Callable[[], None] = lambda: None
        self._overdue: list[str] = []

    def resumed(self, loaded: Callable[[], None], pending: list[str]) -> None:
        """`loaded` is called when all is loaded. `pending` was asked for and not done."""
        self._loaded, self._overdue = loaded, pending

    @harmless()
    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._loaded()
        trainer = self._trainer
        optimizer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
        objects = {"model": trainer.model, "optimizer": optimizer, "rest": self._rest}
        objects["scheduler"] = trainer.lr_scheduler
        if getattr(trainer.accelerator, "scaler", None) is not None:
            objects["scaler"] = trainer.accelerator.scaler
        self._rest.note(state, [])
        try:
            self._memory.watch(**objects)
        except TypeError as error:
            say(f"{error}; training resumes from the last checkpoint")
            self._memory.end()

    @harmless()
    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._rest.pending:  # done since
            self._reached(state, [])
        self._memory.pause()

    @harmless()
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        for flag in self._overdue:
            setattr(control, flag, True)
        self._overdue = []
        self._reached(state, _asked(control))

    @harmless()
    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if _asked(control):
            self._reached(state, _asked(control))

    @harmless()
    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Log lines. The last of a training follows its last evaluation and checkpoint, and comes
        before the Trainer loads the best model.
        """
        if "train_runtime" in (logs or {}):
            self._reached(state, [])
            self._memory.finish()

    def _reached(self, state: Any, pending: list[str]) -> None:
        self._rest.note(state, pending)
        self._memory.reached(state.global_step)


def _asked(control: Any) -> list[str]:
    return [flag for flag in _FLAGS if getattr(control, flag)]


class _Rest:
    """The Trainer's own state, as texts: a copy of them is free, however long the log is."""

    def __init__(self) -> None:
        self.pending: list[str] = []
        self._state = "{}"
        self._history: list[str] = []
        self._text = "[]"

    def note(self, state: Any, pending: list[str]) -> None:
        """Note the Trainer's present state, and the pending work of this step."""
        self.pending = pending
        fields = (field.name for field in dataclasses.fields(state) if field.name != "log_history")
        self._state = json.dumps({name: getattr(state, name) for name in fields})
        if len(state.log_history) != len(self._history):
            self._history += map(json.dumps, state.log_history[len(self._history) :])
            self._text = f"[{','.join(self._history)}]"

    def state_dict(self) -> dict[str, Any]:
        return {"state": self._state, "history": self._text, "pending": list(self.pending)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `_as_directory`."""
