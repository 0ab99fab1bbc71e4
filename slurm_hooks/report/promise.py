"""The longest wait of a job for a node of a lane, in words for doctor and the report."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from slurm_hooks.model import GRACE_CHECK, Terms

_UNITS = (("h", 3600), ("min", 60), ("s", 1))


def promise_text(terms: Terms, kill_wait: timedelta, lease: timedelta) -> str:
    """`partition gpu: a job may wait up to 11 min for a node with a fragment: grace 10 min, ...`.

    `lease` is the longest lease there.
    """
    wait = terms.longest_wait(kill_wait, lease)
    parts = ", ".join(_parts(terms, kill_wait, lease))
    return (
        f"partition {terms.partition}: a job may wait up to {time_text(wait)} for a node with a "
        f"fragment: {parts}"
    )


def _parts(terms: Terms, kill_wait: timedelta, lease: timedelta) -> Iterator[str]:
    if lease < terms.exempt + terms.grace:
        yield f"the longest lease {time_text(lease)}"
    else:
        if terms.exempt:
            yield f"PreemptExemptTime {time_text(terms.exempt)}"
        if terms.grace:
            yield f"grace {time_text(terms.grace)}"
    if terms.grace or lease < terms.exempt:
        yield f"{time_text(GRACE_CHECK)} until Slurm's check"
    yield f"KillWait {time_text(kill_wait)}"


def time_text(span: timedelta) -> str:
    """`10 min 30 s`, whole seconds."""
    left, words = round(span.total_seconds()), []
    for unit, seconds in _UNITS:
        number, left = divmod(left, seconds)
        words += [f"{number} {unit}"] if number else []
    return " ".join(words) or "0 s"
