"""The file that ticks keep: one of other tables has another version, and so is put aside."""

from __future__ import annotations

import zlib

from slurm_hooks.history import database


def test_tables_change_only_with_their_version() -> None:
    """If you change tables, raise VERSION, and both numbers here."""
    assert (database.VERSION, zlib.crc32(database.CREATE.encode())) == (8, 4033934361)
