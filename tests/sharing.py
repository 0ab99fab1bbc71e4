"""The distribution of tests to workers: single tests, but whole files with a fixture for a
module.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

# Looked for as text: the process that hands out tests has no fixtures.
SHARED = 'scope="module"'


class SingleTests(LoadScopeScheduling):  # type: ignore[misc]
    """Deals out single tests in their order. A file with a fixture for its module is kept whole."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if _is_shared(self.config.rootpath / file) else nodeid


@cache
def _is_shared(file: Path) -> bool:
    return SHARED in file.read_text(encoding="utf-8")
