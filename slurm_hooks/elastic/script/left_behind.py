"""Write the newest checkpoint of a node's memory to a file, when its agent leaves.

While other nodes of the job train on, their memory has the state. The last agent that leaves must
write it. If all leave together, one of them must write it, or the last file would count.
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
    holds a step as new. Does not raise.

    It is written whole or not at all. Work that is not done at `until` (monotonic seconds) is given
    up. Return True if it was written, False if time ran out.
    """
    memory, path = NodeMemory(env, MailboxReader(env).steps()), Path(os.path.realpath(file))
    say_what_was_cut_off(memory)
    step = memory.newest()
    if not file or step < 0:
        return None if time.monotonic() < until else False  # the copy was not even made
    try:
        return _leave_step(memory, path, step, env, until)
    except TimeoutError:
        say(f"no time is left to write step {step} to {path}: training resumes from an earlier one")
        return False
    except (OSError, ValueError, RuntimeError, MemoryError) as error:
        say(f"step {step} cannot be written: {error}; training resumes from an earlier checkpoint")
    return None


def say_what_was_cut_off(memory: NodeMemory) -> None:
    """Log, once, a copy that was cut off. For processes that come after the writing processes."""
    step = memory.take_cut_off()
    if step >= 0:
        say(
            f"the process that copied step {step} to the memory of this node was ended before the "
            "copy was complete: training resumes from an earlier copy or checkpoint"
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
        say(f"step {step} is saved in {path}, {size >> 20} MiB")
        return True
    finally:
        draft.drop()


class _Bounded:
    """A file that takes no data after a time. torch reacts to that in various ways."""

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
