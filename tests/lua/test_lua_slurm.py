"""The submit script in a real slurmctld: sbatch and scontrol with malleable jobs."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from kept_sandbox import cancel_jobs_of
from waiting import wait_until

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(os.geteuid() != 0, reason="submits as another user, which needs root"),
]

USER = "nobody"
SCRIPT = "#!/bin/sh\nexec sleep 600\n"


def submit(sandbox: Any, *options: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run sbatch as an ordinary user. The script writes no log."""
    script = sandbox.work / "lua_job.sh"
    script.write_text(SCRIPT)
    script.chmod(0o755)
    argv = ["sbatch", "--parsable", *options, str(script)]
    done: subprocess.CompletedProcess[str] = sandbox.run(argv, user=USER, check=check)
    return done


def show(sandbox: Any, job: str) -> dict[str, str]:
    """Fields of a job as scontrol shows them."""
    text = sandbox.run(["scontrol", "-o", "show", "job", job]).stdout.splitlines()[0]
    return dict(re.findall(r"(\w+)=(\S*)", text))


@pytest.fixture(autouse=True)
def _tidy(sandbox: Any) -> Iterator[None]:
    yield
    cancel_jobs_of(sandbox, USER)


@pytest.fixture
def job(sandbox: Any) -> str:
    return submit(sandbox, "--malleable=2-4", "--output=/dev/null").stdout.strip()


def update(sandbox: Any, *words: str, user: Any = USER) -> subprocess.CompletedProcess[str]:
    done: subprocess.CompletedProcess[str] = sandbox.run(
        ["scontrol", *words], user=user, check=False
    )
    return done


def test_becomes_a_held_array(sandbox: Any, job: str) -> None:
    seen = show(sandbox, job)
    assert seen["ArrayTaskId"] == "0-3"
    assert (seen["Priority"], seen["Reason"]) == ("0", "JobHeldUser")
    assert (seen["Partition"], seen["NumNodes"]) == ("malleable", "1-1")
    assert seen["Requeue"] == "1"
    comment = seen["AdminComment"]
    assert comment.startswith("malleable{min=2,max=4,unit=1,engine=torchrun,frags=4,lease=")


def test_option_in_the_script_and_own_times(sandbox: Any) -> None:
    done = submit(sandbox, "--malleable=2-4,unit=2,launch=srun", "--time=5", "--time-min=4",
                  "--output=/dev/null")  # fmt: skip
    seen = show(sandbox, done.stdout.strip())
    assert (seen["ArrayTaskId"], seen["NumNodes"]) == ("0-1", "2-2")
    assert (seen["TimeLimit"], seen["TimeMin"]) == ("00:05:00", "N/A")
    assert "frags=2,lease=300,hole=240,launch=srun,name=" in seen["AdminComment"]


CORE = ("--malleable=1-4,core=1,core_end=finish,sizes=x2,prefer=2,min_run=5m", "--output=/dev/null")


@pytest.mark.parametrize("partition", [["-p", "main"], ["-p", "main,malleable"], []], ids=str)
def test_a_core_waits_where_its_users_ordinary_jobs_do(sandbox: Any, partition: list[str]) -> None:
    """All elements wait: Slurm judges them as ordinary jobs, and only a tick moves some."""
    done = submit(sandbox, *CORE, *partition, "--time=2:00:00")
    squeue = ["squeue", "-h", "-r", "-o", "%K|%P|%l|%T|%Q|%r", "-j", done.stdout.strip()]
    rows = sandbox.run(squeue, user=USER).stdout.split()
    assert sorted(rows) == [f"{n}|main|2:00:00|PENDING|0|JobHeldUser" for n in range(4)]
    comment = show(sandbox, done.stdout.strip())["AdminComment"]
    assert ",core=1,end=finish,lane=malleable,frags=4,lease=" in comment
    assert comment.endswith(",allow=1+2+4,prefer=2,keep=300}")
    assert (
        "core=1 waits in main like any job, and the other nodes come from idle nodes in"
        in done.stderr
    )


def test_a_core_without_its_own_time_gets_the_time_of_the_partition(sandbox: Any) -> None:
    ordinary = submit(sandbox, "--hold", "--output=/dev/null").stdout.strip()
    core = submit(sandbox, *CORE).stdout.strip()
    assert show(sandbox, core)["TimeLimit"] == show(sandbox, ordinary)["TimeLimit"]


def test_a_core_in_a_lane_alone_is_refused(sandbox: Any) -> None:
    done = submit(sandbox, *CORE, "--partition=malleable", check=False)
    assert done.returncode != 0
    assert "write --partition=main,malleable" in done.stderr


