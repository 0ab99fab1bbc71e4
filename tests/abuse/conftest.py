"""Each test of this directory is a row of the table of `make abuse`: what was tried, what happened.
The verdict is the test's own.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

Row = Callable[[str, str], None]


@pytest.fixture
def row(record_property: Callable[[str, object], None]) -> Row:
    """Tells what was tried and what came of it, the numbers included."""

    def tell(tried: str, happened: str) -> None:
        record_property("tried", tried)
        record_property("happened", happened)

    return tell
