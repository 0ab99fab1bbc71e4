"""Open MPI (4 and 5) and MPICH. Their daemons run on the nodes of the round, and the stand-in for
ssh starts them (launch.py).
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from slurm_hooks.elastic.engines.gang.world import GangWorld

OPEN_MPI_HOSTS, HYDRA_HOSTS, LAUNCHER = "hosts", "hosts.hydra", "launch"
_PACKAGE_PATH = str(Path(__file__).resolve().parents[4])


class Mpi:
    """See GangEngine."""

    def variables(self, world: GangWorld) -> dict[str, str]:
        """Return variables that make the leader start all daemons itself. They stay attached to it,
        so that they end with it.
        """
        launcher, hosts = f"{world.folder}/{LAUNCHER}", f"{world.folder}/{OPEN_MPI_HOSTS}"
        return {
            "OMPI_MCA_plm": "rsh",
            "OMPI_MCA_ras": "^slurm",
            "OMPI_MCA_plm_rsh_agent": launcher,
            "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
            "OMPI_MCA_orte_leave_session_attached": "1",
            "OMPI_MCA_orte_default_hostfile": hosts,
            "PRTE_MCA_plm": "ssh",
            "PRTE_MCA_ras": "^slurm",
            "PRTE_MCA_plm_ssh_agent": launcher,
            "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
            "PRTE_MCA_prte_leave_session_attached": "1",
            "PRTE_MCA_prte_default_hostfile": hosts,
            "HYDRA_LAUNCHER": "ssh",
            "HYDRA_LAUNCHER_EXEC": launcher,
            "HYDRA_HOST_FILE": f"{world.folder}/{HYDRA_HOSTS}",
        }

    def lay_out(self, world: GangWorld) -> dict[str, str]:
        """Return the lists of hosts, and the program. The program finds this package at its own
        place and not in the working directory, where a user may have a json.py.
        """
        program = (
            f"import sys; sys.path = [{_PACKAGE_PATH!r}, *filter(None, sys.path)]; "
            f"from {__package__}.launch import main; sys.exit(main(sys.argv[1:]))"
        )
        launch = f"exec {shlex.quote(sys.executable)} -c {shlex.quote(program)}"
        return {
            OPEN_MPI_HOSTS: "".join(f"{p.name} slots={p.slots}\n" for p in world.places),
            HYDRA_HOSTS: "".join(f"{p.name}:{p.slots}\n" for p in world.places),
            LAUNCHER: f'#!/bin/sh\n{launch} "$@"\n',
        }
