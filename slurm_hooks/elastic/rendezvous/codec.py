"""State to text and back. Other processes wrote the text, on a disk that can be full or torn. So
every field is checked, the size is bounded, and only JSON is read.

A table gives the form of each field in the text. Both directions follow from it.

Fragments of a job may have two versions. So a new field comes at the end of its record, with a
default that is not written. A reader ignores values at the end and names that it does not know. An
agent that does not know a field drops it when it writes the state again. So the default must be
safe at any moment. An unknown phase or outcome is refused, because its agents would decide
differently from the others. A later version says such news in a new field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import fields
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


def _list(value: Any, shortest: int, longest: int = MAX_BYTES) -> list[Any]:
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
        return tuple(kind.read(value) for kind, value in zip(kinds, _list(raw, len(kinds))))

    return _Kind(read, lambda row: [kind.write(value) for kind, value in zip(kinds, row)])


def _record(make: Callable[..., Any], least: int, **kinds: _Kind) -> _Kind:
    """An object with these fields, as a list in this order. The first `least` are always there. The
    last of the others are left out if they have their defaults.
    """
    usual = _defaults(make)

    def read(raw: Any) -> Any:
        values = zip(kinds.items(), _list(raw, least))
        return make(**{name: kind.read(value) for (name, kind), value in values})

    def write(record: Any) -> list[Any]:
        names = list(kinds)
        while len(names) > least and getattr(record, names[-1]) == usual[names[-1]]:
            names.pop()
        return [kinds[name].write(getattr(record, name)) for name in names]

    return _Kind(read, write)


def _defaults(make: Any) -> dict[str, Any]:
    return {field.name: field.default for field in fields(make)}


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
    10,
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
    sound=_COUNT,
)
_ROUND = _record(
    Round,
    7,
    number=_COUNT,
    order=_several(_ID, shortest=1, name=str),
    fragments=_several(_COUNT),
    host=_NAME,
    port=_PORT,
    causes=_CAUSES,
    formed_at=_COUNT,
    workers=_COUNT,
    newest=_WORDS,
)
_LAUNCH = _record(Launch, 3, text=_WORDS, digest=_ID, tokens=_several(_ID))
_STATE = {
    "run": _WORDS,
    "revision": _COUNT,
    "stage": _COUNT,
    "members": _several(_MEMBER, name=lambda member: member.token),
    "round": _or_null(_ROUND),
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
}
_LATER = {  # each left out if it has its default
    "suspect": _WORDS,
    "expelled": _WORDS,
    "launches": _several(_LAUNCH, longest=MOST_LAUNCHES),
}
_USUAL = _defaults(State)


def encode(state: State) -> str:
    """Return a line of JSON. Raises StateFormatError if it would not be readable again."""
    later = {name: _LATER[name] for name in _LATER if getattr(state, name) != _USUAL[name]}
    document = {
        name: kind.write(getattr(state, name)) for name, kind in {**_STATE, **later}.items()
    }
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
    try:
        known = {**_STATE, **{name: kind for name, kind in _LATER.items() if name in raw}}
        return State(**{name: kind.read(raw[name]) for name, kind in known.items()})
    except (KeyError, TypeError, ValueError) as error:
        raise StateFormatError(f"bad field: {error}") from None
