"""A checkpoint's content as a flat image: its tensors' bytes at fixed places, and a skeleton in
JSON.

So a state goes into memory with a single copy, comes out of it without a copy, and travels in
pieces. Only data is read, never code.

An image has three parts: a page for its keeper, the common part, and the large tensors, each on its
own pages. The common part has the skeleton and the small tensors. Processes may have those
differently, such as statistics of BatchNorm, and they are cheap to send to all.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import torch

PAGE = 1 << 16  # the largest that kernels use
LARGE = 1 << 20  # bytes; smaller tensors belong to the common part
_ALIGN = 64
_MOST_GROUPS = 32
INSTEAD = "use torch.distributed.checkpoint, see Sharded states in the users' pages"


@dataclass(frozen=True)
class Shape:
    """The lengths of an image's parts in bytes. `layout` tells whether the large tensors of two
    images lie in the same places.
    """

    skeleton: int
    common: int
    total: int
    layout: int

    @property
    def large_at(self) -> int:
        """The position of the first large tensor."""
        return _up(PAGE + self.common, PAGE)

    def is_sound(self) -> bool:
        """Tell whether an image can have this shape."""
        return 0 < self.skeleton <= self.common and self.large_at <= self.total


@dataclass(frozen=True)
class _Place:
    """`start` counts from the first small tensor, or from the first large tensor."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    is_large: bool
    start: int
    size: int

    def row(self) -> list[Any]:
        return [self.path, self.dtype, self.shape, self.is_large, self.start, self.size]


@dataclass
class _Walk:
    """The tensors and places so far."""

    tensors: list[torch.Tensor] = field(default_factory=list)
    places: list[_Place] = field(default_factory=list)
    seen: dict[tuple[Any, ...], int] = field(default_factory=dict)
    ends: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})

    def place(self, tensor: torch.Tensor, path: str) -> int:
        """Return its number. Tensors that share their memory (tied weights) get one place."""
        kind = tensor.device, tensor.dtype, tensor.shape, tensor.stride(), tensor.is_conj()
        key = (tensor.data_ptr(), *kind)
        if tensor.numel() and key in self.seen:
            return self.seen[key]
        size = tensor.numel() * tensor.element_size()
        is_large = size >= LARGE
        dtype = str(tensor.dtype).partition(".")[2]
        start = self.ends[is_large]
        self.ends[is_large] = _up(start + size, PAGE if is_large else _ALIGN)
        self.places.append(_Place(path, dtype, tuple(tensor.shape), is_large, start, size))
        self.tensors.append(tensor)
        self.seen[key] = len(self.places) - 1
        return len(self.places) - 1


class Packing:
    """Content on its way into an image. Only `copy_into` reads live tensors. Raises TypeError,
    which names the key, for a value that cannot be kept.
    """

    def __init__(self, content: dict[str, Any]) -> None:
        walk = _Walk()
        try:
            tree = _encode(content, "content", walk)
        except RecursionError:
            raise TypeError("content: is nested too deep, or contains itself") from None
        rows = [place.row() for place in walk.places]
        self._skeleton = json.dumps({"tree": tree, "tensors": rows}).encode()
        self._tensors, self._places = walk.tensors, walk.places
        common = _up(len(self._skeleton), _ALIGN) + walk.ends[False]
        large_at = _up(PAGE + common, PAGE)
        large = [place.row() for place in walk.places if place.is_large]
        layout = int.from_bytes(hashlib.sha256(repr(large).encode()).digest()[:7], "big")
        self.shape = Shape(len(self._skeleton), common, large_at + walk.ends[True], layout)

    def copy_into(self, image: Any) -> None:
        """Make the only copy. Raises TypeError for a tensor that cannot be copied."""
        image[PAGE : PAGE + len(self._skeleton)] = self._skeleton
        with torch.no_grad():
            for place, tensor in zip(self._places, self._tensors):
                try:
                    _tensor(image, _at(place, self.shape), place).copy_(tensor)
                except RuntimeError as error:
                    why = str(error).partition("\n")[0][:200]
                    raise TypeError(f"{place.path}: cannot be copied: {why}") from error

    def largest(self, size: int) -> list[torch.Tensor]:
        """Return live tensors, the largest first, until they have `size` bytes together."""
        chosen, missing = [], size
        for tensor in sorted(self._tensors, key=lambda tensor: tensor.nbytes, reverse=True):
            if missing <= 0:
                break
            chosen.append(tensor)
            missing -= tensor.nbytes
        return chosen


def unpack(shape: Shape, common: Any, large: Any) -> dict[str, Any]:
    """Return the content. Its tensors are views of `common`, a buffer of that part, and of the
    result of `large(start, size)` for a range of the whole image. Raises ValueError if this is no
    image.
    """
    try:
        raw = json.loads(bytes(memoryview(common)[: shape.skeleton]))
        places = [_place(row, shape) for row in raw["tensors"]]
        tensors = _tensors(places, shape, common, large)
        return dict(_decode(raw["tree"], tensors))
    except (KeyError, IndexError, TypeError, AttributeError, RuntimeError, RecursionError) as error:
        raise ValueError(f"not an image of a checkpoint: {error}") from error


