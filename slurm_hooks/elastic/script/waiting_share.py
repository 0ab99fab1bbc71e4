"""The share of a step that waits for other processes, as torch's DistributedDataParallel measures
it: every hundredth step, whether it is read or not.
"""

from __future__ import annotations

from typing import Any

from slurm_hooks.elastic.log import suppressed

NOT_SEEN = -1.0


def waiting_share(module: Any) -> float:
    """Return the share for the last measured step: the exchange of gradients that does not overlap
    with computing, divided by all measured time. NOT_SEEN without a module or a measurement.
    """
    if module is None:
        return NOT_SEEN
    with suppressed(Exception, doing="asking how long a step waits for others"):
        seen = module._get_ddp_logging_data()
        names = ("forward_compute_time", "backward_compute_time", "backward_comm_time")
        forward, backward, exchange = (max(0.0, float(seen[name])) for name in names)
        overlap = max(0.0, float(seen["backward_compute_comm_overlap_time"]))
        waits = max(0.0, exchange - overlap)
        if forward + backward > 0:
            return waits / (forward + backward + waits)
    return NOT_SEEN
