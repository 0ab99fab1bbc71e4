"""A throwaway real Slurm on this host, for the demo, the tests and the benchmarks.

`Sandbox.up(project_spec())` starts munged, slurmctld and a slurmd per node, with this project's
plugin, submit script and hooks. Leaving the context ends them and removes all files.
"""

from slurm_hooks.sandbox.box import Sandbox, list_sandboxes
from slurm_hooks.sandbox.spec import SandboxSpec

__all__ = ["Sandbox", "SandboxSpec", "list_sandboxes"]
