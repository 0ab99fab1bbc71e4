"""Read a checkpoint's file when a training begins: it may be whole, damaged or missing.

A damaged file is renamed to FILE.damaged. The training ignores it, and you may try to repair it.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import torch

from slurm_hooks.elastic.log import say, suppressed
from slurm_hooks.elastic.script.stored_step import DamagedFileError, read_step
from slurm_hooks.elastic.script.turn import turn

_ASIDE = ".damaged"
_OF_DAMAGE = "PytorchStreamReader"  # torch has no error type for damage
_NOTHING: tuple[int, dict[str, Any]] = (-1, {})


def find_step(path: Path) -> int:
    """Return the step of the file, -1 without a whole file. A damaged file gives a line in the
    job's log. Raises OSError, and ValueError for a file that is no checkpoint.
    """
    try:
        status = path.stat()
        return read_step(path)
    except FileNotFoundError:
        return -1
    except DamagedFileError as error:
        _put_aside(path, status, str(error))
        return -1


def read(path: Path) -> tuple[int, dict[str, Any]]:
    """Return the file's step and its "content", or (-1, {}) without a whole file. A damaged file
    gives a line in the job's log. Raises OSError, and torch.load's error for content that is more
    than data.
    """
    for is_last in (False, True):
        try:
            return _read(path)
        except FileNotFoundError:
            break
        except OSError as error:  # another node has replaced it
            if error.errno != errno.ESTALE or is_last:
                raise
    return _NOTHING


def _read(path: Path) -> tuple[int, dict[str, Any]]:
    """Read the file without mapping it: an unreadable page would end the process, a failed read
    does not.
    """
    with open(path, "rb") as file:
        try:
            data = torch.load(file, map_location="cpu", weights_only=True)
        except RuntimeError as error:
            if _OF_DAMAGE not in str(error):
                raise
            _put_aside(path, os.fstat(file.fileno()), str(error).partition(". ")[0])
            return _NOTHING
    if "content" not in data:
        raise ValueError(f"{path} was not written by Checkpoint.save(): give another path")
    return int(data["step"]), data


def _put_aside(path: Path, damaged: os.stat_result, why: str) -> None:
    with turn(os.environ), suppressed(OSError, doing=f"putting {path} aside"):
        if os.path.samestat(damaged, path.stat()):  # others may have written a new file
            os.replace(path, path.with_name(path.name + _ASIDE))
    say(f"{path} is damaged ({why}): it is ignored, and renamed to {path.name}{_ASIDE}")
