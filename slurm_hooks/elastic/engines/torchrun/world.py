"""The world of a torchrun training: all agents of the job, and no program beside their rounds."""

from slurm_hooks.elastic.agent.companion import all_meet

make_world = all_meet
