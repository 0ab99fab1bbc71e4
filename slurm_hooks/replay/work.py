"""The malleable work for the holes: models, their scaling, and their order.

All values are checked when they are read, with the file and the key in the message.
"""

from __future__ import annotations

import json
import math
import os
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Optional

from slurm_hooks.allocation.curves import prior
from slurm_hooks.errors import UsageError, nearest
from slurm_hooks.model import Curve

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

IMAGES = 130e6
"""Images of one job of the built-in queues: a hundred passes over ImageNet, as in BFTrainer."""

ASSUMED = "amdahl"
ASSUMED_NODE_H = 12.0
"""Where nothing was measured: the model, and how long one node takes for one of its jobs."""

MIX7 = ("AlexNet", "vgg16", "resnet18", "DenseNet", "mnasnet1", "shufflenet", "mobilenet")
BUILT_IN = ("shufflenet", "mix7")
MOST_NODES = 65_535


@dataclass(frozen=True)
class Kind:
    """Jobs of a model: `rates[n]` images/s on n nodes, zero below `min_nodes`.

    `checkpoint_s` is the time between checkpoints, None for the replay's own.
    """

    name: str
    curve: Curve
    min_nodes: int
    max_nodes: int
    images: float
    rates: tuple[float, ...]
    checkpoint_s: Optional[float] = None


def kind(name: str, curve: Curve, sizes: tuple[int, int] = (1, 64), images: float = IMAGES) -> Kind:
    """A kind of job from its curve. Raises ValueError if it could never make progress."""
    low, high = sizes
    if not 1 <= low <= high <= MOST_NODES:
        raise ValueError(f"sizes {low} to {high} are not a range within 1 to {MOST_NODES}")
    if not (images > 0 and math.isfinite(images)):
        raise ValueError(f"{images} images are not an amount of work")
    rates = tuple(curve(n) if n >= low else 0.0 for n in range(high + 1))
    if min(rates[low:]) <= 0:
        raise ValueError("the scaling table has no throughput at an allowed size")
    return Kind(name, curve, low, high, images, rates)


@dataclass(frozen=True)
class Queue:
    """Jobs in their order: blocks of `parts`, shuffled with a seed.

    An endless queue starts again after each block. Other queues end after `parts`.
    """

    parts: tuple[Kind, ...]
    is_endless: bool = True
    seed: Optional[int] = None

    def __iter__(self) -> Iterator[Kind]:
        rng = random.Random(self.seed)
        while True:
            block = list(self.parts)
            if self.seed is not None:
                rng.shuffle(block)
            yield from block
            if not self.is_endless:
                return

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The different kinds, by name."""
        return tuple(sorted(set(self.parts), key=lambda k: (k.name, k.images, k.max_nodes)))


def assumed_scaling() -> dict[str, Curve]:
    """A model for a site without measurements: Amdahl's law, with the serial fraction of planning.
    Its images are abstract: a job of IMAGES takes a single node ASSUMED_NODE_H."""
    per_s = IMAGES / (ASSUMED_NODE_H * 3600)
    return {ASSUMED: Curve(tuple((n, per_s * rate) for n, rate in prior().points))}


def read_scaling(path: Path) -> dict[str, Curve]:
    """Throughput curves by model name from a scaling table (JSON).

    Raises UsageError with file and model.
    """
    data = _read(path)
    table = data.get("scaling")
    if not isinstance(table, Mapping) or not table:
        raise UsageError(f"{path}: no object `scaling` with models in it")
    return {str(name): _curve(path, str(name), entry) for name, entry in table.items()}


def _curve(path: Path, name: str, entry: Any) -> Curve:
    try:
        points = dict(zip(entry["nodes"], map(float, entry["images_per_s"])))
        if len(points) != len(entry["images_per_s"]):
            raise ValueError("`nodes` and `images_per_s` differ in length or repeat a size")
        if not all(isinstance(n, int) and math.isfinite(v) for n, v in points.items()):
            raise ValueError("sizes must be whole numbers, rates finite")
        return Curve(tuple(sorted({**points, 0: 0.0}.items())))
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path}: model {name}: {error}") from error


def read_queue(name: str, curves: Mapping[str, Curve], seed: int) -> Queue:
    """The queue of that name or file. Without a name it has all models of `curves` in equal parts.
    Raises UsageError."""
    if not name:
        return Queue(tuple(_whole(model, curve) for model, curve in curves.items()), seed=seed)
    if name == "shufflenet":
        return Queue((_built_in("shufflenet", curves),))
    if name == "mix7":
        return Queue(tuple(_built_in(model, curves) for model in MIX7), seed=seed)
    path = Path(name)
    if not os.path.exists(path):
        known = f"{nearest(name, BUILT_IN)}; queues: {', '.join(BUILT_IN)}"
        raise UsageError(f"{name}: no such queue or file{known}")
    data = _read(path)
    jobs = data.get("job")
    if not isinstance(jobs, Sequence) or not jobs:
        raise UsageError(f"{path}: no list of `job` entries")
    parts: list[Kind] = []
    for number, entry in enumerate(jobs, start=1):
        try:
            parts += _parts(entry, curves)
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"{path}: job entry {number}: {_said(error)}") from error
    shuffled = seed if data.get("shuffle", False) else None
    return Queue(tuple(parts), bool(data.get("endless", False)), shuffled)


def _whole(model: str, curve: Curve) -> Kind:
    """Jobs of all sizes at which the model was measured."""
    try:
        return kind(model, curve, (1, curve.points[-1][0]))
    except ValueError as error:
        raise UsageError(f"model {model}: {error}") from error


def _built_in(model: str, curves: Mapping[str, Curve]) -> Kind:
    if model not in curves:
        raise UsageError(_unknown(model, curves))
    return kind(model, curves[model])


def _unknown(model: str, curves: Mapping[str, Curve]) -> str:
    return f"no model {model}; there is {', '.join(curves)} (--scaling FILE names others)"


KEYS = ("model", "images", "min", "max", "count", "checkpoint")


def _parts(entry: Any, curves: Mapping[str, Curve]) -> list[Kind]:
    unknown = set(entry) - set(KEYS)
    if unknown:
        raise ValueError(f"unknown {', '.join(sorted(unknown))}; known: {', '.join(KEYS)}")
    model = entry["model"]
    if model not in curves:
        raise ValueError(_unknown(model, curves))
    count = int(entry.get("count", 1))
    if not 1 <= count <= 1_000_000:
        raise ValueError(f"count {count} must be from 1 to 1000000")
    curve = curves[model]
    sizes = (int(entry.get("min", 1)), int(entry.get("max", curve.points[-1][0])))
    made = kind(model, curve, sizes, float(entry.get("images", IMAGES)))
    return [replace(made, checkpoint_s=_checkpoint(entry))] * count


def _checkpoint(entry: Mapping[str, Any]) -> Optional[float]:
    if "checkpoint" not in entry:
        return None
    seconds = float(entry["checkpoint"])
    if not 0 <= seconds < math.inf:
        raise ValueError(f"checkpoint {seconds:g} must be at least 0 seconds")
    return seconds


def _said(error: Exception) -> str:
    return f"no key {error}" if isinstance(error, KeyError) else str(error)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    try:
        data = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except ValueError as error:
        form = "TOML" if path.suffix == ".toml" else "JSON"
        raise UsageError(f"{path} is no {form}: {error}") from error
    if not isinstance(data, Mapping):
        raise UsageError(f"{path}: must be one object")
    return data
