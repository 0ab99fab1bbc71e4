"""Host lists of all nodes but a few. Their length and cost grow with the few nodes left out."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable

_Family = tuple[str, int]  # the text before the number, and the digits if the number begins with 0


class AllBut:
    """The names of a machine's nodes, ready to be listed without some of them."""

    def __init__(self, names: Iterable[str]) -> None:
        self._runs = {family: _runs(numbers) for family, numbers in _by_family(names).items()}

    def listed(self, left_out: Collection[str]) -> str:
        """Return all names but these as a Slurm host list, empty if no name remains."""
        few = _by_family(left_out)
        lists = (
            _text(family, _cut(runs, few.get(family, []))) for family, runs in self._runs.items()
        )
        return ",".join(filter(None, lists))


def _by_family(names: Iterable[str]) -> dict[_Family, list[int]]:
    """Return the sorted numbers of names that differ only in their numbers. -1: no number."""
    numbers: defaultdict[_Family, set[int]] = defaultdict(set)
    for name in names:
        digits = name[len(name.rstrip("0123456789")) :]
        width = len(digits) if digits.startswith("0") and digits != "0" else 0
        numbers[name[: len(name) - len(digits)], width].add(int(digits or -1))
    return {family: sorted(numbers[family]) for family in sorted(numbers)}


def _runs(numbers: list[int]) -> list[tuple[int, int]]:
    """Return the first and the last of each row of numbers without a gap. -1 is always alone."""
    ends = [n for n, after in zip(numbers, numbers[1:]) if after != n + 1 or n < 0]
    starts = [after for n, after in zip(numbers, numbers[1:]) if after != n + 1 or n < 0]
    return list(zip([*numbers[:1], *starts], [*ends, *numbers[-1:]]))


def _cut(runs: list[tuple[int, int]], few: list[int]) -> list[tuple[int, int]]:
    """Return the runs without a few numbers."""
    cut = []
    for first, last in runs:
        inside = few[bisect_left(few, first) : bisect_right(few, last)]
        starts, ends = [first, *(n + 1 for n in inside)], [*(n - 1 for n in inside), last]
        cut += [(start, end) for start, end in zip(starts, ends) if start <= end]
    return cut


def _text(family: _Family, runs: list[tuple[int, int]]) -> str:
    head, width = family
    names = [head] if runs and runs[0][0] < 0 else []
    parts = [_range(first, last, width) for first, last in runs if first >= 0]
    if parts:
        is_one = len(parts) == 1 and "-" not in parts[0]
        names.append(f"{head}{parts[0]}" if is_one else f"{head}[{','.join(parts)}]")
    return ",".join(names)


def _range(first: int, last: int, width: int) -> str:
    start, end = f"{first:0{width}}", f"{last:0{width}}"
    return start if first == last else f"{start}-{end}"
