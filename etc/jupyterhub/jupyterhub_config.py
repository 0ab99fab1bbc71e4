"""A profile for JupyterHub, with batchspawner and wrapspawner: JupyterLab in a small ordinary job.

It is not malleable, as what is in a notebook's memory would be lost with its node. Its user starts
pools of workers from cells; `plan.headroom_nodes` of malleable.toml keeps nodes free for such jobs.
At the end of your jupyterhub_config.py:

    load_subconfig("/usr/share/slurm-malleable/jupyterhub/jupyterhub_config.py")
"""

import batchspawner  # noqa: F401  its import lets notebooks say at which port they are

c = get_config()  # noqa: F821  JupyterHub's
c.JupyterHub.spawner_class = "wrapspawner.ProfilesSpawner"
notebook = {
    "default_url": "/lab",
    "req_runtime": "8:00:00",
    "req_nprocs": "2",
    "req_srun": "",  # in the batch script itself, so that sbatch inherits nothing of a step
    "req_prologue": "export WORKER_NODES=16",  # malleable pool --max=$WORKER_NODES ...
    "http_timeout": 120,
}
c.ProfilesSpawner.profiles = [
    ("Notebook with workers on idle nodes", "malleable", "batchspawner.SlurmSpawner", notebook),
]
