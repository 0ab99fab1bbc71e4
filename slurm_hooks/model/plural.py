"""A number with its noun, as it is written."""

from __future__ import annotations


def plural(number: int, noun: str) -> str:
    """`1 node`, `2 nodes`, `2 classes`. Of several words the last is the noun."""
    if number == 1:
        return f"{number} {noun}"
    return f"{number} {noun}{'es' if noun.endswith('s') else 's'}"


def noun_of(unit: str) -> str:
    """The noun for the unit of a job's sizes."""
    return "GPU" if unit == "gpu" else unit


def sized(number: int, unit: str) -> str:
    """A size of a job: `8 nodes`, `8 GPUs`, `8 tasks`."""
    return plural(number, noun_of(unit))
