"""The question about the site's QOS and its answer: who preempts whom, how many jobs they allow.

With PreemptType=preempt/qos it is the job's own QOS that counts: neither the partition's
PreemptMode nor a QOS that is only the partition's makes a job preemptible (22.05.8).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurm_hooks.errors import UnreadableOutput
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

    `submits` are its submit limits, against which every array element counts: of a `user`, of an
    `account`, of `all`. They count before those of the partition's QOS if it `is_over`.
    """

    name: str
    preempts: frozenset[str]
    mode: str
    submits: Mapping[str, int]
    is_over: bool


def qos_command() -> Command:
    """All QOS, by one sacctmgr; every user may ask."""
    asked = ("show", "qos", f"format={','.join(_FIELDS)}")
    return Command(("sacctmgr", "--noheader", "--parsable2", *asked))


def parse_qos(text: str) -> dict[str, Qos]:
    """Read the answer to qos_command. Raises UnreadableOutput."""
    rows = (line.split("|") for line in text.splitlines() if line.strip())
    found = (_qos(row) for row in rows)
    return {qos.name: qos for qos in found}


def _qos(row: Sequence[str]) -> Qos:
    try:
        words = dict(zip(_FIELDS, row))
        return Qos(
            name=words["Name"],
            preempts=frozenset(name for name in words["Preempt"].split(",") if name),
            mode=words["PreemptMode"].lower(),
            submits={kind: int(words[name]) for name, kind in _LIMITS.items() if words[name]},
            is_over="OverPartQOS" in words["Flags"].split(","),
        )
    except (KeyError, ValueError) as error:
        raise UnreadableOutput(f"sacctmgr show qos: not a QOS: {'|'.join(row)[:120]!r}") from error


def preemption_fault(name: str, known: Mapping[str, Qos], mode: str) -> str:
    """Why jobs with this QOS cannot be preempted by requeue where QOS decide; empty if they can.

    `mode` is PreemptMode of slurm.conf.
    """
    if not name:
        return (
            "PreemptType=preempt/qos: jobs yield by their QOS, and site.qos names none for "
            "malleable jobs; write the one that the others preempt, for example qos = "
            '"scavenge"'
        )
    if name not in known:
        return f"site.qos: there is no QOS {name}; sacctmgr add qos {name}, or correct site.qos"
    if not any(name in other.preempts for other in known.values()):
        return (
            f"QOS {name}: no other QOS may preempt it; for each that shall, write: "
            f"sacctmgr modify qos NAME set Preempt+={name}"
        )
    own = known[name].mode
    if "requeue" not in (mode.lower() if own == "cluster" else own):
        return (
            f"QOS {name}: its jobs are preempted by {own if own != 'cluster' else mode}, not by "
            f"requeue; write: sacctmgr modify qos {name} set PreemptMode=requeue"
        )
    return ""
