"""Runs a target with many damaged texts, and counts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fuzz.mutate import Mutator
from fuzz.target import Target
from fuzz.targets import TARGETS

CORPUS = Path(__file__).resolve().parent / "corpus"
MOST_S = 1.0  # processor seconds for a text of at most 100,000 characters


@dataclass
class Count:
    """The results of the texts, and the texts that were neither read nor refused in time."""

    accepted: int = 0
    refused: int = 0
    slowest_s: float = 0.0
    failures: list[tuple[str, str]] = field(default_factory=list)  # the fault, the text


def texts(name: str, seed: int, count: int) -> Iterator[str]:
    """Texts that failed once, then damaged texts."""
    yield from known(name)
    mutator = Mutator(seed, TARGETS[name].sound)
    for _ in range(count):
        yield mutator.text()


def known(name: str) -> list[str]:
    """The texts of the corpus, a file for each."""
    paths = sorted((CORPUS / name.replace(" ", "_").replace("'", "")).glob("*"))
    return [path.read_bytes().decode("utf-8", "surrogateescape") for path in paths]


def try_one(target: Target, text: str, count: Count) -> None:
    """Read a text. Any result outside the contract is a failure."""
    began = time.process_time()
    try:
        target.read(text)
        count.accepted += 1
    except target.refuses:
        count.refused += 1
    except Exception as error:  # the search is for all of them
        count.failures.append((f"{type(error).__name__}: {error}"[:200], text))
    took = time.process_time() - began
    count.slowest_s = max(count.slowest_s, took)
    if took > MOST_S:
        count.failures.append((f"took {took:.1f} s", text))


def run(name: str, seed: int, inputs: int, most_failures: int = 5) -> Count:
    """Run a whole course. It ends early after so many failures."""
    count = Count()
    for text in texts(name, seed, inputs):
        try_one(TARGETS[name], text, count)
        if len(count.failures) >= most_failures:
            break
    return count
