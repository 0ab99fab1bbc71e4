"""Any value of the model as plain JSON data, and back: moments as ISO text, durations as seconds.

Both directions follow the types of the dataclasses, so a field added to the model needs no change
here. Every fault names its key.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import cache
from itertools import repeat
from typing import Any, Union, get_args, get_origin, get_type_hints

from slurm_hooks.model import FragmentId
from slurm_hooks.model.moments import iso

_Way = Callable[[Any], Any]  # from a value to its data, or back
_Kind = Callable[..., Any]


class BadData(ValueError):
    """Data that is not a value of the type. The text names the key, and the expected value."""

    def __init__(self, text: str, key: str = "") -> None:
        super().__init__(f"{key.lstrip('.') or 'the object'}: {text}")
        self._text, self._key = text, key

    def below(self, key: str) -> BadData:
        """Return the same fault, in a value that stands at this key."""
        return BadData(self._text, key + self._key)


def to_data(value: Any) -> Any:
    """Plain data for json.dumps. Sets are sorted, and infinite numbers become null."""
    return _writer(value.__class__)(value)


def from_data(kind: Any, data: Any) -> Any:
    """The value of the type `kind` that `to_data` would turn into `data`. Raises BadData."""
    return _reader(kind)(data)


@cache
def _writer(kind: Any) -> _Way:
    for known, write in _WRITERS.items():
        if issubclass(kind, known):
            return write
    if not dataclasses.is_dataclass(kind):
        return lambda value: value
    names = [field.name for field in dataclasses.fields(kind)]
    return lambda value: {name: to_data(getattr(value, name)) for name in names}


_WRITERS: dict[type, _Way] = {
    FragmentId: str,
    enum.Enum: lambda value: value.value,
    datetime: iso,
    timedelta: timedelta.total_seconds,
    Mapping: lambda value: {str(key): to_data(item) for key, item in value.items()},
    frozenset: lambda value: sorted(map(to_data, value)),
    set: lambda value: sorted(map(to_data, value)),
    tuple: lambda value: list(map(to_data, value)),
    list: lambda value: list(map(to_data, value)),
    float: lambda value: value if math.isfinite(value) else None,
}


@cache
def _reader(kind: Any) -> _Way:
    if kind in _PLAIN:
        return _PLAIN[kind]
    origin, kinds = get_origin(kind), get_args(kind)
    if origin is Union:
        read = _reader(kinds[0])
        return lambda data: None if data is None else read(data)
    if origin is frozenset or (origin is tuple and kinds[-1] is Ellipsis):
        read = _reader(kinds[0])
        return lambda data: origin(_each(repeat(read), _list(data)))
    if origin is tuple:
        return _fixed(lambda *items: items, list(map(_reader, kinds)))
    if origin is dict:
        return _mapping(_reader(kinds[1]))
    if issubclass(kind, tuple):  # a NamedTuple
        return _fixed(kind, list(map(_reader, get_type_hints(kind).values())))
    if issubclass(kind, enum.Enum):
        return _choice({member.value: member for member in kind})
    return _object(kind)


def _object(kind: Any) -> _Way:
    fields, hints = dataclasses.fields(kind), get_type_hints(kind)
    reads = {field.name: _reader(hints[field.name]) for field in fields}
    needed = [field.name for field in fields if _is_needed(field)]

    def read(data: Any) -> Any:
        if not isinstance(data, Mapping):
            raise _unexpected("an object", data)
        if not reads.keys() >= data.keys():
            name = next(name for name in data if name not in reads)
            raise BadData(f"unknown key; known: {', '.join(reads)}", f".{name}")
        for name in needed:
            if name not in data:
                raise BadData("missing", f".{name}")
        values = _named(reads, data)
        try:
            return kind(**values)
        except ValueError as error:
            raise BadData(str(error)) from error

    return read


def _is_needed(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _named(reads: Mapping[str, _Way], data: Mapping[str, Any]) -> dict[str, Any]:
    values = {}
    try:
        for name, item in data.items():
            values[name] = reads[name](item)
    except BadData as error:
        raise error.below(f".{name}") from error
    return values


def _list(data: Any) -> list[Any]:
    if not isinstance(data, list):
        raise _unexpected("a list", data)
    return data


def _each(reads: Iterable[_Way], data: list[Any]) -> list[Any]:
    values: list[Any] = []
    try:
        for read, item in zip(reads, data):
            values.append(read(item))
    except BadData as error:
        raise error.below(f"[{len(values)}]") from error
    return values


def _fixed(kind: _Kind, reads: list[_Way]) -> _Way:
    def read(data: Any) -> Any:
        if len(_list(data)) != len(reads):
            raise BadData(f"expected {len(reads)} items, found {len(data)}")
        return kind(*_each(reads, data))

    return read


def _mapping(read_item: _Way) -> _Way:
    """A mapping from whole numbers, which JSON writes as text."""

    def read(data: Any) -> dict[int, Any]:
        if not isinstance(data, Mapping):
            raise _unexpected("an object", data)
        for name in data:
            if not re.fullmatch(r"\d{1,10}", str(name)):
                raise BadData("expected a job id as key", f".{name}")
        values = _named(dict.fromkeys(data, read_item), data)
        return {int(name): value for name, value in values.items()}

    return read


def _choice(members: Mapping[Any, enum.Enum]) -> _Way:
    def read(data: Any) -> enum.Enum:
        if not isinstance(data, (str, int)) or data not in members:
            raise _unexpected(f"one of {', '.join(map(str, members))}", data)
        return members[data]

    return read


def _typed(kind: type, wanted: str) -> _Way:
    """A value of exactly this type. True is no number."""

    def read(data: Any) -> Any:
        if type(data) is not kind:
            raise _unexpected(wanted, data)
        return data

    return read


def _number(data: Any) -> float:
    try:
        number = float(data) if type(data) in (int, float) else math.nan
    except OverflowError:  # JSON knows whole numbers of any length
        number = math.inf
    if not math.isfinite(number):
        raise _unexpected("a number", data)
    return number


def _moment(data: Any) -> datetime:
    try:
        moment = datetime.fromisoformat(data)
    except (TypeError, ValueError) as error:
        raise _unexpected("a time with a zone such as 2026-11-20T08:00:00+00:00", data) from error
    if moment.tzinfo is None:
        raise BadData(f"the time {data} has no zone")
    return moment


def _duration(data: Any) -> timedelta:
    try:
        return timedelta(seconds=_number(data))
    except OverflowError as error:
        raise BadData(f"too many seconds: {data}") from error


def _fragment(data: Any) -> FragmentId:
    match = re.fullmatch(r"(\d{1,10})_(\d{1,10})", data) if isinstance(data, str) else None
    if not match:
        raise _unexpected("a fragment such as 34_0", data)
    return FragmentId(int(match[1]), int(match[2]))


_PLAIN: dict[Any, _Way] = {
    bool: _typed(bool, "true or false"),
    int: _typed(int, "a whole number"),
    float: _number,
    str: _typed(str, "text"),
    datetime: _moment,
    timedelta: _duration,
    FragmentId: _fragment,
}


def _unexpected(wanted: str, data: Any) -> BadData:
    text = repr(data)
    seen = text if len(text) <= 40 else f"{text[:37]}..."
    return BadData(f"expected {wanted}, found {seen}")
