"""Checks that a fragment which counts slots runs with the resources that it asked for.

Slurm has obeyed an update of a size in part without an error, and an operator may change a size.
Such a fragment is put back. Otherwise it trains with fewer workers than planned, or holds resources
that others could use.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Optional

from slurm_hooks.model import Detail, Fragment, FragmentState, Node, Reason, Resources, Slot, Why
from slurm_hooks.model.resources import NO_RESOURCES
from slurm_hooks.planning.moments import is_within

_YOUNG = timedelta(minutes=10)


def wrong_size(fragment: Fragment, node: Node, now: datetime) -> Optional[Reason]:
    """Say how the size of a fragment on this node is wrong. None if it is right.

    Its GPUs have to match exactly. It may have more processors and memory, since Slurm gives whole
    cores. It never has more than is used on its node, whatever Slurm says of the fragment. A share
    of the node is judged only while the run is young, since an administrator may change the node
    later.
    """
    slot, slots = fragment.mark.request.slot, fragment.mark.slots
    if slot is None or not slots or fragment.state is not FragmentState.RUNNING:
        return None
    if len(fragment.nodes) > 1:
        count, names = len(fragment.nodes), tuple(sorted(fragment.nodes))
        return Reason(Why.WRONG_SIZE, Detail(fragments=(fragment.id,), nodes=names, count=count))
    real = _at_most(fragment.asks, node.used) if node.used != NO_RESOURCES else fragment.asks
    is_young = is_within(now, fragment.start, _YOUNG)
    one = slot.on(node) if is_young else _without_shares(slot, node)
    asked, given = _differing(one.times(slots), real)
    if asked == given:
        return None
    detail = Detail(fragments=(fragment.id,), nodes=(node.name,), asked=asked, given=given)
    return Reason(Why.WRONG_SIZE, detail)


def _without_shares(slot: Slot, node: Node) -> Resources:
    return replace(slot.on(node), cpus=slot.cpus, memory_mib=slot.memory_mib)


def _at_most(given: Resources, used: Resources) -> Resources:
    gres = tuple((name, min(count, used.count(name))) for name, count in given.gres)
    cpus, memory = min(given.cpus, used.cpus), min(given.memory_mib, used.memory_mib)
    return Resources(cpus, memory, gres)


def _differing(asked: Resources, given: Resources) -> tuple[Resources, Resources]:
    """Return both without the resources that match."""
    kinds = [name for name, count in asked.gres if given.count(name) != count]
    lacks_cpus, lacks_memory = given.cpus < asked.cpus, given.memory_mib < asked.memory_mib

    def kept(resources: Resources) -> Resources:
        gres = tuple((name, resources.count(name)) for name in kinds)
        return Resources(resources.cpus * lacks_cpus, resources.memory_mib * lacks_memory, gres)

    return kept(asked), kept(given)
