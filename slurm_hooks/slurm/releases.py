"""The releases of Slurm on which this package's tests have passed.

The plugin has the same list (plugins/spank/releases.h). A test compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence

TESTED = ((22, 5), (24, 11), (25, 11), (26, 5))


def is_tested(version: Sequence[int]) -> bool:
    """Tell whether the tests passed on this release. Only year and month count."""
    return tuple(version[:2]) in TESTED


def known_releases() -> str:
    """Return the releases as people write them, like `22.05, 24.11`."""
    return ", ".join(f"{year}.{month:02d}" for year, month in sorted(TESTED))
