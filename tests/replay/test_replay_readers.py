"""Logs are read, and unreadable lines are reported."""

from __future__ import annotations

import gzip
import math

import pytest

from replay.logs import IDLE, SCALING, SWF, write
from slurm_hooks.errors import UsageError
from slurm_hooks.replay.logs.idle_csv import read_idle
from slurm_hooks.replay.logs.log_lines import BadLog, Log
from slurm_hooks.replay.logs.placement import place
from slurm_hooks.replay.logs.sacct import read_sacct
from slurm_hooks.replay.logs.swf import RigidJob, read_swf
from slurm_hooks.replay.record import Interval
from slurm_hooks.replay.work import read_queue, read_scaling


@pytest.mark.parametrize("name", ["idle.csv", "idle.csv.gz"])
def test_idle_intervals(tmp_path, name):
    record = read_idle(Log(write(tmp_path / name, IDLE)), (0, 3))
    assert record.intervals == (Interval(0, 0.0, 100.0), Interval(0, 200.0, 300.5))
    assert (record.nodes, record.to_s) == (4, 500.0)
    assert record.equivalent_nodes == pytest.approx(200.5 / 500)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("a,0,5", "3 fields"),
        ("a,x,5,6", "column 'x' is not a number"),
        ("a,0,9,5", "is not an interval"),
        ("a,0,nan,5", "not a finite number"),
        ("a,0,250,280", "idle already"),
    ],
)
def test_a_bad_line_is_reported_with_its_number(tmp_path, line, said):
    path = write(tmp_path / "idle.csv", IDLE + line + "\n")
    with pytest.raises(BadLog, match=f"line 6: .*{said}"):
        read_idle(Log(path))
    complaints = []
    record = read_idle(Log(path, skip_bad=True, tell=complaints.append))
    assert (record.skipped, len(record.intervals), len(complaints)) == (1, 3, 1)


def test_a_damaged_archive_is_no_crash(tmp_path):
    path = tmp_path / "idle.csv.gz"
    path.write_bytes(gzip.compress(IDLE.encode())[:-10])
    with pytest.raises(BadLog, match="damaged"):
        read_idle(Log(path))
    with pytest.raises(UsageError, match="cannot read"):
        read_idle(Log(tmp_path / "none.csv"))


def test_workload_log_and_its_holes(tmp_path):
    workload = read_swf(Log(write(tmp_path / "log.swf.gz", SWF)))
    assert [job.number for job in workload.jobs] == [1, 2, 3]
    assert (workload.nodes, workload.window_s) == (4, 100.0)
    record = place(workload.jobs, 4, 100.0).record
    # node 3 is idle until job 2, known since its submission; all nodes are from 60 on
    assert Interval(3, 0.0, 40.0, 10.0) in record.intervals
    assert record.idle_node_s == 40 + 4 * 40


def test_bad_workload_line(tmp_path):
    path = write(tmp_path / "log.swf", SWF + "5 0 0\n")
    with pytest.raises(BadLog, match="line 7: 3 fields"):
        read_swf(Log(path))


def job(number, submit, run, nodes, request=None):
    return RigidJob(number, submit, -1.0, run, request or run, nodes)


SACCT = """JobIDRaw|Submit|Start|End|NodeList
1|1000|1000|1100|n[1-2]
1.batch|1000|1000|1100|n1
2|1050|1150|Unknown|n1
3|1050|Unknown|Unknown|None assigned
4|1010|1010|1200|n3
"""


def test_accounting(tmp_path):
    record = read_sacct(Log(write(tmp_path / "sacct.txt", SACCT)), "n[1-4]")
    intervals = set(record.intervals)
    assert (record.nodes, record.to_s) == (4, 200.0)
    assert Interval(0, 100.0, 150.0, 50.0) in intervals
    assert Interval(1, 100.0, 200.0, math.inf) in intervals
    assert Interval(3, 0.0, 200.0, math.inf) in intervals
    assert len(intervals) == 4


def test_accounting_with_dates_and_faults(tmp_path):
    text = "JobID|Submit|Start|End|NodeList\n5|2024-01-01T00:00:00|2024-01-01T00:01:00|{}|n1\n"
    good = write(tmp_path / "good", text.format("2024-01-01T00:02:00"))
    assert read_sacct(Log(good), "n[1-2]").idle_node_s == 60
    bad = write(tmp_path / "bad", text.format("yesterday"))
    with pytest.raises(BadLog, match="line 2: 'yesterday' is not a time"):
        read_sacct(Log(bad))
    with pytest.raises(BadLog, match="no column NodeList"):
        read_sacct(Log(write(tmp_path / "head", "JobID|Submit|Start|End\n")))


def test_a_text_that_is_no_list_of_nodes_is_a_fault_of_the_words(tmp_path):
    log = tmp_path / "log"
    log.write_text("JobIDRaw|Submit|Start|End|NodeList\n1|100|200|300|n1\n")
    with pytest.raises(UsageError, match="--nodes: node list"):
        read_sacct(Log(log), "n[1-")


def test_a_queue_of_the_user(tmp_path):
    curves = read_scaling(write(tmp_path / "scaling.json", SCALING))
    path = write(
        tmp_path / "queue.toml",
        'endless = false\n[[job]]\nmodel = "toy"\nimages = 100\nmax = 2\ncount = 3\n',
    )
    queue = read_queue(str(path), curves, seed=1)
    assert [(k.name, k.images, k.max_nodes) for k in queue] == [("toy", 100.0, 2)] * 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[job]]\nmodel = "other"\n', "no model other"),
        ('[[job]]\nmodel = "toy"\nminimum = 1\n', "unknown minimum"),
        ('[[job]]\nmodel = "toy"\nmin = 5\n', "are not a range"),
        ("endless = true\n", "no list of `job`"),
        ("[[job]\n", "queue.toml"),
    ],
)
def test_faults_of_a_queue(tmp_path, text, said):
    curves = read_scaling(write(tmp_path / "scaling.json", SCALING))
    with pytest.raises(UsageError, match=said):
        read_queue(str(write(tmp_path / "queue.toml", text)), curves, seed=1)
