"""The releases of Slurm on which this package's tests have passed.

The plugin has the same list (plugins/spank/releases.h); a test compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence

TESTED = ((22, 5), (24, 11), (25, 11), (26, 5))


def is_tested(version: Sequence[int]) -> bool:
    """Whether the tests passed on this release, of which only year and month count."""
    return tuple(version[:2]) in TESTED


def known_releases() -> str:
    """The releases as people write them, like `22.05, 24.11`."""
    return ", ".join(f"{year}.{month:02d}" for year, month in sorted(TESTED))