def _tensors(places: list[_Place], shape: Shape, common: Any, large: Any) -> list[torch.Tensor]:
    """Return the tensors. Large tensors of the same part of the content share a range, which lives
    as long as any of them.
    """
    tensors: dict[int, torch.Tensor] = {}
    first_small = _up(shape.skeleton, _ALIGN)
    for number, place in enumerate(places):
        if not place.is_large:
            tensors[number] = _tensor(common, first_small + place.start, place)
    for group in _groups([(n, place) for n, place in enumerate(places) if place.is_large]):
        begin = _at(group[0][1], shape)
        end = max(_at(place, shape) + place.size for _, place in group)
        range_ = large(begin, end - begin)
        for number, place in group:
            tensors[number] = _tensor(range_, _at(place, shape) - begin, place)
    return [tensors[number] for number in range(len(places))]


def _groups(large: list[tuple[int, _Place]]) -> list[list[tuple[int, _Place]]]:
    groups = [list(some) for _, some in groupby(large, key=lambda pair: _part(pair[1].path))]
    return groups if len(groups) <= _MOST_GROUPS else [large]


def _part(path: str) -> str:
    return path.split("]", maxsplit=1)[0]


def _at(place: _Place, shape: Shape) -> int:
    first_small = PAGE + _up(shape.skeleton, _ALIGN)
    return place.start + (shape.large_at if place.is_large else first_small)


def _tensor(buffer: Any, offset: int, place: _Place) -> torch.Tensor:
    dtype = getattr(torch, place.dtype)
    if place.size == 0:
        return torch.empty(place.shape, dtype=dtype)
    flat = torch.frombuffer(buffer, dtype=torch.uint8, count=place.size, offset=offset)
    return flat.view(dtype).view(place.shape)


def _place(row: list[Any], shape: Shape) -> _Place:
    path, dtype, lengths, is_large, start, size = row
    place = _Place(str(path), str(dtype), tuple(map(int, lengths)), bool(is_large), start, size)
    end = shape.total if place.is_large else PAGE + shape.common
    if not isinstance(getattr(torch, place.dtype), torch.dtype):
        raise ValueError(f"not an image of a checkpoint: {place.dtype}")
    if not (place.start >= 0 and place.size >= 0 and _at(place, shape) + place.size <= end):
        raise ValueError("not an image of a checkpoint: a tensor lies outside")
    return place


def _encode(value: Any, path: str, walk: _Walk) -> Any:
    if value is None or type(value) is bool:
        return value
    if isinstance(value, torch.Tensor):
        check_whole(value, path)
    if is_plain(value):
        return {"tensor": walk.place(value.detach(), path)}
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    if type(value) is list:
        return list(_each(enumerate(value), path, walk))
    if type(value) is tuple:
        return {"tuple": list(_each(enumerate(value), path, walk))}
    if type(value) is dict:
        return {"dict": _pairs(value, path, walk)}
    if type(value) is OrderedDict:  # a module's carries the versions of its parts
        about = {key: thing for key, thing in vars(value).items() if key == "_metadata"}
        return {"ordered": _pairs(value, path, walk), "about": _encode(about, path, walk)}
    return {"torch": _rare(value, path)}


def is_plain(value: Any) -> bool:
    """Tell whether this is a tensor whose elements lie in memory as they are."""
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        return False
    return value.layout is torch.strided and not value.is_quantized


def is_part(tensor: torch.Tensor) -> bool:
    """Tell whether other processes hold the rest of this tensor."""
    placements = getattr(tensor, "placements", ())  # of a DTensor
    return any(not place.is_replicate() for place in placements)


def check_whole(tensor: torch.Tensor, path: str) -> None:
    """Raise TypeError for a part of a sharded tensor."""
    if is_part(tensor):
        raise TypeError(
            f"{path} is sharded: each process holds another part, so none can be kept for all; "
            f"{INSTEAD}"
        )


def _each(items: Iterable[tuple[Any, Any]], path: str, walk: _Walk) -> Iterator[Any]:
    return (_encode(value, f"{path}[{key!r}]", walk) for key, value in items)


def _pairs(value: dict[Any, Any], path: str, walk: _Walk) -> list[list[Any]]:
    keys = (_encode(key, f"{path}: the key {key!r}", walk) for key in value)
    return [list(pair) for pair in zip(keys, _each(value.items(), path, walk))]


def _rare(value: Any, path: str) -> str:
    """Return other values that torch reads as data and not as code (sets, counters, sparse
    tensors), as torch writes them.
    """
    text = io.BytesIO()
    try:
        torch.save(value, text)
        text.seek(0)
        torch.load(text, map_location="cpu", weights_only=True)
    except Exception as error:  # its own pickling may raise any error
        raise TypeError(
            f"{path}: {type(value).__name__} cannot be kept; a checkpoint takes tensors, numbers, "
            "texts, lists, tuples, dictionaries, booleans and None"
        ) from error
    return base64.b64encode(text.getvalue()).decode()


def _decode(tree: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(tree, list):
        return [_decode(value, tensors) for value in tree]
    if not isinstance(tree, dict):
        return tree
    if "tensor" in tree:
        return tensors[tree["tensor"]]
    if "tuple" in tree:
        return tuple(_decode(value, tensors) for value in tree["tuple"])
    if "dict" in tree:
        return {_decode(key, tensors): _decode(value, tensors) for key, value in tree["dict"]}
    if "ordered" in tree:
        pairs = ((_decode(key, tensors), _decode(value, tensors)) for key, value in tree["ordered"])
        ordered: OrderedDict[Any, Any] = OrderedDict(pairs)
        vars(ordered).update(_decode(tree["about"], tensors))
        return ordered
    text = io.BytesIO(base64.b64decode(tree["torch"]))
    return torch.load(text, map_location="cpu", weights_only=True)


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit
