"""Tell which checkpoint directories of transformers are whole.

They are written in place, file by file. If the writer was stopped, files are missing or the last
file is cut off. Standard library only.
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
    places = []
    with suppress(OSError):
        for path in directory.iterdir():
            named = _NAME.fullmatch(path.name)
            if named and (at_most is None or int(named[1]) <= at_most):
                places.append((int(named[1]), path))
    return next((path for _, path in sorted(places, reverse=True) if is_whole(path)), None)


def instead_of(place: Path) -> Path | None:
    """Return the checkpoint itself if it is whole, else the newest before it in the same directory.
    A place whose name is no Trainer checkpoint's is returned unchanged.
    """
    named = _NAME.fullmatch(place.name)
    if not named or is_whole(place):
        return place
    return newest_whole(place.parent, int(named[1]) - 1)


def is_whole(place: Path) -> bool:
    """Tell whether all parts of a checkpoint are there, as far as its files tell."""
    with suppress(OSError, ValueError):
        if step_of(place) >= 0:
            return all(_is_whole_file(path) for path in place.iterdir() if path.is_file())
    return False


def step_of(place: Path) -> int:
    """Return how many steps were done, -1 if the directory does not tell."""
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
    """Compare with its header, which says where the last tensor ends."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8).ljust(8, b"\xff"))
        if length > _LARGEST_HEADER:
            return False
        tensors = json.loads(file.read(length))
    ends = [t["data_offsets"][1] for name, t in tensors.items() if name != "__metadata__"]
    return bool(path.stat().st_size == 8 + length + max(ends, default=0))


def _is_whole_torch(path: Path) -> bool:
    """An archive has its table at the end. A file that is no archive is an old pickle and counts as
    whole.
    """
    with open(path, "rb") as file:
        is_old = file.read(1) == b"\x80"
    return is_old or zipfile.is_zipfile(path)
