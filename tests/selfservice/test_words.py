"""What `malleable submit` reads: the request, the script, the command line, Slurm's answers."""

from __future__ import annotations

import os
from dataclasses import replace
from types import SimpleNamespace

import pytest

from slurm_hooks.elastic.agent.options import OptionError, options
from slurm_hooks.elastic.selfservice import lane, script
from slurm_hooks.elastic.selfservice.notes import Notes
from slurm_hooks.elastic.selfservice.plan import Plan, environment
from slurm_hooks.elastic.selfservice.status import elements, summary, why_back
from slurm_hooks.elastic.selfservice.submit import REFUSED, SubmitError, _place, order
from slurm_hooks.elastic.selfservice.wait import CANCELLED, FAILED, FINISHED, UNKNOWN, verdict
from slurm_hooks.protocol.request import read

SCRIPT = """\
#!/bin/bash -l
#SBATCH --malleable=1-4 --partition=preempt
# a comment

#SBATCH -t 30:00
#SBATCH --malleable 2-8
echo begin
#SBATCH --job-name=too-late
"""


def test_a_script_is_read_as_sbatch_reads_it() -> None:
    own = script.read(SCRIPT)
    assert own.interpreter == ("/bin/bash", "-l")
    assert own.options == ("#SBATCH --partition=preempt", "#SBATCH -t 30:00")
    assert own.request == "2-8"
    assert script.value(own.options, "--partition", "-p") == "preempt"
    assert script.value([*own.options, "-pother"], "--partition", "-p") == "other"
    assert script.value(own.options, "--time", "-t") == "30:00"
    for words in (["--part=other"], ["-Hpother"], ["-p", "other"], ["#SBATCH -Hp other"]):
        assert script.value([*own.options, *words], "--partition", "-p") == "other"
    assert script.value(["--time-min=3"], "--time", "-t") == ""


@pytest.mark.parametrize(
    ("line", "is_copy"),
    [
        ("srun python train.py", True),
        ("  exec srun --ntasks 1 /opt/env/bin/python3.11 -u train.py", True),
        ("srun torchrun train.py", False),
        ("srun python -m torch.distributed.run train.py", False),
        ("python train.py", False),
        ("# srun python train.py", False),
    ],
)
def test_a_script_that_would_train_copies_is_seen(line: str, is_copy: bool) -> None:
    assert bool(script.copies(f"#!/bin/bash\n{line}\n")) is is_copy


@pytest.mark.parametrize("text", ["echo hello\n", "", "#!\n", "#!/bin/bash\r\necho\r\n"])
def test_a_script_that_sbatch_refuses_is_refused(text: str) -> None:
    with pytest.raises(script.ScriptError):
        script.read(text)


@pytest.mark.parametrize(
    ("line", "options", "command"),
    [
        ("-p debug train.sh -p 3", "-p debug", "train.sh -p 3"),
        ("-pdebug --exclusive train.sh", "-pdebug --exclusive", "train.sh"),
        ("--partition debug -H train.sh", "--partition debug -H", "train.sh"),
        ("-Hp debug train.sh", "-Hp debug", "train.sh"),
        ("-HpX train.sh", "-HpX", "train.sh"),
        ("--mem=4G -- -odd.sh", "--mem=4G", "-odd.sh"),
        ("train.sh --lease 30 --malleable x", "", "train.sh --lease 30 --malleable x"),
    ],
)
def test_the_script_is_found_among_the_options(line: str, options: str, command: str) -> None:
    asked = order(["--malleable", "2-4", *line.split()], {})
    assert asked.request == "2-4"
    assert (" ".join(asked.options), " ".join(asked.command)) == (options, command)


def test_the_request_may_stand_in_the_environment() -> None:
    assert order(["train.sh"], {"SBATCH_MALLEABLE": "1-3"}).request == "1-3"


def test_a_request_without_a_script_is_refused() -> None:
    with pytest.raises(SubmitError):
        order(["--malleable=1-2"], {})


@pytest.mark.parametrize(
    "line",
    [
        "--array=0-3",
        "--arr=0-3",
        "--wait",
        "-W",
        "#SBATCH --wait",
        "-a 3",
        "-a0-5",
        "-Ha1-3",
        "-HW",
    ],
)
def test_options_that_cannot_be_passed_on_are_seen(line: str) -> None:
    options = [line] if line.startswith("#") else line.split()
    assert script.has(options, *REFUSED)
    assert not script.has(["--ntasks=3", "#SBATCH --mem=4G", "--time=9", "--gpus=4"], *REFUSED)


