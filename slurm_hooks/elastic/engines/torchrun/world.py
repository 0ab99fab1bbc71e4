"""The world of a torchrun training: all agents of the job, and nothing beside their rounds."""

from __future__ import annotations

from slurm_hooks.elastic.agent.companion import Alone, Facts, World
from slurm_hooks.elastic.agent.options import agents


def make_world(facts: Facts) -> World:
    """See WorldMaker."""
    wanted = agents(facts.wanted, facts.options, facts.env)
    return World(facts.options, wanted, Alone())
