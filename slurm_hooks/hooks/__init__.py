"""The Epilog: a shell script, since it runs after every job and must leave at once."""

from __future__ import annotations

from pathlib import Path

EPILOG = Path(__file__).with_name("epilog.sh")
