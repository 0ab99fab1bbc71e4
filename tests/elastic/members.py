"""Invented shared state: members by number, rounds of two to four members, a directory."""

from __future__ import annotations

from pathlib import Path

from slurm_hooks.elastic.rendezvous.directory import SharedDirectory
from slurm_hooks.elastic.rendezvous.rounds import Limits, form
from slurm_hooks.elastic.rendezvous.state import Member, State, join

LIMITS = Limits(2, 4)
NOW = 1_000_000


def member(number: int, ends: int = 0, incarnation: str = "1.0", workers: int = 1) -> Member:
    return Member(f"{number:016x}", number, 0, incarnation, f"n{number}", ends, workers=workers)


def token(number: int) -> str:
    return member(number).token


def gathered(*numbers: int) -> State:
    state = State(run="7")
    for number in numbers:
        state = join(state, member(number))
    return state


def running(*numbers: int) -> State:
    return form(gathered(*numbers), LIMITS, "n1", 4000, NOW)


def opened(path: Path) -> SharedDirectory:
    shared = SharedDirectory(path, "7")
    shared.open()
    return shared