def test_a_core_beside_a_lane_that_is_closed_to_its_user_is_refused(sandbox: Any) -> None:
    """A tick may move any job to the lane, and Slurm asks for no group of the user's then."""
    job = submit(sandbox, *CORE).stdout.strip()
    update(sandbox, "update", "PartitionName=malleable", "AllowGroups=root", user=None)
    try:
        done = submit(sandbox, *CORE, check=False)
        moved = update(sandbox, "update", f"jobid={job}_3", "Partition=malleable", user=None)
        seen = show(sandbox, f"{job}_3")
    finally:
        update(sandbox, "update", "PartitionName=malleable", "AllowGroups=ALL", user=None)
    assert done.returncode != 0
    assert "core=1: Slurm has no partition malleable for you; ask your administrator" in done.stderr
    assert seen["Partition"] == "malleable", moved.stderr


@pytest.mark.parametrize(
    "change",
    ["Partition=malleable", "Partition=main", "TimeLimit=1", "Nice=5", "QOS=normal", "release"],
)
def test_the_elements_of_a_core_job_are_unchanged(sandbox: Any, change: str) -> None:
    """They are in the user's own partition, and would start there as ordinary jobs."""
    job = submit(sandbox, *CORE, "-p", "main").stdout.strip()
    for element in (f"{job}_0", f"{job}_3", job):
        words = (
            ["release", element] if change == "release" else ["update", f"job={element}", change]
        )
        done = update(sandbox, *words)
        assert done.returncode != 0
        assert ("denied" in done.stdout + done.stderr) or ("held" in done.stdout + done.stderr)
    seen = show(sandbox, f"{job}_3")
    assert (seen["Partition"], seen["Priority"], seen["Reason"]) == ("main", "0", "JobHeldUser")


def test_nodes_and_tasks_of_a_rigid_script_become_a_fragment_s(sandbox: Any) -> None:
    done = submit(sandbox, "--malleable=2-4", "--nodes=4", "--ntasks=8", "--output=/dev/null")
    seen = show(sandbox, done.stdout.strip())
    assert (seen["ArrayTaskId"], seen["NumNodes"]) == ("0-3", "1-1")
    assert (seen["NumTasks"], seen["NumCPUs"]) == ("2", "2")
    notice = "malleable: --nodes=4 and --ntasks=8 are replaced by --malleable=2-4"
    assert notice in done.stderr


def test_a_range_of_nodes_keeps_the_cpus_of_a_task(sandbox: Any) -> None:
    """sbatch counts the CPUs of 1 task, whatever the range."""
    options = ("--nodes=2-4", "--cpus-per-task=2", "--output=/dev/null")
    seen = show(sandbox, submit(sandbox, "--malleable=2-4", *options).stdout.strip())
    assert (seen["NumNodes"], seen["NumCPUs"], seen["MinCPUsNode"]) == ("1-1", "2", "2")


def test_more_nodes_than_there_are_is_said_and_accepted(sandbox: Any) -> None:
    done = submit(sandbox, "--malleable=1-16", "--output=/dev/null")
    assert show(sandbox, done.stdout.strip())["ArrayTaskId"] == "0-15"
    assert "only 4 nodes in partition malleable, fewer than the MAX of 16" in done.stderr


@pytest.mark.parametrize("option", ["--mem=900G", "--cpus-per-task=5", "--mem-per-cpu=900G"])
def test_needs_beyond_every_node_are_refused_as_without_the_flag(sandbox: Any, option: str) -> None:
    assert submit(sandbox, option, check=False).returncode != 0
    done = submit(sandbox, "--malleable=1-4", option, check=False)
    assert done.returncode != 0
    assert f"{option.partition('=')[0]}=" in done.stderr
    assert "is more than any node of partition malleable has; write --" in done.stderr


def test_every_fault_is_named_at_once(sandbox: Any) -> None:
    done = submit(sandbox, "--malleable=2-4,engine=foo", "--array=1-3", "--no-requeue",
                  "--dependency=singleton", "--partition=main", "--time=1", "--begin=now+60",
                  "--nodelist=n1", "--reservation=r", "--switches=1", "--comment=a\nb",
                  check=False)  # fmt: skip
    assert done.returncode != 0
    for word in ("engine foo", "--array:", "--no-requeue:", "--dependency=singleton:", "--begin:",
                 "--nodelist:", "--partition=main:", "--time: is", "--reservation:", "--switches:",
                 "--comment:"):  # fmt: skip
        assert word in done.stderr


