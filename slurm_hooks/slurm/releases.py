"""The releases of Slurm on which this package's tests have passed.

The plugin has the same list (plugins/spank/releases.h). A test compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence

# The patch of each release on which the tests ran.
TRIED = ((22, 5, 8), (23, 11, 4), (24, 11, 5), (25, 5, 8), (25, 11, 8), (26, 5, 5))
TESTED = tuple((year, month) for year, month, _ in TRIED)


def is_tested(version: Sequence[int]) -> bool:
    """Tell whether the tests passed on this release. Only year and month count."""
    return tuple(version[:2]) in TESTED


def tried_instead(version: Sequence[int]) -> str:
    """Return the patch of a tested release on which the tests ran, empty if it is this one."""
    patches = [tried for tried in TRIED if tried[:2] == tuple(version[:2])]
    return "" if tuple(version) in patches else ", ".join(_name(tried) for tried in patches)


def known_releases() -> str:
    """Return the releases as people write them, like `22.05, 24.11`."""
    return ", ".join(_name(release) for release in sorted(TESTED))


def _name(version: Sequence[int]) -> str:
    """Return a release or a patch as people write it, like `22.05` or `22.05.8`."""
    year, month, *patch = version
    return ".".join([str(year), f"{month:02d}", *map(str, patch)])
