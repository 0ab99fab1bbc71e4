"""The data of the pictures in the documents, on two hours of a small machine."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from metrics.recorded_week import openmetrics, play, settings_in
from slurm_hooks.replay.logs.swf import RigidJob, Workload

HOUR_S = 3600.0


def test_two_hours_are_played_and_recorded(tmp_path: Path) -> None:
    whole = RigidJob(1, submit_s=0, start_s=HOUR_S, run_s=HOUR_S / 2, request_s=HOUR_S, nodes=4)
    scrapes = list(play(Workload((whole,), nodes=4, window_s=2 * HOUR_S), settings_in(tmp_path)))
    families = list(text_string_to_metric_families(openmetrics(scrapes)))
    by_name = {sample.name: sample.value for family in families for sample in family.samples}
    assert 5.5 * HOUR_S < by_name["malleable_harvested_node_seconds_total"] < 6 * HOUR_S
    (nodes,) = (family for family in families if family.name == "malleable_nodes")
    others = [sample.value for sample in nodes.samples if sample.labels["use"] == "others"]
    assert (others.count(4), others.count(0)) == (6, 18)
