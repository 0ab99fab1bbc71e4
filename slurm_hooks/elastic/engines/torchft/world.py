"""The world of a torchft training. A fragment is a replica group, alone in its rounds. A Keeper
beside them joins it to the other groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from slurm_hooks.elastic.agent.companion import Facts, World
from slurm_hooks.elastic.agent.membership import open_membership
from slurm_hooks.elastic.agent.options import Options, knob, number, refuse_parts
from slurm_hooks.elastic.batch.remark import write_remark
from slurm_hooks.elastic.engines.torchft.keeper import Keeper
from slurm_hooks.elastic.engines.torchft.lighthouse import LighthouseTiming, load
from slurm_hooks.elastic.log import say
from slurm_hooks.elastic.rendezvous.state import Member


def make_world(facts: Facts) -> World:
    """See WorldMaker. The environment gives torchft the address of its lighthouse. The user's own
    settings there win.
    """
    env = facts.env
    refuse_parts(env, "torchft", "all replica groups must have equally many processes")
    load()
    settings = of_groups(facts.options, env)
    timing = LighthouseTiming(max(0.3, knob(env, "heartbeat_s", 1.0)), knob(env, "join_s", 1.0))
    membership = open_membership(settings, facts.me, facts.signals)
    keeper = Keeper(settings, timing, membership)
    if "TORCHFT_LIGHTHOUSE" in env:
        line = "your TORCHFT_LIGHTHOUSE overrides the job's: its host must outlive every other node"
        say(line)
        write_remark(line)
    defaults = {
        "TORCHFT_LIGHTHOUSE": keeper.address,
        "TORCHFT_QUORUM_TIMEOUT_SEC": "86400",  # a group waits until its lease ends
        "TORCHFT_QUORUM_RETRIES": "1000000",  # torchft sleeps timeout / retries between two
        "REPLICA_GROUP_ID": str(facts.me.fragment),
        "NUM_REPLICA_GROUPS": str(max(1, settings.limits.largest // facts.options.limits.largest)),
    }
    for name, value in defaults.items():
        env.setdefault(name, value)
    return World(of_group(facts.options, facts.me), (), keeper, keep_state=True)


def of_group(job: Options, me: Member) -> Options:
    """Return options of a replica group, which is a fragment with its own world in the job's
    directory.
    """
    place = job.directory / "groups" / str(me.fragment)
    return replace(job, directory=place, is_told=False)


def of_groups(job: Options, env: Mapping[str, str]) -> Options:
    """Return options for joining the replica groups, counted in agents as of_group counts them."""
    unit = max(1, number(env.get("MALLEABLE_UNIT", "")))
    agents = job.limits.largest
    smallest = agents * max(1, number(env.get("MALLEABLE_MIN", "")) // unit)
    largest = agents * max(1, number(env.get("MALLEABLE_MAX", "")) // unit)
    return replace(job, limits=replace(job.limits, smallest=smallest, largest=largest))
