"""What is told about a formed round: a line for people, a line for reports. Pure."""

from __future__ import annotations

import json

from .state import Round


def describe(old: Round | None, new: Round) -> str:
    """`round 3 formed: 4 fragments (1 2 4 5), was 3, cause: joined 5`."""
    size = len(new.order)
    was = len(old.order) if old else 0
    names = " ".join(str(fragment) for fragment in sorted(new.fragments))
    plural = "s" if size != 1 else ""
    return (
        f"round {new.number} formed: {size} fragment{plural} ({names}), was {was}, "
        f"cause: {new.cause}"
    )


def record(new: Round, restarts: int) -> str:
    """One line of rounds.jsonl: `t` in epoch seconds, `restarts_used` of torchrun's
    budget so far on the agent of rank 0."""
    line = {
        "round": new.number,
        "t": new.formed_at,
        "size": len(new.order),
        "fragments": sorted(new.fragments),
        "cause": new.cause,
        "restarts_used": restarts,
    }
    return json.dumps(line)
