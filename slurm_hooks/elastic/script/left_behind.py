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

import torch

from slurm_hooks.elastic.log import debug, say
from slurm_hooks.elastic.script.node_memory import NodeMemory

_CHUNK = 16 << 20


def leave_behind(env: Mapping[str, str], file: str, until: float) -> None:
    """Write the newest copy in memory to `file`, unless that holds a step as new. It is
    written whole or not at all; what is not done at `until` (monotonic seconds) is given up.
    Does not raise."""
    memory, path = NodeMemory(env), Path(file)
    step = memory.newest()
    if not file or step < 0 or step <= step_on_disk(path):
        return
    data = memory.read(step)
    if data is None:
        return
    draft = _draft(path, env)
    try:
        _write(draft, data, until)
        _put(draft, path, step)
    except TimeoutError:
        say(f"no time is left to write step {step} to {path}: an earlier checkpoint counts")
    except OSError as error:
        say(f"step {step} cannot be written: {error}; an earlier checkpoint counts")
    finally:
        with suppress(OSError):
            draft.unlink()


def step_on_disk(path: Path) -> int:
    """Which step a file holds, -1 if there is none or it is damaged."""
    try:
        return int(torch.load(path, map_location="cpu", weights_only=True, mmap=True)["step"])
    except FileNotFoundError:
        return -1
    except Exception as error:  # whatever torch makes of junk
        debug(f"reading which step {path} holds", error)
        return -1


def _draft(path: Path, env: Mapping[str, str]) -> Path:
    """Not the name that a training process uses, nor that of another fragment."""
    return path.with_name(f"{path.name}.{env.get('MALLEABLE_FRAGMENT', '0')}.new")


def _write(draft: Path, data: bytes, until: float) -> None:
    with open(draft, "wb") as file:
        for at in range(0, len(data), _CHUNK):
            if time.monotonic() > until:
                raise TimeoutError
            file.write(data[at : at + _CHUNK])
        file.flush()
        os.fsync(file.fileno())


def _put(draft: Path, path: Path, step: int) -> None:
    """In place of the file, unless others, who train on, have written one as new meanwhile."""
    if step_on_disk(path) < step:
        os.replace(draft, path)
