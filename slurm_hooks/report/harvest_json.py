"""The use of idle nodes, as plain JSON data."""

from __future__ import annotations

from typing import Any

from slurm_hooks.history.harvest.totals import Totals
from slurm_hooks.report.json_data import plain
from slurm_hooks.report.why import over_text


def harvest_data(totals: Totals) -> dict[str, Any]:
    """Totals of a span. Keys end in their units. `idle` is by reason, in node-seconds."""
    data: dict[str, Any] = plain(totals)
    data["idle"] = {reason.value: node_s for reason, node_s in totals.idle.items()}
    for sample, item in zip(totals.samples, data["samples"]):
        item["idle"] = {reason.value: nodes for reason, nodes in sample.idle.items()}
    for job, item in zip(totals.jobs, data["jobs"]):
        item["text"] = plain(over_text(job.over, job.stop))
    data["used_share"] = totals.used_share
    data["efficiency"] = totals.efficiency
    data["interruptions"] = sum(end.count for end in totals.interruptions)
    data["interrupted_node_s"] = sum(end.node_s for end in totals.interruptions)
    data["delayed_jobs"] = len(totals.caused)
    data["delay_s"] = sum(delay.held_s for delay in totals.caused)
    return data
