"""Starts torchrun as on a node whose GPUs are near processors: local rank N on the N-th of ours.

torch finds these by CUDA. All else of `--numa-binding` is torch's own.
"""

import os
from typing import Any

import torch.distributed.run as distrib_run
from torch.numa import binding


def near(*, gpu_index: int, numa_options: object) -> set[int]:
    processors = sorted(os.sched_getaffinity(0))
    return {processors[gpu_index % len(processors)]}


ours: Any = binding
ours._get_logical_cpus_to_bind_to = near
distrib_run.main()
