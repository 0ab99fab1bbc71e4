"""Plain JSON data back into values of the model.

The other direction is `encode`. Both follow the types of the dataclasses, so a field added to the
model needs no change here. Every fault names its key.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Union, get_args, get_origin, get_type_hints

from slurm_hooks.model import FragmentId


class BadData(ValueError):
    """Data that is not a value of the type. The text names the key, and the expected value."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(f"{key or 'the object'}: {text}")


def _unexpected(key: str, wanted: str, data: Any) -> BadData:
    text = repr(data)
    seen = text if len(text) <= 40 else f"{text[:37]}..."
    return BadData(key, f"expected {wanted}, found {seen}")


def from_data(kind: Any, data: Any, key: str = "") -> Any:
    """The value of the type `kind` that `to_data` would turn into `data`. Raises BadData."""
    if kind in _PLAIN:
        return _PLAIN[kind](data, key)
    origin = get_origin(kind)
    if origin is Union:
        return None if data is None else from_data(get_args(kind)[0], data, key)
    if origin in (tuple, frozenset):
        return _items(kind, data, key)
    if origin is dict:
        return _mapping(kind, data, key)
    if issubclass(kind, enum.Enum):
        return _choice(kind, data, key)
    return _object(kind, data, key)


def _object(kind: Any, data: Any, key: str) -> Any:
    if not isinstance(data, Mapping):
        raise _unexpected(key, "an object", data)
    fields = {f.name: f for f in dataclasses.fields(kind)}
    hints = get_type_hints(kind)
    for name in data:
        if name not in fields:
            known = ", ".join(fields)
            raise BadData(_below(key, str(name)), f"unknown key; known: {known}")
    for name, spec in fields.items():
        if name not in data and _is_needed(spec):
            raise BadData(_below(key, name), "missing")
    values = {n: from_data(hints[n], item, _below(key, n)) for n, item in data.items()}
    try:
        return kind(**values)
    except ValueError as error:
        raise BadData(key, str(error)) from error


def _is_needed(spec: dataclasses.Field[Any]) -> bool:
    return spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING


def _items(kind: Any, data: Any, key: str) -> Any:
    if not isinstance(data, list):
        raise _unexpected(key, "a list", data)
    kinds = get_args(kind)
    if get_origin(kind) is frozenset or kinds[-1] is Ellipsis:
        values = [from_data(kinds[0], item, f"{key}[{at}]") for at, item in enumerate(data)]
        return frozenset(values) if get_origin(kind) is frozenset else tuple(values)
    if len(data) != len(kinds):
        raise BadData(key, f"expected {len(kinds)} items, found {len(data)}")
    pairs = enumerate(zip(kinds, data))
    return tuple(from_data(each, item, f"{key}[{at}]") for at, (each, item) in pairs)


def _mapping(kind: Any, data: Any, key: str) -> dict[int, Any]:
    """A mapping from whole numbers, which JSON writes as text."""
    if not isinstance(data, Mapping):
        raise _unexpected(key, "an object", data)
    for name in data:
        if not re.fullmatch(r"\d{1,10}", str(name)):
            raise BadData(_below(key, str(name)), "expected a job id as key")
    values = get_args(kind)[1]
    return {int(name): from_data(values, item, _below(key, name)) for name, item in data.items()}


def _choice(kind: Any, data: Any, key: str) -> enum.Enum:
    for member in kind:
        if member.value == data:
            return member  # type: ignore[no-any-return]
    raise _unexpected(key, f"one of {', '.join(m.value for m in kind)}", data)


def _whole(data: Any, key: str) -> int:
    if isinstance(data, bool) or not isinstance(data, int):
        raise _unexpected(key, "a whole number", data)
    return data


def _truth(data: Any, key: str) -> bool:
    if not isinstance(data, bool):
        raise _unexpected(key, "true or false", data)
    return data


def _number(data: Any, key: str) -> float:
    if isinstance(data, bool) or not isinstance(data, (int, float)):
        raise _unexpected(key, "a number", data)
    try:
        number = float(data)
    except OverflowError:  # JSON knows whole numbers of any length
        number = math.inf
    if not math.isfinite(number):
        raise _unexpected(key, "a number", data)
    return number


def _text(data: Any, key: str) -> str:
    if not isinstance(data, str):
        raise _unexpected(key, "text", data)
    return data


def _moment(data: Any, key: str) -> datetime:
    try:
        moment = datetime.fromisoformat(_text(data, key))
    except ValueError as error:
        wanted = "a time with a zone such as 2026-11-20T08:00:00+00:00"
        raise _unexpected(key, wanted, data) from error
    if moment.tzinfo is None:
        raise BadData(key, f"the time {data} has no zone")
    return moment


def _duration(data: Any, key: str) -> timedelta:
    try:
        return timedelta(seconds=_number(data, key))
    except OverflowError as error:
        raise BadData(key, f"too many seconds: {data}") from error


def _fragment(data: Any, key: str) -> FragmentId:
    match = re.fullmatch(r"(\d{1,10})_(\d{1,10})", _text(data, key))
    if not match:
        raise _unexpected(key, "a fragment such as 34_0", data)
    return FragmentId(int(match.group(1)), int(match.group(2)))


_PLAIN: dict[Any, Callable[[Any, str], Any]] = {
    bool: _truth,
    int: _whole,
    float: _number,
    str: _text,
    datetime: _moment,
    timedelta: _duration,
    FragmentId: _fragment,
}


def _below(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name
