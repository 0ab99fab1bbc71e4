"""Prolog and Epilog: shell scripts, since they run before every job and must leave at once."""

from __future__ import annotations

from pathlib import Path

PROLOG = Path(__file__).with_name("prolog.sh")
EPILOG = Path(__file__).with_name("epilog.sh")