PARTITIONS = """\
PartitionName=main Default=YES QoS=N/A MaxTime=1-00:00:00 PriorityTier=10 PreemptMode=OFF State=UP
PartitionName=top Default=NO QoS=N/A MaxTime=1-00:00:00 PriorityTier=20 PreemptMode=REQUEUE State=UP
PartitionName=idle Default=NO QoS=N/A MaxTime=04:00:00 PriorityTier=1 PreemptMode=REQUEUE State=UP
PartitionName=apart Default=NO QoS=N/A MaxTime=04:00:00 PriorityTier=1 PreemptMode=REQUEUE State=UP
PartitionName=hard Default=NO QoS=N/A MaxTime=UNLIMITED PriorityTier=1 PreemptMode=CANCEL State=UP
PartitionName=gang Default=NO QoS=N/A MaxTime=UNLIMITED PriorityTier=1 PreemptMode=GANG,SUSPEND
"""
NODES = "n1|main\nn1|top\nn1|idle\nn1|hard\nn1|gang\nn2|main\nn9|apart\n"
SETTINGS = {"PreemptMode": "REQUEUE", "PreemptType": "preempt/partition_prio"}


def test_only_a_partition_from_which_slurm_takes_nodes_back_will_do() -> None:
    known, nodes = lane.partitions(PARTITIONS), lane.nodes_of(NODES)
    lane.check_partitions(lane.chosen("idle", known), known, nodes, SETTINGS)
    lane.check_partitions(lane.chosen("idle,hard", known), known, nodes, SETTINGS)
    for name in ("", "main", "gang", "idle,main", "top", "apart"):
        with pytest.raises(lane.LaneError, match="write --partition=idle"):
            lane.check_partitions(lane.chosen(name, known), known, nodes, SETTINGS)
    with pytest.raises(lane.LaneError, match="there is no partition nowhere"):
        lane.chosen("nowhere", known)
    assert lane.longest(("main", "idle"), known) == 4 * 3600


def test_only_a_qos_that_another_may_preempt_will_do() -> None:
    answer = "normal|scavenge|cluster|\nscavenge||cluster|1-02:00:00\nlong||requeue|\n"
    assert lane.longest_of_qos("scavenge", answer, SETTINGS) == 26 * 3600
    unlimited = answer.replace("1-02:00:00", "")
    assert lane.longest_of_qos("scavenge", unlimited, SETTINGS) == lane.NEVER_S
    for qos in ("normal", "long", ""):
        with pytest.raises(lane.LaneError, match="write --qos=scavenge"):
            lane.longest_of_qos(qos, answer, SETTINGS)


@pytest.mark.parametrize("kind", ["preempt/none", ""])
def test_a_slurm_that_takes_no_node_back_is_refused(kind: str) -> None:
    with pytest.raises(lane.LaneError, match="takes no node back"):
        lane.check_preemption({"PreemptType": kind})


def test_an_array_that_is_too_large_is_refused() -> None:
    lane.check_size(1000, {"MaxArraySize": "1001"})
    with pytest.raises(lane.LaneError, match="at most 1000 elements"):
        lane.check_size(1001, {"MaxArraySize": "1001"})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800),
        ("1:30", 90),
        ("1:30:00", 5400),
        ("2-12", 216_000),
        ("1-00:00:30", 86_430),
        ("UNLIMITED", lane.NEVER_S),
        ("0", lane.NEVER_S),
        ("", lane.NEVER_S),
    ],
)
def test_times_are_read_as_slurm_writes_them(text: str, seconds: int) -> None:
    assert lane.seconds(text) == seconds


def test_an_element_has_the_environment_that_the_plugin_would_set(tmp_path) -> None:
    plan = Plan("script", ("/bin/sh",), "2-16,unit=1,engine=torchrun", "big", 3600, "/job/path")
    element = {
        "SLURM_JOB_ID": "12",
        "SLURM_ARRAY_JOB_ID": "9",
        "SLURM_ARRAY_TASK_ID": "3",
        "PATH": "/bin",
    }
    shared = plan.directory(tmp_path, 7)
    env = environment(plan, element, shared)
    assert env["PET_NNODES"] == "2:16"
    assert env["PET_RDZV_ENDPOINT"] == env["MALLEABLE_DIR"] == str(shared)
    assert shared == tmp_path / f".malleable-{os.getuid()}" / "big" / "7"
    assert (env["PYTHONPATH"], env["PATH"]) == ("/job/path", "/job/path/bin:/bin")
    assert (env["MALLEABLE_JOB_ID"], env["MALLEABLE_FRAGMENT"]) == ("7", "3")
    tasks = environment(replace(plan, request="2-8,unit=2task"), element, shared)
    assert (tasks["PET_NNODES"], tasks["PET_NPROC_PER_NODE"]) == ("1:4", "2")
    pool = environment(replace(plan, request="0-4,engine=pool"), element, shared)
    assert not [name for name in pool if name.startswith("PET_")]


