"""Jobs with unknown curves: the allocator uses curves that are learned from their rates.

The shipped allocator gets the believed curves instead of the true curves. In addition to the
advisor (`Way.LEARNED`) there are the ways of other systems without curves, for comparison. A job
reports the rate of a size after `MEASURE_S` of steady work there, once, with an error of `NOISE`.
Errors do not average out. It begins on its least size, and waits there for the first rate. In a
family, jobs of the same model share their rates, as long as Slurm lists them.
"""

from __future__ import annotations

import enum
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Optional

from papers.question import Question, Row, Spent
from papers.shipped import Allocator
from slurm_hooks.allocation.curves import curve_of, equal_share, equal_shares
from slurm_hooks.learning.learned import learn_among
from slurm_hooks.learning.reports import current
from slurm_hooks.model import Curve, Learned, Rate
from slurm_hooks.replay.costs import Rescale
from slurm_hooks.replay.work import Kind
from slurm_hooks.replay.world.learner import NOISE

MEASURE_S = 15.0
ALIKE = 0.1  # in the logarithm: sizes so close bring no news
LOOK_AGAIN_S = 300.0
LISTED_S = 300.0  # MinJobAge
LOOK_S = 180.0  # a probe without a rate by then is given up


class Way(enum.Enum):
    """The ways to do without curves."""

    LEARNED = "learned"  # the advisor
    LINEAR = "linear"  # linear until known: the measured rates, and linear beyond
    DESCENDING = "descending"  # the largest size first, then each half, as MalleTrain does


@dataclass(frozen=True)
class _Look:
    """A size that a job shall show, and the most node-seconds that this costs."""

    nodes: int
    cost_node_s: float


@dataclass(eq=False)
class _Pupil:
    """A job, and the rates that it has shown."""

    number: int
    kind: Kind
    rates: list[Rate] = field(default_factory=list)
    learned: Learned = field(default_factory=Learned)
    believed: Optional[Kind] = None
    look: Optional[_Look] = None
    looks_at_s: float = 0.0
    probed_node_s: float = 0.0
    looked_s: float = -math.inf

    def has_shown(self, nodes: int) -> bool:
        """True if it reported the rate of that size, or of a size so close that it makes no
        difference.
        """
        if nodes < 4:
            return any(r.nodes == nodes for r in self.rates)
        return any(abs(math.log(r.nodes / nodes)) < ALIKE for r in self.rates)


