"""State to text and back. What is read was written by other processes, on a disk that
can be full or torn: every field is checked, the size is bounded, and nothing but JSON
is understood.

Agents of a version before and after may share a state, where a site is upgraded while a job
runs. So causes stand there as the texts that they have always been, "lost 3".
"""

from __future__ import annotations

import json
import re
from typing import Any

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


def encode(state: State) -> str:
    """One line of JSON. Raises StateFormatError if it would not be readable again."""
    document: dict[str, object] = {
        "format": FORMAT,
        "run": state.run,
        "revision": state.revision,
        "stage": state.stage,
        "members": [_pack_member(m) for m in state.members],
        "round": _pack_round(state.round) if state.round else None,
        "rounds": state.rounds,
        "gone": [str(cause) for cause in state.gone],
        "crashes": state.crashes,
        "crashed_in": state.crashed_in,
        "crashed_after_s": state.crashed_after_s,
        "crashed_with": state.crashed_with,
        "farthest": state.farthest,
        "outcome": state.outcome.value,
        "outcome_at": state.outcome_at,
        "done": [list(entry) for entry in state.done],
        "wanted": list(state.wanted),
    }
    if state.launches:
        document["launches"] = [[one.text, one.digest, list(one.tokens)] for one in state.launches]
    text = json.dumps(document, separators=(",", ":")) + "\n"
    if len(text) > MAX_BYTES or len(state.members) > MAX_MEMBERS:
        raise StateFormatError(f"state too large: {len(text)} bytes")
    return text


def decode(text: str) -> State:
    """The State in `text`. Raises StateFormatError on anything unexpected."""
    if len(text) > MAX_BYTES:
        raise StateFormatError(f"state too large: {len(text)} bytes")
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StateFormatError(f"not JSON: {error}") from None
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise StateFormatError("not a state of format 1")
    try:
        return _unpack(raw)
    except (KeyError, TypeError, ValueError) as error:
        raise StateFormatError(f"bad field: {error}") from None


def _unpack(raw: dict[str, Any]) -> State:
    members = tuple(_unpack_member(m) for m in _list(raw["members"], MAX_MEMBERS))
    if len({m.token for m in members}) != len(members):
        raise ValueError("a member twice")
    return State(
        run=_text(raw["run"], _PLAIN),
        revision=_number(raw["revision"]),
        stage=_number(raw["stage"]),
        members=members,
        round=None if raw["round"] is None else _unpack_round(raw["round"]),
        rounds=_number(raw["rounds"]),
        gone=tuple(cause_in(_text(cause, _PLAIN)) for cause in _list(raw["gone"], MAX_MEMBERS)),
        crashes=_number(raw["crashes"]),
        crashed_in=_number(raw.get("crashed_in", 0)),
        crashed_after_s=_number(raw.get("crashed_after_s", 0)),
        crashed_with=_number(raw.get("crashed_with", 0)),
        farthest=_number(raw.get("farthest", 0)),
        outcome=Outcome(raw["outcome"]),
        outcome_at=_number(raw["outcome_at"]),
        done=tuple(_unpack_done(entry) for entry in _list(raw["done"], MAX_MEMBERS)),
        # an agent of a version before these fields may have written last
        wanted=tuple(_number(f) for f in _list(raw.get("wanted", []), MAX_MEMBERS)),
        launches=tuple(map(_unpack_launch, _list(raw.get("launches", []), MOST_LAUNCHES))),
    )


def _pack_member(m: Member) -> list[object]:
    identity = [m.token, m.fragment, m.node, m.incarnation, m.host]
    return [*identity, m.ends, m.probe_port, m.phase.value, int(m.failed), m.round]


def _unpack_member(raw: Any) -> Member:
    token, fragment, node, incarnation, host, ends, probe_port, phase, failed, round_ = _list(
        raw, 10
    )
    return Member(
        token=_text(token, _TOKEN),
        fragment=_number(fragment),
        node=_number(node),
        incarnation=_text(incarnation, _PLAIN),
        host=_text(host, _HOST),
        ends=_number(ends),
        probe_port=_port(probe_port),
        phase=Phase(phase),
        failed=_number(failed),
        round=_number(round_),
    )


def _pack_round(r: Round) -> list[object]:
    return [
        r.number,
        list(r.order),
        list(r.fragments),
        r.host,
        r.port,
        text_of(r.causes),
        r.formed_at,
    ]


def _unpack_round(raw: Any) -> Round:
    number, order, fragments, host, port, causes, formed_at = _list(raw, 7)
    tokens = tuple(_text(t, _TOKEN) for t in _list(order, MAX_MEMBERS))
    if not tokens or len(set(tokens)) != len(tokens):
        raise ValueError("bad round")
    return Round(
        number=_number(number),
        order=tokens,
        fragments=tuple(_number(f) for f in _list(fragments, MAX_MEMBERS)),
        host=_text(host, _HOST),
        port=_port(port),
        causes=causes_in(_text(causes, _PLAIN)),
        formed_at=_number(formed_at),
    )


def _unpack_done(raw: Any) -> tuple[int, int, str]:
    fragment, node, incarnation = _list(raw, 3)
    return (_number(fragment), _number(node), _text(incarnation, _PLAIN))


def _unpack_launch(raw: Any) -> Launch:
    text, digest, tokens = _list(raw, 3)
    found = tuple(_text(t, _TOKEN) for t in _list(tokens, MAX_MEMBERS))
    return Launch(_text(text, _PLAIN), _text(digest, _TOKEN), found)


def _list(value: Any, longest: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > longest:
        raise ValueError("a list is missing or too long")
    return value


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
        raise ValueError(f"not a count: {value!r:.40}")
    return value


def _port(value: Any) -> int:
    if _number(value) > 65535:
        raise ValueError(f"not a port: {value}")
    return int(value)


def _text(value: Any, pattern: re.Pattern[str]) -> str:
    if not isinstance(value, str) or not pattern.match(value):
        raise ValueError(f"not a plain text: {value!r:.40}")
    return value
