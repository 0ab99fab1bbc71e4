"""Starts torchrun as on a node whose GPUs are near processors: local rank N on the N-th of ours.

torch finds these by CUDA. All else of `--numa-binding` is torch's own.
"""

import os
from typing import Any

import torch.distributed.run as distrib_run
from torch.numa import binding


def near(*, numa_options: object, **index: int) -> set[int]:
    """As torch's own, to which `index` is gpu_index, or device_index since torch 2.14."""
    (seat,) = index.values()
    processors = sorted(os.sched_getaffinity(0))
    return {processors[seat % len(processors)]}


ours: Any = binding
ours._get_logical_cpus_to_bind_to = near
distrib_run.main()
