"""Read the words of `--malleable=` as the plugin does, for a job without it. Only values."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Callable

from slurm_hooks.words.counted import GPU, TASK
from slurm_hooks.words.engines import DEFAULT, ENGINES, Engine

MOST = 65535
_RANGE = re.compile(r"([0-9]{1,5})-([0-9]{1,5})")
_UNIT = re.compile(rf"([0-9]{{0,5}})({GPU}|{TASK})?")
_SIZES = re.compile(r"x2|[0-9]{1,5}(?:,[0-9]{1,5})*")
_PARTS = re.compile(r",(?=[a-z_]+=|[^0-9])")  # a comma within sizes= has a digit behind it
_TICK = "is done by the software that a site installs; leave it out, or ask your administrator"


class RequestError(ValueError):
    """The request cannot be used. The message quotes it and says what to write."""


@dataclass(frozen=True)
class Request:
    """A request. `smallest` and `largest` count nodes, or with `kind` GPUs or tasks. Each fragment
    has `unit` of them."""

    smallest: int
    largest: int
    unit: int = 1
    kind: str = ""
    engine: Engine = ENGINES[DEFAULT]
    sizes: str = ""

    @property
    def elements(self) -> int:
        """The number of fragments at the largest size."""
        return self.largest // self.unit

    @property
    def fewest(self) -> int:
        """The number of fragments at the smallest size, for a gang at least 1."""
        return -(-self.smallest // self.unit)

    @property
    def text(self) -> str:
        """The written form that all other parts read."""
        unit = f"{self.unit if self.unit > 1 or not self.kind else ''}{self.kind}"
        sizes = f",sizes={self.sizes}" if self.sizes else ""
        engine = self.engine.name
        return f"{self.smallest}-{self.largest},unit={unit},engine={engine}{sizes}"

    @property
    def shown(self) -> str:
        """The sizes for people: `2 to 16 nodes`."""
        noun = {GPU: "GPU", TASK: "task"}.get(self.kind, "node")
        many = noun if self.largest == 1 else f"{noun}s"
        is_fixed = self.smallest == self.largest
        return f"{'' if is_fixed else f'{self.smallest} to '}{self.largest} {many}"


def read(text: str) -> Request:
    """Return the request. Raises RequestError."""

    def refuse(why: str) -> RequestError:
        return RequestError(f"--malleable={text}: {why}")

    first, *keys = _PARTS.split(text.strip())
    sizes = _RANGE.fullmatch(first)
    if not sizes:
        raise refuse("begin with MIN-MAX, for example --malleable=2-16")
    request = Request(int(sizes[1]), int(sizes[2]))
    for key in keys:
        name, _, value = key.partition("=")
        if name not in _KEYS:
            raise refuse(f"there is no key '{name}'; the keys are {', '.join(_KEYS)}")
        try:
            request = _KEYS[name](request, value)
        except ValueError as error:
            raise refuse(f"{key}: {error}") from None
    if fault := _fault(request):
        raise refuse(fault)
    return request


def _fault(request: Request) -> str:
    if not 1 <= request.largest <= MOST or request.smallest > request.largest:
        return f"MIN and MAX are numbers up to {MOST}, and MIN is at most MAX"
    if not request.smallest and not request.engine.is_pool:
        return f"only a pool may have MIN 0; write 1-{request.largest}, or add engine=pool"
    if request.largest % request.unit or (request.smallest % request.unit and not request.kind):
        return f"MIN and MAX must be multiples of {request.unit}"
    return ""


def _unit(request: Request, value: str) -> Request:
    match = _UNIT.fullmatch(value)
    if not match or not value or (match[1] and not int(match[1])):
        raise ValueError("write for example unit=gpu, unit=4gpu or unit=task")
    if not match[2] and match[1] != "1":
        raise ValueError(
            "each fragment has one node where the site has not installed the software; leave it out"
        )
    return replace(request, unit=int(match[1] or 1), kind=match[2] or "")


def _engine(request: Request, value: str) -> Request:
    if value not in ENGINES:
        raise ValueError(f"the engines are {', '.join(ENGINES)}")
    return replace(request, engine=ENGINES[value])


def _sizes(request: Request, value: str) -> Request:
    if not _SIZES.fullmatch(value):
        raise ValueError("write for example sizes=2,4,8 or sizes=x2")
    return replace(request, sizes=value)


def _of_the_tick(request: Request, value: str) -> Request:
    raise ValueError(f"this {_TICK}")


_KEYS: dict[str, Callable[[Request, str], Request]] = {
    "unit": _unit,
    "engine": _engine,
    "sizes": _sizes,
    "launch": _of_the_tick,
    "core": _of_the_tick,
    "core_end": _of_the_tick,
    "prefer": _of_the_tick,
    "min_run": _of_the_tick,
}
