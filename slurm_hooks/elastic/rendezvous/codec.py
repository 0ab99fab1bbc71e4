"""State to text and back. Other processes wrote the text, on a disk that can be full or torn. So
every field is checked, the size is bounded, and only JSON is read.

A table gives the form of each field in the text. Both directions follow from it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from slurm_hooks.elastic.rendezvous.causes import cause_in, causes_in, text_of
from slurm_hooks.elastic.rendezvous.launches import MOST as MOST_LAUNCHES
from slurm_hooks.elastic.rendezvous.revisions import MAX_BYTES
from slurm_hooks.elastic.rendezvous.state import (
    Launch,
    Member,
    Outcome,
    Phase,
    Round,
    State,
)

FORMAT = 1
MAX_MEMBERS = 4096

_TOKEN = re.compile(r"[0-9a-f]{16}\Z")
_HOST = re.compile(r"[A-Za-z0-9._:%-]{1,255}\Z")
_PLAIN = re.compile(r"[ -~]{0,1024}\Z")


class StateFormatError(ValueError):
    """The text is not a state of this format."""


class _Kind(NamedTuple):
    """The form of a value in JSON. `read` checks it, and raises ValueError or TypeError."""

    read: Callable[[Any], Any]
    write: Callable[[Any], Any] = lambda value: value


def _number(value: Any, most: int = 2**53 - 1, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"not a count, or too large: {value!r:.40}")
    return value


def _text(pattern: re.Pattern[str], read: Callable[[str], Any] = str) -> Callable[[Any], Any]:
    def checked(value: Any) -> Any:
        if not isinstance(value, str) or not pattern.match(value):
            raise ValueError(f"not a plain text: {value!r:.40}")
        return read(value)

    return checked


def _list(value: Any, shortest: int, longest: int) -> list[Any]:
    if not isinstance(value, list) or not shortest <= len(value) <= longest:
        raise ValueError("a list is missing, too short or too long")
    return value


def _several(
    kind: _Kind,
    longest: int = MAX_MEMBERS,
    shortest: int = 0,
    name: Callable[[Any], object] | None = None,
) -> _Kind:
    """A tuple of such values. Each `name` may occur once."""

    def read(raw: Any) -> tuple[Any, ...]:
        values = tuple(map(kind.read, _list(raw, shortest, longest)))
        if name and len(set(map(name, values))) < len(values):
            raise ValueError("a member twice")
        return values

    return _Kind(read, lambda values: list(map(kind.write, values)))


def _row(*kinds: _Kind) -> _Kind:
    """A tuple with a value of each kind."""

    def read(raw: Any) -> tuple[Any, ...]:
        values = _list(raw, len(kinds), len(kinds))
        return tuple(kind.read(value) for kind, value in zip(kinds, values))

    return _Kind(read, lambda row: [kind.write(value) for kind, value in zip(kinds, row)])


def _record(make: Callable[..., Any], **kinds: _Kind) -> _Kind:
    """An object with these fields, as a list in this order."""
    row = _row(*kinds.values())
    return _Kind(
        lambda raw: make(**dict(zip(kinds, row.read(raw)))),
        lambda record: row.write(getattr(record, name) for name in kinds),
    )


def _short(record: _Kind, length: int, usual: int) -> _Kind:
    """A record of this length, whose last value is left out if it is the usual value."""

    def read(raw: Any) -> Any:
        is_short = isinstance(raw, list) and len(raw) == length - 1
        return record.read([*raw, usual] if is_short else raw)

    def write(value: Any) -> Any:
        row = record.write(value)
        return row[:-1] if row[-1] == usual else row

    return _Kind(read, write)


def _or_null(kind: _Kind) -> _Kind:
    return _Kind(
        lambda raw: None if raw is None else kind.read(raw),
        lambda value: value and kind.write(value),
    )


_COUNT = _Kind(_number)
_PORT = _Kind(lambda value: _number(value, 65535))
_ID = _Kind(_text(_TOKEN))
_NAME = _Kind(_text(_HOST))
_WORDS = _Kind(_text(_PLAIN))
_CAUSE = _Kind(_text(_PLAIN, cause_in), str)
_CAUSES = _Kind(_text(_PLAIN, causes_in), text_of)
_MEMBER = _record(
    Member,
    token=_ID,
    fragment=_COUNT,
    node=_COUNT,
    incarnation=_WORDS,
    host=_NAME,
    ends=_COUNT,
    ping_port=_PORT,
    phase=_Kind(Phase, lambda phase: phase.value),
    failed=_COUNT,
    round=_COUNT,
    workers=_Kind(lambda value: _number(value, 65535, 1)),
)
_ROUND = _record(
    Round,
    number=_COUNT,
    order=_several(_ID, shortest=1, name=str),
    fragments=_several(_COUNT),
    host=_NAME,
    port=_PORT,
    causes=_CAUSES,
    formed_at=_COUNT,
    workers=_COUNT,
)
_LAUNCH = _record(Launch, text=_WORDS, digest=_ID, tokens=_several(_ID))
_STATE = {
    "run": _WORDS,
    "revision": _COUNT,
    "stage": _COUNT,
    "members": _several(_short(_MEMBER, 11, 1), name=lambda member: member.token),
    "round": _or_null(_short(_ROUND, 8, 0)),
    "rounds": _COUNT,
    "gone": _several(_CAUSE),
    "crashes": _COUNT,
    "crashed_in": _COUNT,
    "crashed_after_s": _COUNT,
    "crashed_with": _COUNT,
    "farthest": _COUNT,
    "outcome": _Kind(Outcome, lambda outcome: outcome.value),
    "outcome_at": _COUNT,
    "done": _several(_row(_COUNT, _COUNT, _WORDS)),
    "wanted": _several(_COUNT),
    "launches": _several(_LAUNCH, longest=MOST_LAUNCHES),
}


def encode(state: State) -> str:
    """Return a line of JSON. Raises StateFormatError if it would not be readable again."""
    document = {name: kind.write(getattr(state, name)) for name, kind in _STATE.items()}
    if not state.launches:
        del document["launches"]
    text = json.dumps({"format": FORMAT, **document}, separators=(",", ":")) + "\n"
    if len(text) > MAX_BYTES or len(state.members) > MAX_MEMBERS:
        raise StateFormatError(f"state too large: {len(text)} bytes")
    return text


def decode(text: str) -> State:
    """Return the State in `text`. Raises StateFormatError on anything unexpected."""
    if len(text) > MAX_BYTES:
        raise StateFormatError(f"state too large: {len(text)} bytes")
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StateFormatError(f"not JSON: {error}") from None
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise StateFormatError("not a state of format 1")
    raw.setdefault("launches", [])
    try:
        return State(**{name: kind.read(raw[name]) for name, kind in _STATE.items()})
    except (KeyError, TypeError, ValueError) as error:
        raise StateFormatError(f"bad field: {error}") from None
