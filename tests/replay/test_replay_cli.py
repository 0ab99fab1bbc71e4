"""`malleable replay` as scripts see it."""

from __future__ import annotations

import json
import re

import pytest

from replay.logs import IDLE, SCALING, swf, write
from slurm_hooks.cli import main

KEYS = {
    "efficiency",
    "equivalent_nodes",
    "images_per_s",
    "preemptions",
    "work_lost_node_s",
    "idle_node_s",
    "used_node_s",
    "solve_s",
    "mean_job_s",
    "models",
}


@pytest.fixture
def words(tmp_path):
    scaling = write(tmp_path / "scaling.json", SCALING)
    queue = write(tmp_path / "queue.json", '{"endless": true, "job": [{"model": "toy"}]}')
    idle = write(tmp_path / "idle.csv", IDLE)
    return ["replay", "--scaling", str(scaling), "--queue", str(queue), "--jobs", "2"], idle


@pytest.mark.parametrize("policy", ["default", "oracle", "learned", "none"])
def test_json(words, capsys, policy):
    common, idle = words
    command = [*common, "--idle", str(idle), "--tick", "20", "--checkpoint", "0", "--json"]
    assert main([*command, "--policy", policy]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer.keys() >= KEYS
    assert answer["idle_node_s"] == pytest.approx(210.5)
    assert set(answer["solve_s"]) == {"count", "median", "p99", "maximum"}
    assert (answer["images_per_s"] > 0) == (policy != "none")


ACCOUNTS = """JobIDRaw|Submit|Start|End|NodeList
1|0|1000|4600|n[1-4]
2|0|4600|8200|n[1-2]
3|8000|8300|11800|n[1-4]
"""


def test_accounting_alone_is_enough(tmp_path, capsys):
    """n3 and n4 are idle for 3,700 s, n1 and n2 for 100 s, which is less than a usable gap."""
    path = write(tmp_path / "week.txt", f"\ufeff{ACCOUNTS}")  # as other systems begin a text
    assert main(["replay", "--sacct", str(path)]) == 0
    printed = capsys.readouterr().out
    first, held_up, second, third, *rest = printed.splitlines()
    week = 7 * 86_400 / 10_800
    assert first.startswith(f"{2 * 3700 / 3600 * week:,.0f} node-hours a week were idle in gaps of")
    assert "at least 3.5 minutes" in first
    assert re.search(
        r"10 malleable jobs had always been there, they would have trained for \d+ node-hours of "
        r"that \(9\d %\)",
        first,
    )
    assert second == "The log covers 0.1 days of 4 nodes."
    assert third.startswith("Assumed: 10 jobs at a time")
    assert "Amdahl's law" in third
    assert held_up == (
        "Fragments would have held up 0 of 1 starts of other jobs on idle nodes (0.0 %)."
    )
    assert any("oracle is a comparison and no upper bound" in line for line in rest)
    assert main(["replay", "--sacct", str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["usable_idle_node_s"] == 2 * 3700
    assert answer["scaling"] == "assumed"
    assert 0 < answer["worked_node_s"] < answer["used_node_s"]


BESIDE_1970 = """JobIDRaw|Submit|Start|End|NodeList
1|0|0|3600|n1
2|1764000000|1764000100|1764003600|n[1-4]
3|1764000000|1764006000|1764009600|n[2-3]
"""


def test_a_row_of_1970_is_refused_with_the_cuts_to_give(tmp_path, capsys):
    path = write(tmp_path / "week.txt", BESIDE_1970)
    command = ["replay", "--sacct", str(path)]
    assert main(command) == 64
    printed = " ".join(capsys.readouterr().err.split())
    assert "no node changes hands from 3600 to 1764000100 s, for 20417 days" in printed
    assert "Give --to 3600 or --from 1764000100" in printed
    assert main([*command, "--policy", "none", "--from", "1764000100"]) == 0
    assert "The log covers 0.1 days of 4 nodes." in capsys.readouterr().out


def test_a_workload_that_begins_in_1970_has_a_single_cut(words, tmp_path, capsys):
    path = write(tmp_path / "log.swf", "; MaxNodes: 4\n" + swf(1, 1_764_000_000, 0, 100, 3, 200))
    assert main([*words[0], "--swf", str(path), "--to", "1763990000"]) == 64
    assert "Give a log of a shorter time" in " ".join(capsys.readouterr().err.split())


def test_without_a_queue_all_models_of_the_table_run(words, capsys):
    _, idle = words
    scaling = words[0][2]
    assert main(["replay", "--idle", str(idle), "--scaling", scaling, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert list(answer["models"]) == ["toy"]
    assert answer["jobs"] == 10


def test_jobs_may_have_a_core_in_the_ordinary_queue(words, capsys):
    common, idle = words
    asked = [*common, "--idle", str(idle), "--json"]
    assert main([*asked, "--core", "1"]) == 0
    beside = json.loads(capsys.readouterr().out)
    assert main(asked) == 0
    alone = json.loads(capsys.readouterr().out)
    assert (beside["core"], alone["core"]) == (1, 0)
    assert beside["efficiency"] < alone["efficiency"]
    assert beside["used_node_s"] > 0


def test_learned_and_true_curves_are_shown_together(words, capsys):
    common, idle = words
    ticks = ["--tick", "20", "--checkpoint", "0"]
    command = [*common, "--idle", str(idle), *ticks, "--policy", "learned"]
    assert main([*command, "--compare", "default", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["policy"] == "learned"
    assert set(answer["lines"]) == {"default"}
    assert 0 < answer["efficiency"] <= answer["lines"]["default"]["efficiency"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "default" in printed


def test_tables_and_pictures(words, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    common, idle = words
    picture = tmp_path / "out.of.it"
    assert main([*common, "--idle", str(idle), "--png", str(picture)]) == 0
    assert picture.read_bytes()[:4] == b"\x89PNG"
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("default", "oracle", "toy"))


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["--nodes", "n1"], "--nodes goes with --sacct"),
        (["--from", "600"], "the log has 0 to 500"),
        (["--queue", "mix7"], "no model AlexNet"),
        (
            ["--queue", "shuflenet"],
            "shuflenet: no such queue or file; did you mean shufflenet?; queues: shufflenet, mix7",
        ),
        (["--queue", __file__], "is no JSON: "),
        (["--core", "9999"], "--core 9999: a job of the queue has"),
        (["--latency", "40", "--tick", "30"], "shorter than a tick, 30 s"),
        (["--latency", "20", "--tick", "30"], "shorter than a notice, 20 s"),
    ],
)
def test_each_fault_is_a_single_line(words, capsys, extra, said):
    common, idle = words
    assert main([*common, "--idle", str(idle), *extra]) == 64
    assert said in " ".join(capsys.readouterr().err.split())


def test_bad_lines_are_refused_or_counted(words, tmp_path, capsys):
    common, _ = words
    path = write(tmp_path / "bad.csv", IDLE + "x\n")
    assert main([*common, "--idle", str(path)]) == 65
    assert "line 6" in capsys.readouterr().err
    assert main([*common, "--idle", str(path), "--skip-bad", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["skipped_lines"] == 1


def test_accounting_with_a_job_of_long_ago_is_refused(tmp_path, capsys):
    """sacct without --truncate: the one job that began before would make the log ten weeks long."""
    week, day = 10**9, 86_400
    rows = [f"1|{week - 60 * day}|{week - 60 * day}|{week + 7 * day}|n1"]
    for at in range(140):
        start = week + at * 4_320
        rows.append(f"{at + 2}|{start}|{start}|{start + 4_000}|n{2 + at % 4}")
    head = "JobIDRaw|Submit|Start|End|NodeList"
    words = ["replay", "--policy", "none", "--sacct"]
    wrong = write(tmp_path / "wrong.txt", "\n".join([head, *rows]) + "\n")
    assert main([*words, str(wrong)]) == 64
    assert "hardly any job starts before 5188320 s" in " ".join(capsys.readouterr().err.split())
    assert main([*words, str(wrong), "--from", str(60 * day)]) == 0
    rows[0] = f"1|{week}|{week}|{week + 7 * day}|n1"
    right = write(tmp_path / "right.txt", "\n".join([head, *rows]) + "\n")
    assert main([*words, str(right)]) == 0


def test_without_malleable_jobs_only_the_idle_time_is_told(tmp_path, capsys):
    path = write(tmp_path / "week.txt", ACCOUNTS)
    assert main(["replay", "--sacct", str(path), "--policy", "none"]) == 0
    printed = capsys.readouterr().out
    assert "node-hours a week were idle" in printed
    assert "would have" not in printed
    assert "efficiency" not in printed


def test_a_surprising_start_is_held_up_and_a_planned_start_is_not(tmp_path, capsys):
    """Job 2 starts on n1 in the second in which it is submitted, job 3 on n2 after an hour."""
    log = ["JobIDRaw|Submit|Start|End|NodeList", "1|0|0|100|n[1-2]", "2|3700|3700|9000|n1"]
    path = write(tmp_path / "day.txt", "\n".join([*log, "3|1000|4600|9000|n2", ""]))
    assert main(["replay", "--sacct", str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    (row,) = answer["held_up"]
    assert row == {"least": 1, "most": 1, "starts": 2, "planned": 0, "at_once": 1}
    assert answer["held_up_s"] == {"usual": 2.0, "most": 30.0}
    assert main(["replay", "--sacct", str(path)]) == 0
    printed = capsys.readouterr().out
    assert (
        "held up 1 of 2 starts of other jobs on idle nodes (50.0 %), each for about 2 s" in printed
    )


@pytest.mark.parametrize("name", ["none/chart.png", "."])
def test_a_chart_that_cannot_be_written_is_refused_before_the_log_is_read(tmp_path, capsys, name):
    pytest.importorskip("matplotlib")
    missing, chart = tmp_path / "missing.csv", tmp_path / name
    assert main(["replay", "--idle", str(missing), "-o", str(chart)]) == 64
    assert f"-o {chart}: this file cannot be written" in capsys.readouterr().err
