"""Each test of this directory is a row of the table of `make abuse`: the attempt and its result.

The verdict is the test's own.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

Row = Callable[[str, str], None]


@pytest.fixture
def row(record_property: Callable[[str, object], None]) -> Row:
    """Note the attempt and its result, with the numbers."""

    def tell(tried: str, happened: str) -> None:
        record_property("tried", tried)
        record_property("happened", happened)

    return tell
