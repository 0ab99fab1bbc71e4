"""Files that ticks keep: a file of other tables has another version, and so is put aside."""

from __future__ import annotations

import zlib
from types import ModuleType

import pytest

from slurm_hooks.books.ledger import schema as ledger
from slurm_hooks.learning.store import schema as learned


@pytest.mark.parametrize(
    ("schema", "version", "tables"),
    [(ledger, 6, 3028246722), (learned, 3, 2341860074)],
    ids=["ledger", "learned"],
)
def test_tables_change_only_with_their_version(
    schema: ModuleType, version: int, tables: int
) -> None:
    """If you change tables, raise VERSION, and both numbers here."""
    assert (schema.VERSION, zlib.crc32(schema.CREATE.encode())) == (version, tables)
