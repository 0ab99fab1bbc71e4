"""The value of --malleable, as Python reads it.

    --malleable=2-16                 nodes
    --malleable=4-64,unit=gpu        GPUs; with unit=2gpu a fragment has a multiple of 2
    --malleable=4-64,unit=task       tasks; with unit=4task a fragment has a multiple of 4
    --malleable=2-16,sizes=2,4,8,16  only these sizes; sizes=x2 are MIN, 2 MIN, 4 MIN and so on

Where the software is installed, the plugin (plugins/spank/request.c) and job_submit have checked
the text, and `counted` and `allowed` read it in a job. Elsewhere `read` checks it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Callable, Optional

from slurm_hooks.protocol.engines import DEFAULT, ENGINES, Engine

REQUEST_VARIABLE = "SLURM_SPANK_MALLEABLE"
SELF_VARIABLE = "MALLEABLE_SELF"  # this element (SLURM_JOB_ID), where nothing is installed
GPU, TASK = "gpu", "task"
MOST = 65535
MOST_SIZES, MOST_CHARACTERS = 16, 200

_RANGE = re.compile(r"([0-9]{1,5})-([0-9]{1,5})")
_ALLOWED = re.compile(r"(?:\A|,)sizes=(?:x2|([0-9]{1,5}(?:,[0-9]{1,5})*))(?=,|\Z)")
_UNIT = re.compile(rf"(?!0+(?:\D|\Z))([0-9]{{1,5}})?({GPU}|{TASK})?", re.ASCII)
_COMMA = re.compile(r",(?![0-9]+(?:,|\Z))")  # one with a number behind it is within sizes=
_TICK = "this is done by the software that a site installs; leave it out, or ask your administrator"


class RequestError(ValueError):
    """The request cannot be used. The message quotes it and says what to write."""


@dataclass(frozen=True)
class Request:
    """A request. Its sizes count nodes, or workers if `kind` is GPU or TASK. Each fragment has
    `unit` nodes, or on its node a multiple of `unit` workers. `sizes` has the only sizes, empty if
    any will do, and `doubled` is MAX as it was written for sizes=x2, else 0."""

    smallest: int
    largest: int
    unit: int = 1
    kind: str = ""
    engine: Engine = ENGINES[DEFAULT]
    sizes: tuple[int, ...] = ()
    doubled: int = 0

    @property
    def elements(self) -> int:
        """The number of fragments at the largest size, if each has a unit."""
        return self.largest // self.unit

    @property
    def fewest(self) -> int:
        """The number of fragments at the smallest size, if each has a unit."""
        return self.smallest // self.unit

    @property
    def written(self) -> str:
        """The form that all other parts read."""
        unit = f"{self.unit if self.unit > 1 or not self.kind else ''}{self.kind}"
        sizes = "x2" if self.doubled else ",".join(map(str, self.sizes))
        first = f"{self.smallest}-{self.doubled or self.largest},unit={unit}"
        return f"{first},engine={self.engine.name}{f',sizes={sizes}' if sizes else ''}"

    @property
    def text(self) -> str:
        """The sizes as a user sees them: `4 to 64 GPUs`."""
        noun = {GPU: "GPU", TASK: "task"}.get(self.kind, "node")
        is_fixed = self.smallest == self.largest
        sizes = f"{'' if is_fixed else f'{self.smallest} to '}{self.largest}"
        return f"{sizes} {noun}{'' if self.largest == 1 else 's'}"


def counted(text: str) -> Optional[Request]:
    """Return the sizes of a request that counts workers. None if it counts nodes, or is not a
    request. The plugin has refused all other texts."""
    first, *keys = text.split(",")
    sizes = _RANGE.fullmatch(first)
    units = (_UNIT.fullmatch(key[5:]) for key in keys if key.startswith("unit="))
    unit = next(units, None)
    if not sizes or not unit or not unit[2]:
        return None
    return Request(int(sizes[1]), int(sizes[2]), int(unit[1] or 1), unit[2])


def allowed(text: str) -> frozenset[int]:
    """Return the sizes that this request allows. Empty if it allows its whole range."""
    sizes, named = _RANGE.match(text), _ALLOWED.search(text)
    if not sizes or not named:
        return frozenset()
    if named[1]:
        return frozenset(map(int, named[1].split(",")))
    return frozenset(_doubles(int(sizes[1]), int(sizes[2])))


def _doubles(smallest: int, largest: int) -> tuple[int, ...]:
    low = max(smallest, 1)
    return tuple(low << n for n in range(largest.bit_length()) if low << n <= largest)


def read(text: str) -> Request:
    """Return the request of a job where only Slurm and the job's own processes keep it up: each
    fragment is on one node. Raises RequestError.
    """
    try:
        return _read(text)
    except ValueError as error:
        quoted = re.sub(r"[^ -~]", "?", text)[:60]
        raise RequestError(f"--malleable={quoted}: {error}") from None


def _read(text: str) -> Request:
    first, *keys = _COMMA.split(text)
    sizes = _RANGE.fullmatch(first)
    if not sizes:
        raise ValueError("begin with MIN-MAX, for example --malleable=2-16")
    request, seen = Request(int(sizes[1]), int(sizes[2])), set()
    for key in keys:
        name, _, value = key.partition("=")
        if name not in _KEYS:
            raise ValueError(f"there is no key '{name}'; the keys are {', '.join(_KEYS)}")
        if name in seen:
            raise ValueError(f"{name} is given twice; write it once")
        seen.add(name)
        request = _KEYS[name](request, value)
    request = _settled(request)
    if fault := _fault(request):
        raise ValueError(fault)
    return request


def _settled(request: Request) -> Request:
    """Doubling may end below MAX. Then the job grows no further."""
    if not request.doubled:
        return request
    sizes = _doubles(request.smallest, request.largest)
    return replace(request, sizes=sizes, largest=max(sizes, default=0), doubled=request.largest)


def _fault(request: Request) -> str:
    """Return why this cannot be, empty if it can."""
    smallest, largest, unit = request.smallest, request.largest, request.unit
    if not largest or smallest > largest or max(largest, request.doubled) > MOST:
        return f"MIN and MAX are numbers up to {MOST}, and MIN is at most MAX"
    if not smallest and not request.engine.is_pool:
        return f"only a pool may have MIN 0; write 1-{largest}, or add engine=pool"
    if request.doubled and not smallest:
        return "sizes=x2 doubles MIN, which is 0; write a MIN of 1 or more"
    if any(size % unit for size in (smallest, largest, *request.sizes)):
        return f"MIN, MAX and sizes must be multiples of {unit}"
    if request.sizes and (request.sizes[0], request.sizes[-1]) != (smallest, largest):
        return f"sizes must begin with MIN {smallest} and end with MAX {largest}"
    if len(request.written) > MOST_CHARACTERS:
        return f"this is longer than {MOST_CHARACTERS} characters; write fewer sizes"
    return ""


def _unit(request: Request, value: str) -> Request:
    match = _UNIT.fullmatch(value)
    if not match or not value or int(match[1] or 1) > MOST:
        raise ValueError("write for example unit=gpu, unit=4gpu or unit=task")
    unit, kind = int(match[1] or 1), match[2] or ""
    if unit > 1 and not kind:
        raise ValueError(f"unit={unit}: {_TICK}")
    return replace(request, unit=unit, kind=kind)


def _engine(request: Request, value: str) -> Request:
    if value not in ENGINES:
        raise ValueError(f"the engines are {', '.join(ENGINES)}")
    return replace(request, engine=ENGINES[value])


def _sizes(request: Request, value: str) -> Request:
    if value == "x2":
        return replace(request, doubled=request.largest)
    words = value.split(",")
    sizes = tuple(int(word) for word in words if re.fullmatch(r"[0-9]{1,5}", word))
    is_rising = all(low < high for low, high in zip((0, *sizes), sizes))
    if len(sizes) != len(words) or len(sizes) > MOST_SIZES or not is_rising:
        raise ValueError("write sizes from small to large, for example sizes=2,4,8 or sizes=x2")
    return replace(request, sizes=sizes)


def _of_the_tick(request: Request, value: str) -> Request:
    raise ValueError(_TICK)


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
