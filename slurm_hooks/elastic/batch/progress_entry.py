"""`progress{...}`: the speed that an agent reports, in 120 characters at the head of Comment.

    progress{s1790000000,8:1234/12/256,4:700/9/128/5400,p20/12/8/40,y12}

* `s`: rates count samples a second (`n`: optimizer steps a second times the size), up to this
  unix second.
* Then the newest rate of each size, newest first. Its parts: the size as the request counts it
  (nodes or workers), the rate, its relative error in thousandths, samples in a step of all
  processes (0: unknown). If it is not the newest, its age against the newest in seconds.
* `p`: the seconds that a start, a growth, a shrink, an interruption took, empty if not seen.
* `y`: per cent of a step that wait for others.

The reader is slurm/telemetry.py. An agent reads its own fragment's entry when it starts again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Optional

from slurm_hooks.protocol.comment import PROGRESS_WIDTH

REFRESH_S = 1800  # an unchanged rate is reported again after so long
_LITTLE = 0.02  # a smaller difference is no change of a rate
_BATCH = 0.05  # the same for a batch
_FINER = 2.0  # an error that is so many times smaller is news
_LITTLE_S, _LITTLE_PAUSE = 2.0, 0.25  # for pauses
_OLDEST_S = 9_999_999
_LEAST, _MOST = 1e-9, 1e15  # a rate or a batch outside is nonsense, and no tick reads it
_ENTRY = re.compile(r"progress\{([sn])([0-9]{1,12}),([^{}]*)\}")
_TOLD = re.compile(r"([1-9][0-9]{0,4}):([0-9.e-]+)/([0-9]{1,3})/([0-9.e-]+)(?:/([0-9]{1,7}))?")


@dataclass(frozen=True)
class ToldRate:
    """The rate `per_s` on `nodes` nodes, its relative error, when (unix seconds), samples in a
    step.
    """

    nodes: int
    per_s: float
    error: float
    at: int
    batch: float = 0.0


@dataclass(frozen=True)
class ToldPauses:
    """Seconds without a step, `None` if not seen."""

    start_s: Optional[float] = None
    grow_s: Optional[float] = None
    shrink_s: Optional[float] = None
    loss_s: Optional[float] = None


@dataclass(frozen=True)
class Progress:
    """A whole report. `rates` has a rate for each size, the newest last, in samples or in steps
    times nodes.
    """

    rates: tuple[ToldRate, ...] = ()
    in_samples: bool = True
    sync: Optional[float] = None
    pauses: ToldPauses = ToldPauses()


def differs(old: ToldRate, new: ToldRate) -> bool:
    """Tell whether a rate has changed by more than its error, or a clock was set back."""
    if abs(new.per_s - old.per_s) > max(_LITTLE, old.error + new.error) * old.per_s:
        return True
    return abs(new.batch - old.batch) > _BATCH * old.batch or new.at < old.at


def is_due(old: ToldRate, new: ToldRate) -> bool:
    """Tell whether an unchanged rate is worth reporting again: if it is known much better, or after
    REFRESH_S.
    """
    return new.error * _FINER < old.error or new.at - old.at >= REFRESH_S


def is_news(old: Optional[Progress], new: Progress) -> bool:
    """Tell whether it is worth reporting."""
    if old is None or old.rates != new.rates or old.in_samples is not new.in_samples:
        return True
    return any(map(_is_other_pause, astuple(old.pauses), astuple(new.pauses)))


def _is_other_pause(old_s: Optional[float], new_s: Optional[float]) -> bool:
    if old_s is None or new_s is None:
        return old_s is not new_s
    return abs(new_s - old_s) > max(_LITTLE_S, _LITTLE_PAUSE * old_s)


def entry(progress: Progress) -> str:
    """Return the text of a report, which must have a rate. The oldest sizes are left out if they do
    not fit, the smallest last.
    """
    newest = progress.rates[-1].at
    head = f"{'s' if progress.in_samples else 'n'}{newest}"
    rates = list(reversed(progress.rates))
    tail = _pauses(progress.pauses)
    if progress.sync is not None:
        tail.append(f"y{min(100, max(0, round(100 * progress.sync)))}")
    while True:
        text = f"progress{{{','.join([head, *(_rate(rate, newest) for rate in rates), *tail])}}}"
        if len(text) <= PROGRESS_WIDTH or len(rates) == 1:
            return text
        is_smallest_last = rates[-1].nodes == min(rate.nodes for rate in rates)
        del rates[-2 if is_smallest_last and len(rates) > 2 else -1]


def earlier(text: str) -> Optional[Progress]:
    """Return the rates of an earlier report, `None` without a rate that an agent could write."""
    match = _ENTRY.fullmatch(text)
    if not match:
        return None
    matches = filter(None, map(_TOLD.fullmatch, match[3].split(",")))
    try:
        rates = [_told(words, int(match[2])) for words in matches]
    except ValueError:
        return None
    sane = [rate for rate in rates if _LEAST <= rate.per_s <= _MOST and rate.batch <= _MOST]
    ranked = sorted(sane, key=lambda rate: rate.at)
    return Progress(tuple(ranked), match[1] == "s") if ranked else None


def _told(words: re.Match[str], newest: int) -> ToldRate:
    nodes, per_s, error, batch, age_s = words.groups()
    at = newest - int(age_s or 0)
    return ToldRate(int(nodes), float(per_s), int(error) / 1000, at, float(batch))


def _rate(rate: ToldRate, newest: int) -> str:
    age_s = min(_OLDEST_S, max(0, newest - rate.at))
    error = min(999, max(1, round(1000 * rate.error)))
    parts = [str(rate.nodes), f"{number(rate.per_s)}/{error}/{number(rate.batch)}"]
    return ":".join(parts) + (f"/{age_s}" if age_s else "")


def _pauses(pauses: ToldPauses) -> list[str]:
    all_s: Sequence[Optional[float]] = astuple(pauses)
    words = ["" if seconds is None else str(min(9999, round(seconds))) for seconds in all_s]
    return ["p" + "/".join(words)] if any(words) else []


def number(value: float) -> str:
    """Return a number in four digits or more, and nine characters at most: `0.01234`, `123456`,
    `1.235e9`.
    """
    if 1000 <= value < 999_999.5:
        return f"{value:.0f}"
    mantissa, _, exponent = f"{value:.4g}".partition("e")
    return f"{mantissa}e{int(exponent)}" if exponent else mantissa
