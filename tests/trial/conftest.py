"""The site of the command line's tests, for the active check's."""

from __future__ import annotations

from unit.conftest import site

__all__ = ["site"]