class Learning:
    """A policy that has to find out how its jobs scale."""

    def __init__(
        self,
        inner: Allocator,
        rescale: Rescale,
        way: Way = Way.LEARNED,
        is_family: bool = False,
        seed: int = 1,
    ) -> None:
        self.sees_ends = inner.sees_ends
        self.spent = Spent()
        self.wake_s = math.inf
        self._inner, self._way, self._is_family = inner, way, is_family
        self._rescale = rescale
        self._draw = random.Random(seed)
        self._pupils: dict[int, _Pupil] = {}
        self._ended: dict[_Pupil, float] = {}  # the time of their end: Slurm still lists them
        self._order: list[_Pupil] = []
        self._made: dict[tuple[Kind, int, str], Kind] = {}
        self._had: list[tuple[_Pupil, int]] = []
        self._now = -math.inf

    def look(self, now: float, jobs: Iterable[tuple[int, Kind, Mapping[int, float]]]) -> None:
        """Record the state of jobs: number, kind and the steady seconds of each size so far.

        The next question is about these jobs, in this order.
        """
        if self._had:
            self._count(now - self._now)
        self._now = now
        pupils = {}
        self._order = []
        self._ended = {p: at for p, at in self._ended.items() if now - at < LISTED_S}
        for number, kind, worked in jobs:
            pupil = self._pupils.get(number) or self._new(number, kind)
            self._measure(pupil, worked)
            pupils[number] = pupil
            self._order.append(pupil)
        for number in sorted(self._pupils.keys() - pupils.keys()):
            self._leave(self._pupils[number])
        self._pupils = pupils

    def _new(self, number: int, kind: Kind) -> _Pupil:
        self.spent.jobs += 1
        pupil = _Pupil(number, kind)
        self._learn(pupil)
        return pupil

    def _leave(self, pupil: _Pupil) -> None:
        self._ended[pupil] = self._now
        self.spent.jobs_probed += pupil.probed_node_s > 0

    def _measure(self, pupil: _Pupil, worked: Mapping[int, float]) -> None:
        new = [
            n
            for n, seconds in worked.items()
            if seconds >= MEASURE_S - 1e-6 and n >= pupil.kind.min_nodes and not pupil.has_shown(n)
        ]
        for nodes in new:
            rate = pupil.kind.rates[min(nodes, pupil.kind.max_nodes)]
            measured = rate * math.exp(self._draw.gauss(0, NOISE))
            pupil.rates.append(Rate(nodes, measured, NOISE, at=len(pupil.rates)))
        if new:
            self._learn(pupil)

    def _learn(self, pupil: _Pupil) -> None:
        """Learn from its rates so far, and revise the belief about it."""
        pupil.believed, pupil.looked_s = None, -math.inf
        if self._way is not Way.LEARNED:
            return
        kind = pupil.kind
        sizes = (1, kind.max_nodes, kind.min_nodes)
        pupil.learned = learn_among(tuple(pupil.rates), self._of_family(kind), *sizes)

    def _of_family(self, kind: Kind) -> tuple[Rate, ...]:
        if not self._is_family:
            return ()
        known = (*self._ended, *self._pupils.values())
        return current(rate for each in known if each.kind.name == kind.name for rate in each.rates)

    def decide(self, question: Question) -> Sequence[Row]:
        """The nodes of each job, `(class)`."""
        self.wake_s = math.inf
        shares = equal_shares([j.kind.max_nodes for j in question.jobs], sum(question.capacity))
        self._choose(question, shares)
        jobs = tuple(
            replace(held, kind=self._believed(pupil, share))
            for held, pupil, share in zip(question.jobs, self._order, shares)
        )
        rows = self._inner.decide(replace(question, jobs=jobs))
        self._had = [(pupil, sum(row)) for pupil, row in zip(self._order, rows)]
        for held, (pupil, size) in zip(question.jobs, self._had):
            if size and not pupil.has_shown(size):
                pause_s = 0.0 if size == sum(held.row) else self._rescale.up_s
                self.wake_s = min(self.wake_s, self._now + pause_s + MEASURE_S + 0.5)
        return rows

    def _count(self, seconds: float) -> None:
        """The node-seconds of jobs since the last decision."""
        self.spent.node_s += seconds * sum(size for _, size in self._had)

    def _choose(self, question: Question, shares: Sequence[int]) -> None:
        """Choose the jobs that shall show a size now. A running probe is kept."""
        if self._way is Way.LINEAR:
            return
        for held, pupil, share in zip(question.jobs, self._order, shares):
            nodes = sum(held.row)
            if not nodes:
                pupil.looks_at_s = self._now
            if pupil.look and not self._is_over(pupil):
                continue
            if pupil.look:
                pupil.look, pupil.believed = None, None
            if self._now - pupil.looked_s < LOOK_AGAIN_S:
                continue
            pupil.looked_s = self._now
            is_learned = self._way is Way.LEARNED
            look = self._first(pupil, nodes, share) if is_learned else self._half(pupil, share)
            self._begin(pupil, look)

    def _is_over(self, pupil: _Pupil) -> bool:
        look = pupil.look
        return not look or self._now - pupil.looks_at_s > LOOK_S or pupil.has_shown(look.nodes)

    def _begin(self, pupil: _Pupil, look: Optional[_Look]) -> None:
        if look is None:
            return
        pupil.look, pupil.looks_at_s, pupil.believed = look, self._now, None
        pupil.probed_node_s += look.cost_node_s
        self.spent.probed_node_s += look.cost_node_s
        self.spent.looks += look.cost_node_s > 0

    def _first(self, pupil: _Pupil, nodes: int, share: int) -> Optional[_Look]:
        """Its least size, at which it begins."""
        known, kind = pupil.learned, pupil.kind
        if nodes or known.sizes_seen or known.is_shared or kind.max_nodes <= kind.min_nodes:
            return None
        return _Look(kind.min_nodes, self._rescale.up_s * share)

    def _half(self, pupil: _Pupil, share: int) -> Optional[_Look]:
        """Sizes from its share down to its least. Each size is half of the size before."""
        size = min(share, pupil.kind.max_nodes)
        while size >= max(pupil.kind.min_nodes, 1) and pupil.has_shown(size):
            size //= 2
        if size < max(pupil.kind.min_nodes, 1):
            return None
        return _Look(size, (MEASURE_S + self._rescale.down_s) * max(share - size, 0))

    def _believed(self, pupil: _Pupil, share: int) -> Kind:
        """The kind of job with the believed curve, for the allocator."""
        kind, look = pupil.kind, pupil.look
        if look:
            return self._capped(kind, max(look.nodes, kind.min_nodes))
        if pupil.believed is None:
            curve = self._curve(pupil)
            pupil.believed = replace(kind, curve=curve) if curve else None
        return pupil.believed or self._sharing(kind, max(share, kind.min_nodes))

    def _capped(self, kind: Kind, nodes: int) -> Kind:
        key = (kind, nodes, "capped")
        if key not in self._made:
            self._made[key] = replace(kind, max_nodes=nodes, curve=_linear(nodes))
        return self._made[key]

    def _sharing(self, kind: Kind, share: int) -> Kind:
        key = (kind, share, "sharing")
        if key not in self._made:
            self._made[key] = replace(kind, curve=equal_share(share, kind.max_nodes))
        return self._made[key]

    def _curve(self, pupil: _Pupil) -> Optional[Curve]:
        if self._way is Way.LEARNED:
            return pupil.learned.curve
        if not pupil.rates:
            return _linear(pupil.kind.max_nodes)
        points = sorted((r.nodes, r.per_s) for r in pupil.rates)
        last, rate = points[-1]
        if last < pupil.kind.max_nodes:
            points.append((pupil.kind.max_nodes, rate / last * pupil.kind.max_nodes))
        if points[0][0] > 1:
            points.insert(0, (1, points[0][1] / points[0][0]))
        return curve_of(points)


@cache
def _linear(most: int) -> Curve:
    return Curve(((0, 0.0), (most, float(most))))
