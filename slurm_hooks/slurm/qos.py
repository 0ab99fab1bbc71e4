"""The question about the site's QOS and its answer: which preempts which, and their job limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from slurm_hooks.errors import UnreadableOutput
from slurm_hooks.slurm.scontrol import Words
from slurm_hooks.slurm.text import Command

_LIMITS = {
    "MaxSubmitJobsPerUser": "user",
    "MaxSubmitJobsPerAccount": "account",
    "GrpSubmitJobs": "all",
}
_FIELDS = ("Name", "Preempt", "PreemptMode", *_LIMITS, "Flags")


@dataclass(frozen=True)
class Qos:
    """A QOS: which others it may preempt, and how its own jobs are preempted.

    `submits` are its submit limits for a `user`, an `account` and `all`. Every array element
    counts. If it `overrides_partition`, they count before the limits of the partition's QOS."""

    name: str
    preempts: frozenset[str]
    mode: str
    submits: Mapping[str, int] = field(default_factory=dict)
    overrides_partition: bool = False


def qos_command() -> Command:
    """Ask for all QOS, by a single sacctmgr. Every user may ask."""
    words = ("show", "qos", f"format={','.join(_FIELDS)}")
    return Command(("sacctmgr", "--noheader", "--parsable2", *words))


def parse_qos(text: str) -> dict[str, Qos]:
    """Read the answer to qos_command. Raises UnreadableOutput."""
    rows = (line.split("|") for line in text.splitlines() if line.strip())
    all_qos = (_qos(row) for row in rows)
    return {qos.name: qos for qos in all_qos}


def _qos(row: Sequence[str]) -> Qos:
    try:
        words = dict(zip(_FIELDS, row))
        return replace(
            qos_of(words),
            submits={kind: int(words[name]) for name, kind in _LIMITS.items() if words[name]},
            overrides_partition="OverPartQOS" in words["Flags"].split(","),
        )
    except (KeyError, ValueError) as error:
        raise UnreadableOutput(f"sacctmgr show qos: not a QOS: {'|'.join(row)[:120]!r}") from error


def qos_of_partition(words: Words) -> str:
    """Return the QOS of a partition, or an empty name. slurmdbd keeps small letters, and the
    partition shows the letters of slurm.conf (22.05.8)."""
    name = words.get("QoS", "").lower()
    return "" if name == "n/a" else name


def qos_of(words: Words) -> Qos:
    """Return a QOS without its limits, from sacctmgr's words. Raises KeyError."""
    return Qos(
        name=words["Name"],
        preempts=frozenset(name for name in words["Preempt"].split(",") if name),
        mode=words["PreemptMode"].lower(),
    )