def test_a_job_that_an_element_submits_does_not_join_its_training(tmp_path) -> None:
    plan = Plan("script", ("/bin/sh",), "2-16,unit=1,engine=torchrun", "big", 3600, "/job/path")
    element = {"SLURM_JOB_ID": "12", "SLURM_ARRAY_JOB_ID": "9", "SLURM_ARRAY_TASK_ID": "3"}
    env = environment(plan, element, tmp_path / "9")
    asked = SimpleNamespace(
        min_nodes=2,
        max_nodes=16,
        endpoint=str(tmp_path),
        run_id="9",
        backend="malleable",
        local_addr="n1",
        get=lambda name: None,
    )
    assert options(asked, env).run == "9"
    with pytest.raises(OptionError, match="inherited the settings of job 9"):
        options(asked, {**env, "SLURM_JOB_ID": "13"})


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ("COMPLETED|1:00|trained{0} CANCELLED|0:00|", FINISHED),
        ("COMPLETED|1:00|finished{0} FAILED|1:00|trained{0}", FINISHED),
        ("COMPLETED|1:00|finished{0} CANCELLED|0:30|", FINISHED),
        ("COMPLETED|1:00| CANCELLED|0:30|", CANCELLED),
        ("COMPLETED|1:00| FAILED|0:30|", FAILED),
        ("FAILED|1:00| CANCELLED|0:00|", FAILED),
        ("FAILED|1:00|finished{2} FAILED|1:00|finished{2}", FAILED),
        ("TIMEOUT|1:00|", FAILED),
        ("CANCELLED+|1:00| PREEMPTED|1:00|", CANCELLED),
        ("COMPLETED|1:00| COMPLETING|1:00|", None),
        ("CANCELLED|1:00| PENDING|0:00|", None),
        ("", UNKNOWN),
    ],
)
def test_wait_knows_how_a_job_has_ended(rows: str, code: int | None) -> None:
    assert verdict(rows.split()) == code


SQUEUE = """\
7|0|RUNNING|None|2026-11-29T02:00:00|2026-11-29T03:00:00|n1|a|b|/h/.malleable-1/submitted/plan-0a/batch
7|1|PENDING|BeginTime|2026-11-29T02:02:00|N/A||a|b|/h/.malleable-1/submitted/plan-0a/batch --steps 3
7|2|PENDING|Priority|N/A|N/A||a|b|/h/.malleable-1/submitted/plan-0a/batch x|y
7|3|PENDING|Resources|N/A|N/A||a|b|/h/.malleable-1/submitted/plan-0a/batch
8|N/A|RUNNING|None|2026-11-29T02:00:00|N/A|n2|other|/h/train.sh
6|N/A|RUNNING|None|2026-11-29T02:00:00|N/A|n2|a|b|/h/.malleable-1/submitted/plan-0a/batch
"""


def test_status_shows_what_slurm_says_of_our_jobs(tmp_path) -> None:
    own = elements(SQUEUE)
    assert [(element.job, element.number) for element in own] == [("7", str(n)) for n in range(4)]
    assert {(element.name, element.folder) for element in own} == {
        ("a|b", "/h/.malleable-1/submitted/plan-0a")
    }
    why = "1 for the rest after it was given back, 1 for an idle node, behind others, "
    why += "1 for an idle node"
    wanted, notes = read("4-16,unit=4gpu"), Notes(tmp_path)
    assert summary(own, wanted, notes) == ("7", "a|b", "running", "4", "4-16", why)
    assert summary(own, None, None)[3:] == ("1", "?", why)
    notes.fail(1, 0)
    assert "1 for another try: it has failed 1 time" in summary(own, wanted, notes)[5]


def test_explain_says_why_an_element_was_given_back(tmp_path) -> None:
    notes = Notes(tmp_path)
    notes.fail(1, 0)
    assert why_back(1, notes, 100.0).startswith("another try: it has failed 1 time,")
    assert why_back(2, notes, 100.0) == ""
    notes.rest(200.0)
    assert why_back(2, notes, 100.0) == "enough idle nodes for MIN"
    assert why_back(2, notes, 201.0) == ""


def test_what_a_job_runs_lies_where_only_its_user_can_rename_it(tmp_path, monkeypatch) -> None:
    home, shared = tmp_path / "home", tmp_path / "shared"
    for directory in (home, shared, tmp_path / "sticky"):
        directory.mkdir()
    monkeypatch.setenv("HOME", str(home))
    assert _place(str(shared)).parents[1] == shared
    shared.chmod(0o2770)
    assert _place(str(shared)).parents[1] == home
    (tmp_path / "sticky").chmod(0o1777)
    assert _place(str(tmp_path / "sticky")).parents[1] == tmp_path / "sticky"
    home.chmod(0o777)
    with pytest.raises(SubmitError, match=f"others can rename what is in {shared}"):
        _place(str(shared))
