"""The output of scontrol as words: the configuration, and records of a line each.

These words come before any free text of an administrator, so the first value of a key counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

Words = Mapping[str, str]

_AS_OF = "Configuration data as of"
_SETTING = re.compile(rf"({_AS_OF}) (\S+)|(\w+(?:\[\d+\])?)\s+= (.*)")
_PAIR = re.compile(r"(?:^|\s)(\w+)=(\S*)")


def read_config(text: str) -> Words:
    """Return the settings in `show config`, with slurmctld's clock under `Configuration data as
    of`."""
    matches = (_SETTING.match(line) for line in text.splitlines())
    pairs = (
        match.group(1, 2) if match.group(1) else match.group(3, 4) for match in matches if match
    )
    return {key: value.strip() for key, value in pairs}


def read_records(text: str, kind: str) -> list[Words]:
    """Return the records that begin with the key `kind`, like NodeName."""
    return [words_of(line) for line in lines_of(text, kind)]


def lines_of(text: str, kind: str) -> list[str]:
    """Return the lines of these records."""
    return [line for line in text.splitlines() if line.startswith(f"{kind}=")]


def words_of(line: str) -> Words:
    """Return the words of a record."""
    return dict(reversed(_PAIR.findall(line)))


def name_in(line: str) -> str:
    """Return the name with which a record begins."""
    return line.split(maxsplit=1)[0].partition("=")[2]


def of_partition(words: Words) -> str:
    """Return the beginning of a partition's line in slurm.conf."""
    return f"PartitionName={words['PartitionName']}"
