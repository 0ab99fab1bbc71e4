"""Which checkpoint directories of transformers are whole: they are written in place, file by file,
so one whose writer was stopped lacks files or ends in the middle of one. Standard library only.
"""

from __future__ import annotations

import json
import re
import struct
import zipfile
from contextlib import suppress
from pathlib import Path

STATE = "trainer_state.json"  # written last
_NAME = re.compile(r"checkpoint-(\d+)")
_LARGEST_HEADER = 100 << 20  # of a safetensors file


def newest_whole(directory: Path, at_most: int | None = None) -> Path | None:
    """The newest whole checkpoint in a Trainer's output directory, of a step up to `at_most`."""
    found = []
    with suppress(OSError):
        for path in directory.iterdir():
            named = _NAME.fullmatch(path.name)
            if named and (at_most is None or int(named[1]) <= at_most):
                found.append((int(named[1]), path))
    return next((path for _, path in sorted(found, reverse=True) if is_whole(path)), None)


def instead_of(place: Path) -> Path | None:
    """The checkpoint itself if it is whole, else the newest before it in the same directory. What
    is no checkpoint of a Trainer by its name is taken as it is."""
    named = _NAME.fullmatch(place.name)
    if not named or is_whole(place):
        return place
    return newest_whole(place.parent, int(named[1]) - 1)


def is_whole(place: Path) -> bool:
    """Whether nothing is missing in a checkpoint, as far as its files tell."""
    with suppress(OSError, ValueError):
        if step_of(place) >= 0:
            return all(_is_whole_file(path) for path in place.iterdir() if path.is_file())
    return False


def step_of(place: Path) -> int:
    """How many steps were done; -1 if the directory does not tell."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return int(json.loads((place / STATE).read_text())["global_step"])
    return -1


def _is_whole_file(path: Path) -> bool:
    if path.suffix == ".safetensors":
        return _is_whole_safetensors(path)
    if path.suffix in (".pt", ".pth", ".bin"):
        return _is_whole_torch(path)
    if path.name.endswith(".index.json"):
        parts = json.loads(path.read_text())["weight_map"].values()
        return all((path.parent / part).is_file() for part in set(parts))
    return True


def _is_whole_safetensors(path: Path) -> bool:
    """Its header says where the last tensor ends."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8).ljust(8, b"\xff"))
        if length > _LARGEST_HEADER:
            return False
        tensors = json.loads(file.read(length))
    ends = [one["data_offsets"][1] for name, one in tensors.items() if name != "__metadata__"]
    return bool(path.stat().st_size == 8 + length + max(ends, default=0))


def _is_whole_torch(path: Path) -> bool:
    """An archive has its table at the end; what is no archive is an old pickle and not judged."""
    with open(path, "rb") as file:
        is_old = file.read(1) == b"\x80"
    return is_old or zipfile.is_zipfile(path)
