"""Reading what squeue and the reconciler wrote."""

import json

import pytest
from made_up import records

LINE = "3_1|malleable|RUNNING|1000|1005|1125|n7|(null)|\n4|main|PENDING|1045|1121|N/A||n[1-5]|\n"


def test_reads_samples_and_ticks():
    sample = records.parse_sample(1010.5, LINE)
    running, waiting = sample.rows
    assert sample.held == {"3_1": "n7"}
    assert (running.submit, running.start, running.end) == (1000.0, 1005.0, 1125.0)
    assert waiting.planned == frozenset({"n1", "n2", "n3", "n4", "n5"})
    assert not waiting.is_on_nodes
    grow = {"kind": "grow", "fragment": "3_0", "nodes": ["n6"], "cause": "hole open"}
    cancel = {"kind": "cancel", "fragments": ["3_1", "3_2"], "cause": "training finished"}
    at = {"at": "1970-01-01T00:16:40+00:00", "seconds": 0.25, "rpcs": 7, "refused": ["no"]}
    tick = records.parse_tick(json.dumps({**at, "plan": {"actions": [grow, cancel]}}))
    assert (tick.t, tick.rpcs, tick.refused) == (1000.0, 7, ("no",))
    assert tick.acts[0] == records.Act(1000.0, "grow", ("3_0",), "hole open", ("n6",))
    assert tick.acts[1].fragments == ("3_1", "3_2")


@pytest.mark.parametrize(
    "text", ["slurm_load_jobs error: x\n", "3_1|malleable\n", "3|a|b|x|||||\n"]
)
def test_says_what_it_cannot_read(text):
    with pytest.raises(ValueError):
        records.parse_sample(0.0, text)
    with pytest.raises(ValueError):
        records.parse_tick(text)
