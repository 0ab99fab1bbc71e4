"""What an agent that goes leaves behind: the newest checkpoint of its node's memory, as a file.

While others of the job train on, their memory has the state. The last to go has to write it, and
where all go together somebody has to: the state would else be that of the last file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Optional

import torch

from slurm_hooks.elastic.log import debug, say
from slurm_hooks.elastic.mailbox import MailboxReader
from slurm_hooks.elastic.script.node_memory import NodeMemory
from slurm_hooks.elastic.script.turn import turn

_CHUNK = 16 << 20


def leave_behind(env: Mapping[str, str], file: str, until: float) -> Optional[bool]:
    """Write the newest copy in memory, of the training that was under way, to `file`, unless that
    holds a step as new. It is written whole or not at all; what is not done at `until` (monotonic
    seconds) is given up. True if it was written, False if there was no time. Does not raise."""
    memory, path = NodeMemory(env, MailboxReader(env).steps()), Path(file)
    step = memory.newest()
    if not file or step < 0:
        return None if time.monotonic() < until else False  # it was not even kept
    draft = _draft(path, env)
    odd = next((place for place in (path, draft) if _is_odd(place)), None)
    if odd is not None:
        say(f"step {step} is not written: {odd} is no ordinary file; an earlier checkpoint counts")
        return None
    if step <= step_on_disk(path):
        return None
    image = memory.read(step)
    if image is None:
        return None
    try:
        _write(draft, {"step": step, "content": image.peek()}, until)
        with turn(env):
            _put(draft, path, step)
        return True
    except TimeoutError:
        say(f"no time is left to write step {step} to {path}: an earlier checkpoint counts")
        return False
    except (OSError, ValueError, RuntimeError, MemoryError) as error:
        say(f"step {step} cannot be written: {error}; an earlier checkpoint counts")
    finally:
        with suppress(OSError):
            draft.unlink()
    return None


def step_on_disk(path: Path) -> int:
    """Which step a file holds, -1 if there is none or it is damaged."""
    try:
        return int(torch.load(path, map_location="cpu", weights_only=True, mmap=True)["step"])
    except FileNotFoundError:
        return -1
    except Exception as error:  # whatever torch makes of junk
        debug(f"reading which step {path} holds", error)
        return -1


def _is_odd(place: Path) -> bool:
    """Whether it is there and cannot be a checkpoint; a FIFO is waited at for ever."""
    with suppress(OSError):
        return place.exists() and not place.is_file()
    return False


def _draft(path: Path, env: Mapping[str, str]) -> Path:
    """Not the name that a training process uses, nor that of another fragment."""
    return path.with_name(f"{path.name}.{env.get('MALLEABLE_FRAGMENT', '0')}.new")


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


def _put(draft: Path, path: Path, step: int) -> None:
    """In place of the file, unless others, who train on, have written one as new meanwhile."""
    if step_on_disk(path) < step:
        os.replace(draft, path)
