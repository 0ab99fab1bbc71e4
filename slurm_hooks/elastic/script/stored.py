"""A checkpoint's file as a training finds it when it begins: whole, damaged or not there.

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
_OF_DAMAGE = "PytorchStreamReader"  # torch has no type of error for it
_NOTHING: tuple[int, dict[str, Any]] = (-1, {})


def find_step(path: Path) -> int:
    """Which step the file holds; -1 if there is none, or none that is whole, which is said.
    Raises OSError, and ValueError for a file that is no checkpoint."""
    try:
        found = path.stat()
        return read_step(path)
    except FileNotFoundError:
        return -1
    except DamagedFileError as error:
        _put_aside(path, found, str(error))
        return -1


def read(path: Path) -> tuple[int, dict[str, Any]]:
    """The file's step, and its "content"; (-1, {}) if there is none that is whole, which is said.
    Raises OSError, and what torch.load raises for content that is more than data."""
    for is_last in (False, True):
        try:
            return _read(path)
        except FileNotFoundError:
            break
        except OSError as error:  # another node has replaced it meanwhile
            if error.errno != errno.ESTALE or is_last:
                raise
    return _NOTHING


def _read(path: Path) -> tuple[int, dict[str, Any]]:
    """It is not mapped: a page that cannot be read ends a process, a read that fails does not."""
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


def _put_aside(path: Path, found: os.stat_result, why: str) -> None:
    with turn(os.environ), suppressed(OSError, doing=f"putting {path} aside"):
        if os.path.samestat(found, path.stat()):  # not what others have written meanwhile
            os.replace(path, path.with_name(path.name + _ASIDE))
    say(f"{path} is damaged ({why}): it does not count and is put aside as {path.name}{_ASIDE}")
