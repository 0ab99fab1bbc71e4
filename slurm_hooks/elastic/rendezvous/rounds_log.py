"""The report of a formed round: a line for people, and a line of JSON. Pure."""

from __future__ import annotations

import json
from dataclasses import replace

from slurm_hooks.elastic.rendezvous.causes import Cause, text_of
from slurm_hooks.elastic.rendezvous.state import Round, State


def describe(old: Round | None, new: Round) -> str:
    """`round 3 formed: 4 fragments (1 2 4 5), was 3, cause: joined 5`.

    If fragments have several workers: `round 3 formed: 17 workers in 4 fragments (1 2 4 5), was 12,
    cause: joined 5`.
    """
    agents = len(new.order)
    was = old.size if old else 0
    names = " ".join(str(fragment) for fragment in sorted(new.fragments))
    plural = "s" if agents != 1 else ""
    workers = f"{new.workers} workers in " if new.workers else ""
    return (
        f"round {new.number} formed: {workers}{agents} fragment{plural} ({names}), was {was}, "
        f"cause: {text_of(new.causes)}"
    )


def describe_groups(fragments: tuple[int, ...], was: int, causes: tuple[Cause, ...]) -> str:
    """`3 replica groups (1 4 5), was 2, cause: joined 5`."""
    size = len(fragments)
    names = " ".join(str(fragment) for fragment in sorted(fragments))
    groups = f"{size} replica group{'s' if size != 1 else ''} ({names})"
    return f"{groups}, was {was}, cause: {text_of(causes)}"


def describe_failures(state: State, last: int) -> str:
    """`the workers failed 2 times in a row, in rounds 3 to 5, last exit code 1`. `last` is the
    number of the round in which they failed last.
    """
    often = f"{state.crashes} times in a row" if state.crashes != 1 else "once"
    first = state.crashed_in
    where = f"in rounds {first} to {last}" if first < last else f"in round {last}"
    code = f", last exit code {state.crashed_with}" if state.crashed_with else ""
    return f"the workers failed {often}, {where}{code}"


def record(new: Round, restarts: int) -> str:
    """Return a line of rounds.jsonl. `t` is in epoch seconds. `restarts_used` counts torchrun's
    budget so far on the agent of rank 0.
    """
    return json.dumps(_entry(new, new.size, restarts))


def record_groups(
    term: Round, fragments: tuple[int, ...], causes: tuple[Cause, ...], restarts: int
) -> str:
    """Return the line for replica groups, which need no rounds: the fragments that train from
    `term.formed_at` on, and the fragment that keeps the lighthouse in this term.
    """
    change = replace(term, fragments=fragments, causes=causes)
    entry = _entry(change, len(fragments), restarts)
    return json.dumps({**entry, "lighthouse": term.fragments[0]})


def _entry(new: Round, size: int, restarts: int) -> dict[str, object]:
    return {
        "round": new.number,
        "t": new.formed_at,
        "size": size,
        "fragments": sorted(new.fragments),
        "cause": text_of(new.causes),
        "restarts_used": restarts,
    }
