"""The policy for job_submit as text, and faults that an administrator should know first."""

from __future__ import annotations

import pwd
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurm_hooks.settings.values import Settings
from slurm_hooks.slurm.cluster import cluster_command, parse_cluster
from slurm_hooks.slurm.lanes import find_unfit, is_by_qos, unfit_for_parts
from slurm_hooks.slurm.live import Port
from slurm_hooks.slurm.lua_policy import Rules, Submits, gpus_of, largest_of, render_policy
from slurm_hooks.slurm.part_nodes import LaneNames
from slurm_hooks.slurm.qos import Qos, parse_qos, qos_command, qos_of_partition
from slurm_hooks.slurm.scontrol import Words, read_config, read_records
from slurm_hooks.slurm.terms import decide, terms_command

REFUSED = "is not for malleable jobs, which will be refused"


@dataclass(frozen=True)
class SitePolicy:
    """The text of malleable_policy.lua, its faults, and Slurm's answer behind it."""

    text: str
    faults: tuple[str, ...]
    answer: str


def render_site(settings: Settings, port: Port) -> SitePolicy:
    """Ask Slurm once and render. If QOS matter here, ask the accounting database too.

    Raises RetryLater, CommandRefused, UnreadableOutput.
    """
    return render_answer(settings, port.ask(cluster_command()), port)


def render_answer(settings: Settings, answer: str, port: Port) -> SitePolicy:
    """Render from an answer to cluster_command. Raises the same errors as render_site."""
    config, site = read_config(answer), settings.site
    name = site.qos
    asks = is_by_qos(config) or name or _enforces_limits(config)
    known = parse_qos(port.ask(qos_command())) if asks else {}
    partitions = read_records(answer, "PartitionName")
    unfits = find_unfit(site.partitions, partitions, config, name, known)
    unfit = {lane: str(fault) for lane, fault in unfits.items()}
    for_parts = unfit_for_parts(site.parts_qos, config, known)
    unfit_qos = {qos: str(fault) for qos, fault in for_parts.items()}
    cluster = parse_cluster(answer, LaneNames(site.partitions, site.part_nodes, name))
    terms, odd = decide(cluster.lanes, lambda: port.ask(terms_command()))
    uids, users = map(find_uids, (settings.site.operators, settings.site.users))
    nodes = read_records(answer, "NodeName")
    gpus = gpus_of(nodes, settings.site.partitions)
    largest = {} if cluster.hidden else largest_of(nodes, settings.site.partitions)
    refused = {**unfit, **unfit_qos}
    rules = Rules(_submits(known, partitions), terms, refused, gpus, largest, users)
    return SitePolicy(
        text=render_policy(settings, cluster.slurm, uids, rules),
        faults=(
            *odd,
            *_qos_faults(name, known),
            *(f"partition {lane} {REFUSED}: {why}" for lane, why in unfit.items()),
            *(f"QOS {qos} {REFUSED}: {why}" for qos, why in unfit_qos.items()),
            *map(_stranger, unknown_users((*settings.site.operators, *settings.site.users))),
        ),
        answer=answer,
    )


def _enforces_limits(config: Words) -> bool:
    return bool({"limits", "safe"} & set(config.get("AccountingStorageEnforce", "").split(",")))


def _submits(known: Mapping[str, Qos], partitions: Sequence[Words]) -> Submits:
    """Return the submit limits of all QOS, since users may have any QOS."""
    limited = {name: qos.submits for name, qos in known.items() if qos.submits}
    own = {words["PartitionName"]: qos_of_partition(words) for words in partitions}
    return Submits(
        of_qos=dict(sorted(limited.items())),
        qos_of_partition={p: name for p, name in own.items() if name in limited},
        over=frozenset(name for name in limited if known[name].overrides_partition),
    )


def _qos_faults(name: str, known: Mapping[str, Qos]) -> list[str]:
    if name and name not in known:
        return [f"site.qos: there is no QOS {name}; sacctmgr add qos {name}, or correct site.qos"]
    return []


def find_uids(names: Sequence[str]) -> dict[str, int]:
    """Return the uids of the names that this host knows, each from a separate lookup.

    A directory service may hide users from a list of all users.
    """
    uids = {}
    for name in names:
        try:
            uids[name] = pwd.getpwnam(name).pw_uid
        except (KeyError, ValueError):  # ValueError: a NUL in the name
            continue
    return uids


def unknown_users(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names that this host does not know."""
    known = find_uids(names)
    return tuple(name for name in names if name not in known)


def _stranger(name: str) -> str:
    return (
        f"{name} is not a user of this host and could not submit or change malleable jobs; "
        "correct site.operators or site.users"
    )
