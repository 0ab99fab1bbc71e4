"""`malleable submit` on a real Slurm without any part of this project, as an ordinary user."""

from __future__ import annotations

import json
import os
import pwd
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from programs import write_program
from slurm_hooks.protocol.jobpath import write_job_path
from slurm_hooks.sandbox import Sandbox
from waiting import wait_until

pytestmark = pytest.mark.slurm
USER = "nobody" if os.geteuid() == 0 else None
SLEEP = "exec sleep 600"
LONG_S = 300
DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "train.py"


class Lane:
    """A Slurm with a preemptible partition, and the job path, which is all that the user has."""

    def __init__(self, box: Sandbox) -> None:
        self.box = box
        self.path = write_job_path(box.dir / "wheel" / "jobpath")

    def run(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        argv = ["env", *(f"{name}={value}" for name, value in env.items())]
        argv += ["PATH=/usr/bin:/bin", sys.executable, "-S", str(self.path), *words]
        return self.box.run(argv, check=False, user=USER, timeout_s=LONG_S)

    def submit(self, script: str, request: str, *options: str, **env: str) -> str:
        path = self.box.work / f"job{len(list(self.box.work.iterdir()))}.sh"
        write_program(path, f"#!/bin/bash\n#SBATCH --output=%A_%a.log\n{script}\n")
        words = [f"--malleable={request}", "--partition=preempt", *options, str(path)]
        done = self.run("submit", *words, **env)
        assert done.returncode == 0, done.stderr
        match = re.match(r"Submitted batch job (\d+): ", done.stdout)
        assert match, done.stdout
        return match[1]

    def rows(self, job: str) -> list[list[str]]:
        words = ["squeue", "-h", "-r", "--states=all", f"--job={job}", "-o", "%K|%T|%r|%S|%N"]
        said = self.box.run(words, check=False).stdout.splitlines()
        return sorted(line.split("|") for line in said)

    def states(self, job: str) -> list[str]:
        return [row[1] for row in self.rows(job)]

    def log(self, job: str) -> str:
        return "".join(path.read_text() for path in self.box.work.glob(f"{job}_*.log"))

    def await_(self, job: str, *states: str) -> list[list[str]]:
        wanted = sorted(states)
        wait_until(lambda: sorted(self.states(job)) == wanted, LONG_S, lambda: str(self.rows(job)))
        return self.rows(job)

    def fill(self, *options: str) -> str:
        words = ["sbatch", "--parsable", "--partition=main", "--output=/dev/null", *options]
        return self.box.run([*words, f"--wrap={SLEEP}"], user=USER).stdout.strip()

    def cancel(self, *jobs: str) -> None:
        self.box.run(["scancel", *jobs], check=False)


TRAIN = """
export PATH={bin}:$PATH OMP_NUM_THREADS=1
torchrun {digits} --steps 1200 --pace 0.1
echo "the end: $?"
"""


@pytest.mark.torch
def test_a_training_changes_its_size_and_ends_the_job(lane: Lane) -> None:
    """A fragment more than nodes: it is no longer needed when the training has finished."""
    script = TRAIN.format(bin=Path(sys.executable).parent, digits=DIGITS)
    job = lane.submit(script, "1-4")
    wait_until(lambda: "formed: 3 fragments" in lane.log(job), LONG_S, lambda: lane.log(job))
    ordinary = lane.fill("--nodes=1")
    wait_until(lambda: "formed: 2 fragments" in lane.log(job), LONG_S, lambda: lane.log(job))
    lane.cancel(ordinary)
    wait_until(lambda: lane.log(job).count("formed: 3 fragm") > 1, LONG_S, lambda: lane.log(job))
    assert lane.run("wait", job).returncode == 0
    assert sorted(lane.states(job)) == ["CANCELLED", "COMPLETED", "COMPLETED", "COMPLETED"]
    assert lane.log(job).count("the end: 0") == 3
    assert json.loads((lane.box.work / "result.json").read_text())["steps"] == 1200


@pytest.fixture
def lane(plain_sandbox) -> Lane:
    return Lane(plain_sandbox(nodes=3))


def test_a_job_grows_gives_way_and_comes_back_before_slurm_would_let_it(lane: Lane) -> None:
    job = lane.submit(SLEEP, "1-3")
    lane.await_(job, "RUNNING", "RUNNING", "RUNNING")
    ordinary = lane.fill("--nodes=1")
    wait_until(lambda: lane.states(ordinary) == ["RUNNING"], LONG_S)
    back = next(row for row in lane.await_(job, "PENDING", "RUNNING", "RUNNING") if row[4] == "")
    status = lane.run("status").stdout.splitlines()
    assert status[0].split() == ["JOBID", "NAME", "STATE", "SIZE", "MIN-MAX", "WAITING"]
    assert status[1].split()[0] == job
    assert status[1].split()[2:5] == ["running", "2", "1-3"]
    about = lane.run("explain", job).stdout
    assert "running, size 2, MIN-MAX 1-3" in about
    assert re.search(rf"^{back[0]} +pending", about, re.M), about
    lane.cancel(ordinary)
    rows = lane.await_(job, "RUNNING", "RUNNING", "RUNNING")
    assert back[2] == "BeginTime"
    assert next(row[3] for row in rows if row[0] == back[0]) < back[3]
    lane.cancel(job)
    assert lane.run("wait", job).returncode == 2


def test_an_element_that_slurm_has_cancelled_comes_again(plain_sandbox) -> None:
    lane = Lane(plain_sandbox(nodes=3))
    lane.box.run(["scontrol", "update", "partitionname=preempt", "PreemptMode=CANCEL"])
    job = lane.submit("echo $MALLEABLE_JOB_ID >>ran; exec sleep 600", "1-3")
    ran = lane.box.work / "ran"
    wait_until(lambda: ran.exists() and ran.read_text().split() == [job] * 3, LONG_S)
    ordinary = lane.fill("--nodes=1")
    lane.await_(job, "PENDING", "RUNNING", "RUNNING")
    lane.cancel(ordinary)
    wait_until(lambda: ran.read_text().split() == [job] * 4, LONG_S)
    lane.cancel(job)
    assert lane.run("wait", job).returncode == 2


def test_an_element_that_was_killed_comes_again_and_a_cancelled_one_does_not(lane: Lane) -> None:
    job = lane.submit("echo $PPID >>pid.$SLURM_ARRAY_TASK_ID; exec sleep 600", "1-3")
    lane.await_(job, "RUNNING", "RUNNING", "RUNNING")
    lane.cancel(f"{job}_1")
    pids = lane.box.work / "pid.0"
    wait_until(lambda: pids.exists() and pids.read_text() != "", LONG_S)
    os.kill(int(pids.read_text()), signal.SIGKILL)
    wait_until(lambda: len(pids.read_text().split()) == 2, LONG_S, lambda: str(lane.rows(job)))
    assert [row[1] for row in lane.rows(job)] == ["RUNNING", "CANCELLED", "RUNNING"]


def test_a_map_does_each_task_once_and_ends_the_elements_that_wait(lane: Lane) -> None:
    script = 'echo "$0" >>begun; sleep 1; echo "result $0"'
    words = ["map", "--max=6", "--partition=preempt", "--dir=map", "--detach", "--"]
    done = lane.run(*words, "sh", "-c", script, "{}", ":::", *map(str, range(1, 13)))
    assert done.returncode == 0, done.stderr
    job, place = done.stdout.split()[0], lane.box.work / "map"
    wait_until(lambda: list(place.glob("tasks/*.done")), LONG_S, lambda: str(lane.rows(job)))
    ordinary = lane.fill("--nodes=1")
    wait_until(lambda: lane.states(ordinary) == ["RUNNING"], LONG_S)
    again = lane.run("map", "--max=6", "--dir=map")
    assert (again.returncode, again.stderr) == (0, "")
    assert "12 of 12 done" in again.stdout
    assert lane.run("wait", job).returncode == 0
    assert "PENDING" not in lane.states(job)
    assert {path.read_text() for path in place.glob("logs/*.out")} == {
        f"result {number}\n" for number in range(1, 13)
    }
    assert set(map(int, (lane.box.work / "begun").read_text().split())) == set(range(1, 13))


POOL = """
exec malleable run -- sh -c '
echo $MALLEABLE_FRAGMENT >>ran
[ $MALLEABLE_FRAGMENT = 0 ] || sleep 600
until [ -e end ]; do sleep 0.2; done
malleable finish'
"""


def test_a_worker_of_a_pool_leaves_comes_back_and_ends_the_pool(lane: Lane) -> None:
    job = lane.submit(POOL, "0-2,engine=pool")
    ran = lane.box.work / "ran"
    wait_until(lambda: ran.exists() and sorted(ran.read_text().split()) == ["0", "1"], LONG_S)
    lane.box.run(["scancel", "--signal=URG", "--full", f"{job}_0"], user=USER)
    wait_until(lambda: sorted(ran.read_text().split()) == ["0", "0", "1"], LONG_S)
    (lane.box.work / "end").touch()
    assert lane.run("wait", job).returncode == 0
    assert sorted(lane.states(job)) == ["CANCELLED", "COMPLETED"]


def test_below_min_nobody_keeps_a_node(lane: Lane) -> None:
    ordinary = lane.fill("--nodes=1")
    wait_until(lambda: lane.states(ordinary) == ["RUNNING"], LONG_S)
    script = "date >>ran.$SLURM_ARRAY_TASK_ID; exec sleep 600"
    job = lane.submit(script, "3-3", MALLEABLE_MEET_S="8", MALLEABLE_REST_S="10")
    wait_until(lambda: "at least 3 elements run" in lane.log(job), LONG_S)
    lane.await_(job, "PENDING", "PENDING", "PENDING")
    assert not list(lane.box.work.glob("ran.*"))
    lane.cancel(ordinary)
    lane.await_(job, "RUNNING", "RUNNING", "RUNNING")
    wait_until(lambda: len(list(lane.box.work.glob("ran.*"))) == 3, LONG_S)


def test_a_job_that_fails_again_and_again_is_cancelled(lane: Lane) -> None:
    job = lane.submit("date >>tries; exit 3", "1-1")
    for count in (1, 2):
        wait_until(lambda: [row[2] for row in lane.rows(job)] == ["BeginTime"], LONG_S)
        assert f"it has failed {count} time" in lane.run("explain", job).stdout
        lane.box.run(["scontrol", "update", f"jobid={job}_0", "StartTime=now"], user=USER)
    assert lane.run("wait", job).returncode == 1
    assert len((lane.box.work / "tries").read_text().splitlines()) == 3
    assert "its script has failed 3 times without progress" in lane.log(job)


def test_the_script_has_its_arguments_and_its_signals(lane: Lane) -> None:
    script = (
        "trap 'echo usr1 >heard; exit 0' USR1\necho \"$1|$2\" >words\nwhile :; do sleep 1; done"
    )
    path = lane.box.work / "words.sh"
    write_program(path, f"#!/bin/bash\n{script}\n")
    options = ["--malleable=1-1", "--partition=preempt", "--parsable"]
    job = lane.run("submit", *options, str(path), "a b", "c").stdout.strip()
    wait_until((lane.box.work / "words").exists, LONG_S)
    lane.box.run(["scancel", "--batch", "--signal=USR1", f"{job}_0"])
    assert lane.run("wait", job).returncode == 0
    assert (lane.box.work / "words").read_text() == "a b|c\n"
    assert (lane.box.work / "heard").read_text() == "usr1\n"


def test_what_cannot_work_is_refused_with_the_line_to_write(lane: Lane) -> None:
    path = lane.box.work / "refused.sh"
    write_program(path, "#!/bin/bash\ntrue\n")
    done = lane.run("submit", "--malleable=1-2", str(path))
    assert (done.returncode, done.stdout) == (os.EX_USAGE, "")
    assert "write --partition=preempt" in done.stderr
    done = lane.run("submit", "--malleable=1-2000", "--partition=preempt", str(path))
    assert "at most 1000 elements here (MaxArraySize=1001)" in done.stderr
    done = lane.run("submit", "--malleable=1-2", "-p", "preempt", "--dry-run", str(path), "x")
    words = "sbatch --job-name=refused.sh -p preempt --partition=preempt --array=0-1 --nodes=1"
    assert done.stdout.startswith(words)
    assert lane.box.run(["squeue", "-h"]).stdout == ""
    done = lane.run("submit", "--malleable=1-2", "-p", "preempt", str(lane.box.work / "none.sh"))
    assert "none.sh" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_files_of_a_submission_belong_to_its_user_alone(lane: Lane) -> None:
    job = lane.submit(SLEEP, "1-1")
    lane.await_(job, "RUNNING")
    folder = next(lane.box.work.glob(".malleable-*"))
    assert {path.owner() for path in folder.rglob("*")} == {USER or path_owner(folder)}
    assert folder.stat().st_mode & 0o077 == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="makes files of another user")
@pytest.mark.parametrize("name", ["", "submitted", "submitted/jobpath-{version}"])
def test_nothing_of_another_user_is_run(lane: Lane, name: str) -> None:
    """Others may write to the directory from which a job is submitted, such as /tmp."""
    lane.box.work.chmod(0o1777)
    uid = pwd.getpwnam("nobody").pw_uid
    top = lane.box.work / f".malleable-{uid}"
    planted = top / name.format(version=lane.path.resolve().name.partition("-")[2])
    planted.mkdir(parents=True)
    (planted / "__main__.py").write_text("print('planted')\n")
    for directory in (planted, *planted.parents):
        if directory == lane.box.work:
            break
        os.chown(directory, *((1, 1) if directory == planted else (uid, uid)))
    path = lane.box.work / "train.sh"
    write_program(path, f"#!/bin/bash\n{SLEEP}\n")
    done = lane.run("submit", "--malleable=1-1", "--partition=preempt", str(path))
    assert done.returncode == os.EX_USAGE, done.stdout
    assert "belongs to the user with uid 1" in done.stderr or "by another user" in done.stderr
    assert lane.box.run(["squeue", "-h"]).stdout == ""


def path_owner(path: Path) -> str:
    return path.owner()
