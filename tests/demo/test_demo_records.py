"""Reading what squeue, the reconciler and the job wrote."""

import json

import pytest
from made_up import records

LINE = "3_1|malleable|RUNNING|1000|1005|1125|n7|(null)|\n4|main|PENDING|1045|1121|N/A||n[1-5]|\n"


def test_reads_samples():
    sample = records.parse_sample(1010.5, LINE)
    running, waiting = sample.rows
    assert sample.held == {"3_1": "n7"}
    assert (running.submit, running.start, running.end) == (1000.0, 1005.0, 1125.0)
    assert waiting.planned == frozenset({"n1", "n2", "n3", "n4", "n5"})
    assert waiting.end is None
    assert not waiting.is_on_nodes


@pytest.mark.parametrize(
    "text", ["slurm_load_jobs error: x\n", "3_1|malleable\n", "3|a|b|x|||||\n"]
)
def test_says_what_it_cannot_read(text):
    with pytest.raises(ValueError):
        records.parse_sample(0.0, text)


def test_reads_ticks():
    grow = {"kind": "grow", "fragment": "3_0", "nodes": ["n6"], "cause": "hole open"}
    cancel = {"kind": "cancel", "fragments": ["3_1", "3_2"], "cause": "training finished"}
    data = {
        "at": "1970-01-01T00:16:40+00:00",
        "seconds": 0.25,
        "rpcs": 7,
        "refused": ["no"],
        "plan": {"actions": [grow, cancel]},
    }
    tick = records.parse_tick(json.dumps(data))
    assert (tick.t, tick.rpcs, tick.refused) == (1000.0, 7, ("no",))
    assert tick.acts[0] == records.Act(1000.0, "grow", ("3_0",), "hole open", ("n6",))
    assert tick.acts[1].fragments == ("3_1", "3_2")


@pytest.mark.parametrize("line", ["", "[]", "{}", "malleable: no"])
def test_a_line_that_is_no_tick_is_refused(line):
    with pytest.raises(ValueError):
        records.parse_tick(line)


def test_leaves_out_a_round_that_is_still_being_written():
    whole = json.dumps({"round": 1, "t": 9, "size": 3, "cause": "start", "restarts_used": 0})
    assert records.parse_rounds(f'{whole}\n{{"round": 2, "t"') == (
        records.Round(9.0, 3, "start", 0),
    )


def test_finds_the_last_step():
    lines = ["step 0 of 480: 3 processes", "step 50 of 480: loss 0.1", "malleable: round 2"]
    assert records.last_step(lines) == (50, 480)
    assert records.last_step(["nothing"]) == (0, 0)
    tasks = ["step 50 of 480", "task 7 of 9: by fragment 3", "another line"]
    assert records.last_step(tasks, "task") == (7, 9)