def test_het_job_is_refused(sandbox: Any) -> None:
    done = submit(sandbox, "--malleable=1-2", ":", "--nodes=1", check=False)
    assert done.returncode != 0
    assert "heterogeneous" in done.stderr


def test_mail_speaks_of_the_whole_job(sandbox: Any) -> None:
    options = ("--mail-type=END,REQUEUE,ARRAY_TASKS", "--mail-user=a@localhost")
    done = submit(sandbox, "--malleable=1-2", "--output=/dev/null", *options)
    assert show(sandbox, done.stdout.strip())["MailType"] == "END"
    assert "mail about the whole job is sent" in done.stderr


@pytest.mark.parametrize("partition", ["main", "malleable"])
def test_other_jobs_pass_untouched(sandbox: Any, partition: str) -> None:
    done = submit(sandbox, "--hold", "--output=/dev/null", f"--partition={partition}")
    seen = show(sandbox, done.stdout.strip())
    assert seen["Partition"] == partition
    assert "ArrayTaskId" not in seen
    assert "AdminComment" not in seen
    assert update(sandbox, "release", done.stdout.strip()).returncode == 0


REFUSED = [
    ["release", "{job}_1"],
    ["release", "{job}"],
    *(["update", "jobid={job}_1", change] for change in (
        "Priority=5", "Nice=5", "TimeLimit=1", "TimeMin=1", "Partition=main", "StartTime=now+60",
        "NumNodes=2", "NumCPUs=2", "MinMemoryNode=5", "MinMemoryCPU=5", "MinCPUsNode=2",
        "CpusPerTask=2", "NumTasks=2", "TasksPerNode=2", "ReqSockets=1", "ReqCores=1",
        "ReqThreads=1", "Gres=gpu:1", "TresPerJob=gres:gpu:1", "CpusPerTres=gres:gpu:1",
        "MemPerTres=gres:gpu:1", "Requeue=0", "ReqNodeList=n1",
        "ExcNodeList=n1", "Dependency=afterok:1", "AdminComment=x", "OverSubscribe=YES",
        "Comment=a\nb",
    )),
]  # fmt: skip


@pytest.mark.parametrize("words", REFUSED, ids=lambda words: words[-1])
def test_user_cannot_break_the_mechanism(sandbox: Any, job: str, words: list[str]) -> None:
    done = update(sandbox, *(word.format(job=job) for word in words))
    assert done.returncode != 0
    # Before 23.02 the text of the submit script is dropped here, its error number is not.
    reasons = ("held state", "Access/permission denied", "malleable job:")
    assert any(reason in done.stdout + done.stderr for reason in reasons)
    assert show(sandbox, f"{job}_1")["Priority"] == "0"


@pytest.mark.parametrize(
    "words",
    [
        ["hold", "{job}_1"],
        ["hold", "{job}"],
        ["update", "jobid={job}_1", "Comment=hello", "Name=other", "MailType=END"],
    ],
    ids=" ".join,
)
def test_a_user_may_make_harmless_changes(sandbox: Any, job: str, words: list[str]) -> None:
    done = update(sandbox, *(word.format(job=job) for word in words))
    assert done.returncode == 0, done.stdout + done.stderr


def test_operator_may_start_a_fragment(sandbox: Any, job: str) -> None:
    changes = ["ReqNodeList=n2", "TimeLimit=2", "StartTime=now"]
    assert update(sandbox, "update", f"jobid={job}_1", *changes, user=None).returncode == 0
    assert update(sandbox, "release", f"{job}_1", user=None).returncode == 0
    seen = show(sandbox, f"{job}_1")
    assert seen["Priority"] != "0"
    assert seen["TimeLimit"] == "00:02:00"


@pytest.mark.parametrize("text", ["see ticket 7", ""])
def test_an_operator_s_admin_comment_leaves_each_element_its_mark(
    sandbox: Any, job: str, text: str
) -> None:
    """Without the mark no tick would know the element. A change of all elements meets each."""
    mark = show(sandbox, f"{job}_0")["AdminComment"]
    others = mark.replace("}", ",gone=1}")
    update(sandbox, "update", f"jobid={job}_2", f"AdminComment={others}", user=None)
    for name in (f"{job}_0", job, job):
        done = update(sandbox, "update", f"jobid={name}", f"AdminComment={text}", user=None)
        assert done.returncode == 0, done.stderr
    lines = sandbox.run(["scontrol", "-o", "show", "job", job]).stdout.splitlines()
    kept = {line.partition(" AdminComment=")[2].partition(" SystemComment")[0] for line in lines}
    rest = text and f" {text}"
    assert {words.partition("}")[0] + "}" for words in kept} == {mark, others}
    assert all(rest in words for words in kept)
    assert all(words.count("ticket") <= 1 for words in kept)


