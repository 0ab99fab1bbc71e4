"""One row per engine, for the reconciler, for the jobs and for job_submit.

job_submit passes the traits of a job's engine to the plugin (plugins/spank/traits.c).
"""

from __future__ import annotations

from dataclasses import dataclass

TRAITS = ("gang", "rounds", "torchrun", "pool")


@dataclass(frozen=True)
class Engine:
    """The traits of one engine. Each engine under torchrun has a folder of its name, the gangs of
    `malleable run` share one."""

    name: str  # as in --malleable=...,engine=NAME
    is_gang: bool  # all fragments are one world; otherwise each is a world of its own
    has_rounds: bool  # training stops while fragments come and go
    by_torchrun: bool  # the script starts torchrun, so it gets PET_* and our rendezvous
    is_pool: bool  # workers that never meet: MIN may be 0, exit code 0: none left for me

    @property
    def traits(self) -> str:
        """In words, as job_submit passes them to the plugin: `gang+rounds`."""
        flags = (self.is_gang, self.has_rounds, self.by_torchrun, self.is_pool)
        return "+".join(word for word, flag in zip(TRAITS, flags) if flag)


ENGINES = {
    row.name: row
    for row in (
        Engine("torchrun", is_gang=True, has_rounds=True, by_torchrun=True, is_pool=False),
        Engine("torchft", is_gang=False, has_rounds=False, by_torchrun=True, is_pool=False),
        Engine("mpi", is_gang=True, has_rounds=True, by_torchrun=False, is_pool=False),
        Engine("tensorflow", is_gang=True, has_rounds=True, by_torchrun=False, is_pool=False),
        Engine("command", is_gang=True, has_rounds=True, by_torchrun=False, is_pool=False),
        Engine("pool", is_gang=False, has_rounds=False, by_torchrun=False, is_pool=True),
    )
}
# A script that has one of these words starts torch's launcher: for job_submit and doctor.
LAUNCHERS = (
    "torchrun",
    "torch.distributed.run",
    "torch.distributed.launch",
    "elastic_launch",
    "accelerate",
    "slurm_hooks",
)
DEFAULT = "torchrun"  # where a request names none, here as in the plugin and in job_submit
# torch names the backend when it cannot find it, and that is all that we can say where torch
# is too old to load us, or cannot see us. So the name that jobs are given says what is missing.
BACKENDS = (
    "malleable",
    "malleable-needs-torch-2.6-or-newer-and-the-PYTHONPATH-of-the-job",
)
