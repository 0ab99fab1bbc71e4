"""What an agent that goes leaves behind: the newest checkpoint of its node's memory, as a file.

While others of the job train on, their memory has the state. The last to go has to write it, and
where all go together somebody has to: the state would else be that of the last file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Optional

import torch

from slurm_hooks.elastic.log import say
from slurm_hooks.elastic.mailbox import MailboxReader
from slurm_hooks.elastic.script.draft import Draft
from slurm_hooks.elastic.script.node_memory import NodeMemory
from slurm_hooks.elastic.script.stored_step import step_on_disk

_CHUNK = 16 << 20


def leave_behind(env: Mapping[str, str], file: str, until: float) -> Optional[bool]:
    """Write the newest copy in memory, of the training that was under way, to `file`, unless that
    holds a step as new. It is written whole or not at all; what is not done at `until` (monotonic
    seconds) is given up. True if it was written, False if there was no time. Does not raise."""
    memory, path = NodeMemory(env, MailboxReader(env).steps()), Path(os.path.realpath(file))
    say_what_was_cut_off(memory)
    step = memory.newest()
    if not file or step < 0:
        return None if time.monotonic() < until else False  # it was not even kept
    try:
        return _leave_step(memory, path, step, env, until)
    except TimeoutError:
        say(f"no time is left to write step {step} to {path}: an earlier checkpoint counts")
        return False
    except (OSError, ValueError, RuntimeError, MemoryError) as error:
        say(f"step {step} cannot be written: {error}; an earlier checkpoint counts")
    return None


def say_what_was_cut_off(memory: NodeMemory) -> None:
    """A copy that was not brought to its end, once. For processes that come after those that
    write."""
    step = memory.take_cut_off()
    if step >= 0:
        say(
            f"the process that copied step {step} to the memory of this node was ended before it "
            "was done: an earlier copy or checkpoint counts"
        )


def _leave_step(
    memory: NodeMemory, path: Path, step: int, env: Mapping[str, str], until: float
) -> Optional[bool]:
    image = memory.read(step) if step > step_on_disk(path) else None
    if image is None:
        return None
    draft = Draft(path, env)
    try:
        draft.sweep()
        _write(draft.path, {"step": step, "content": image.peek()}, until)
        size = draft.path.stat().st_size
        if draft.put(step) > step:  # another node was faster
            return None
        say(f"step {step} is left in {path}, {size >> 20} MiB")
        return True
    finally:
        draft.drop()


class _Bounded:
    """A file that takes nothing more after a time; what torch makes of that varies."""

    def __init__(self, file: IO[bytes], until: float) -> None:
        self._file, self._until = file, until

    def write(self, data: Any) -> int:
        view = memoryview(data)
        for at in range(0, len(view), _CHUNK):
            if time.monotonic() > self._until:
                raise TimeoutError
            self._file.write(view[at : at + _CHUNK])
        return len(view)

    def flush(self) -> None:
        self._file.flush()


def _write(draft: Path, data: dict[str, Any], until: float) -> None:
    try:
        with open(draft, "wb") as file:
            bounded: Any = _Bounded(file, until)
            torch.save(data, bounded)
            file.flush()
            os.fsync(file.fileno())
    except (OSError, RuntimeError):
        if time.monotonic() > until:
            raise TimeoutError from None
        raise
