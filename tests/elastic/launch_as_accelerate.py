"""Starts torch as `accelerate launch` 1.15 does.

Torch's own parser gives the defaults, accelerate's values replace them, and torchrun has no command
line.
"""

import sys

import torch.distributed.run as distrib_run

args, _ = distrib_run.get_args_parser().parse_known_args(
    ["--training_script", sys.argv[1], "--training_script_args", sys.argv[2:]]
)
values = {
    "rdzv_backend": "static",
    "rdzv_conf": "",
    "max_restarts": 0,
    "monitor_interval": 0.1,
    "nnodes": "2",
    "nproc_per_node": "1",
    "node_rank": 0,
    "master_addr": "no-such-host.invalid",
    "master_port": "29500",
    "training_script": sys.argv[1],
    "training_script_args": sys.argv[2:],
}
for name, value in values.items():
    setattr(args, name, value)
distrib_run.run(args)