def test_a_comment_of_people_leaves_the_words_of_the_agents(sandbox: Any, job: str) -> None:
    """Without them a tick would take the job for a script without torchrun, and shrink it."""
    for index in (0, 1, 3):
        update(sandbox, "update", f"jobid={job}_{index}", f"Comment=trained{{{index}}};h{{60}}")
    update(sandbox, "update", f"jobid={job}_1", "Comment=mine")
    assert show(sandbox, f"{job}_1")["Comment"] == "trained{1};h{60};mine"
    done = update(sandbox, "update", f"jobid={job}", "Comment=ticket", user=None)
    assert done.returncode == 0, done.stderr
    for index in range(4):
        said = show(sandbox, f"{job}_{index}")["Comment"]
        assert said == ("ticket" if index == 2 else f"trained{{{index}}};h{{60}};ticket")


def wait_for_reason(sandbox: Any, job: str, wanted: str) -> None:
    def is_so() -> bool:
        seen = show(sandbox, job)
        return seen["Reason"] == wanted or seen["JobState"] != "PENDING"

    wait_until(is_so, explain=lambda: show(sandbox, job))


TRAP = """#!/bin/bash
#SBATCH --nodes=4 {signal}
trap 'sbatch --malleable=1-4 $0' USR1
srun torchrun train.py &
wait
"""


def submit_trap(sandbox: Any, signal: str) -> subprocess.CompletedProcess[str]:
    """Submit a script that would submit itself again at each signal."""
    script = sandbox.work / "trap.sh"
    script.write_text(TRAP.format(signal=signal))
    argv = ["sbatch", "--parsable", "--malleable=1-4", "--output=/dev/null", str(script)]
    done: subprocess.CompletedProcess[str] = sandbox.run(argv, user=USER, check=False)
    return done


def test_a_script_with_a_signal_is_refused_because_each_fragment_would_get_it(sandbox: Any) -> None:
    refused = submit_trap(sandbox, "--signal=B:USR1@120")
    assert refused.returncode != 0
    assert "--signal=B:USR1@120: Slurm would signal each fragment" in refused.stderr
    assert "delete the line and its trap" in refused.stderr


def test_a_trap_that_submits_the_job_again_gets_a_note(sandbox: Any) -> None:
    done = submit_trap(sandbox, "")
    assert show(sandbox, done.stdout.strip())["ArrayTaskId"] == "0-3"
    assert "note: the script has a trap and calls sbatch: each fragment would do so" in done.stderr


def test_a_script_for_a_single_node_gets_a_note(sandbox: Any) -> None:
    script = sandbox.work / "single.sh"
    script.write_text("#!/bin/sh\ntorchrun --standalone --nnodes=1 train.py\n")
    argv = ["sbatch", "--malleable=1-4", "--output=/dev/null", str(script)]
    done = sandbox.run(argv, user=USER)
    said = (
        "note: torchrun --standalone: the job trains on all its nodes all the same; take the rank"
    )
    assert f"{said} from RANK, not LOCAL_RANK, in the training script, or submit" in done.stderr


def test_a_job_with_afterany_starts_after_a_malleable_job(sandbox: Any) -> None:
    """This is why choosing.md says afterany: fragments that are not needed any more end
    CANCELLED.
    """
    script = sandbox.work / "short.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    argv = ["sbatch", "--parsable", "--malleable=1-2", "--output=/dev/null", str(script)]
    job = sandbox.run(argv, user=USER).stdout.strip()
    ok, after = (
        submit(sandbox, f"--dependency={kind}:{job}", "--output=/dev/null").stdout.strip()
        for kind in ("afterok", "afterany")
    )
    sandbox.run(["scontrol", "release", f"{job}_0"])
    wait_until(lambda: show(sandbox, f"{job}_0")["JobState"] == "COMPLETED")
    assert [show(sandbox, waiting)["Reason"] for waiting in (ok, after)] == ["Dependency"] * 2
    sandbox.run(["scancel", job])  # as the reconciler does when a training has finished
    wait_for_reason(sandbox, ok, "DependencyNeverSatisfied")
    wait_for_reason(sandbox, after, "None")
    assert show(sandbox, after)["JobState"] != "PENDING"


def test_a_user_can_cancel_an_own_job(sandbox: Any, job: str) -> None:
    assert sandbox.run(["scancel", job], user=USER, check=False).returncode == 0
    assert show(sandbox, job)["JobState"] == "CANCELLED"
