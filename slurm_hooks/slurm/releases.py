"""The releases of Slurm on which this package's tests have passed.

The plugin has the same list, as numbers of Slurm's interface; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

# (year, month) -> what slurm_api_version() says in its upper half
TESTED: Mapping[tuple[int, int], int] = {(22, 5): 38, (24, 11): 42, (26, 5): 45}


def is_tested(version: Sequence[int]) -> bool:
    """Whether the tests passed on this release, of which only year and month count."""
    return tuple(version[:2]) in TESTED


def tested_names() -> str:
    """The releases as people write them, like `22.05, 24.11`."""
    return ", ".join(f"{year}.{month:02d}" for year, month in sorted(TESTED))
