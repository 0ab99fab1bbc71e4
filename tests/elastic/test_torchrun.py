"""Real torchrun processes on this host, through the events of a job's life."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

from programs import write_programs
from slurm_hooks.elastic.mailbox import CHANGE_BYTES
from waiting import PATIENCE_S, wait_until

from .gang import Gang

pytestmark = [pytest.mark.torch]

LONG = 100_000
DOCS = Path(__file__).parents[2] / "docs"
TAIL = """
import atexit, sys, time
from pathlib import Path
work = Path(sys.argv[1])
def tail():
    while not (work / "enough").exists():
        time.sleep(0.02)
with open(work / "starts", "a") as file:
    file.write("x")
atexit.register(tail)
"""


def crashed_fragments(gang: Gang) -> list[int]:
    """Fragments whose agent had to use up restarts."""
    return sorted({int(b["fragment"]) for b in gang.begins() if b["restarts"]})


def end_soon(gang: Gang) -> None:
    """Let the training reach its target at the next restart or step."""
    (gang.work / "enough").touch()


def test_grows_and_shrinks_as_planned_without_using_restarts(gang: Gang) -> None:
    for fragment in (9, 10):
        gang.start(fragment, "1:4", LONG)
    gang.wait_world(2)
    both = {b["rank"]: b["fragment"] for b in gang.begins() if b["world"] == 2}
    assert both == {0: 9, 1: 10}
    t = time.time()
    gang.start(2, "1:4", LONG)
    grown_at = gang.wait_world(3, since=t)
    asked_at = gang.notify(10)  # neither first nor host of the store
    shrunk_at = gang.wait_world(2, since=asked_at)
    assert gang.wait_exit(10) == [0]
    came_at = time.time()
    gang.start(11, "1:4", LONG)
    gang.wait_world(3, since=came_at)
    gang.notify(2)  # rank 0: host of the store
    time.sleep(0.15)
    both_at = gang.notify(11)
    alone_at = gang.wait_world(1, since=both_at)
    assert gang.wait_exit(2, 11) == [0, 0]
    end_soon(gang)
    assert gang.wait_exit(9) == [0]
    assert crashed_fragments(gang) == [], gang.dump()
    *causes, last = [str(r["cause"]) for r in gang.rounds()]
    assert causes[-3:] == ["joined 2", "left 10", "joined 11"]
    assert sorted(last.split(", ")) == ["left 11", "left 2"], "one round for both"
    print(f"grow {grown_at - t:.1f} s, shrink {shrunk_at - asked_at:.1f} s,", end=" ")
    print(f"two leave {alone_at - both_at:.1f} s")
    assert shrunk_at - asked_at < 30  # the time that torchrun alone gives its workers to end


def test_no_growth_begins_before_the_first_step_or_while_the_steps_pause(gang: Gang) -> None:
    pause = gang.work / "wait"
    pause.touch()
    gang.start(1, "1:3", LONG)
    wait_until(gang.begins, explain=gang.dump)
    for fragment in (2, 3):
        gang.start(fragment, "1:3", LONG)
        wait_until(lambda n=fragment: len(members(gang)) == n, explain=gang.dump)
        time.sleep(3.0)  # a step is seen so late
        assert len(gang.rounds()) == fragment - 1, gang.dump()
        pause.unlink()
        gang.wait_world(fragment)
        pause.touch()
    (gang.work / "enough").touch()
    pause.unlink()
    assert gang.wait_exit(1, 2, 3) == [0, 0, 0]
    assert {world for _, _, world in gang.steps()} >= {1, 2}, "no round is thrown away"


def test_a_training_that_loses_the_host_of_the_store_twice_goes_on(gang: Gang) -> None:
    gang.extra["MALLEABLE_LAST_CALL_S"] = "60"  # a first round of three: it is full
    for fragment in (1, 2, 3):
        gang.start(fragment, "1:3", LONG)
    gang.wait_world(3)
    terminated_at = time.time()
    gang.cut_off(1, signal.SIGTERM)
    two_at = gang.wait_world(2, since=terminated_at)
    killed_at = time.time()
    gang.cut_off(2, signal.SIGKILL)
    one_at = gang.wait_world(1, since=killed_at)
    assert 0 not in gang.wait_exit(1, 2)
    end_soon(gang)
    assert gang.wait_exit(3) == [0]
    print(f"SIGTERM {two_at - terminated_at:.1f} s, SIGKILL {one_at - killed_at:.1f} s")
    assert [r["cause"] for r in gang.rounds()] == ["start", "lost 1", "lost 2"]


def test_a_training_waits_below_the_minimum_and_comes_back(gang: Gang) -> None:
    for fragment in (1, 2):
        gang.start(fragment, "2:3", LONG)
    gang.wait_world(2)
    gang.cut_off(2, signal.SIGTERM)
    gang.wait_exit(2)
    wait_until(lambda: "lost 2" in gang.state(), explain=gang.dump)
    time.sleep(1.5)
    assert gang.agents[1].poll() is None
    assert len(gang.rounds()) == 1
    t = time.time()
    gang.start(2, "2:3", LONG, restarts=1)
    gang.wait_world(2, since=t)
    gang.notify(2)  # below the minimum as planned, then the last fragment gets notice as well
    assert gang.wait_exit(2) == [0]
    gang.notify(1)
    assert gang.wait_exit(1) == [0]


def test_a_late_agent_ends_at_once_and_a_requeued_agent_trains_again(gang: Gang) -> None:
    gang.start(1, "1:3", 20)
    gang.start(2, "1:3", 20)
    assert gang.wait_exit(1, 2) == [0, 0], gang.dump()
    rounds = len(gang.rounds())
    gang.start(3, "1:3", 20)
    assert gang.wait_exit(3) == [0]
    assert "already finished" in gang.log(3)
    assert len(gang.rounds()) == rounds
    gang.start(1, "1:3", 20, restarts=1)
    assert gang.wait_exit(1) == [0]
    assert len(gang.rounds()) == rounds + 1


def test_a_script_whose_main_module_has_ended_is_not_grown(gang: Gang) -> None:
    """Loggers and process groups may take seconds to end. A script that starts again after its last
    step trains again, or fails.
    """
    gang.script = gang.work / "train.py"
    gang.script.write_text(TAIL)
    gang.start(1, "1:3", LONG)
    wait_until((gang.work / "starts").exists, explain=gang.dump)
    gang.start(2, "1:3", LONG)
    wait_until(lambda: len(members(gang)) == 2, explain=gang.dump)
    time.sleep(3.0)  # ten times as long as a newcomer settles
    end_soon(gang)
    assert gang.wait_exit(1, 2) == [0, 0]
    assert (gang.work / "starts").read_text() == "x"
    assert "already finished" in gang.log(2)


def test_gives_up_on_a_script_that_is_broken(gang: Gang) -> None:
    told_to = stand_in(gang)
    gang.extra |= {"MALLEABLE_MAX_CRASHES": "2", "MALLEABLE_LAST_CALL_S": "60"}  # two are all
    for fragment in (1, 2):
        gang.start(fragment, "1:2", LONG, "3")
    assert gang.wait_exit(1, 2) == [1, 1]
    assert "malleable: giving up: the workers failed 2 times in a row" in gang.log(1)
    said = "the workers failed 2 times in a row, in rounds 1 to 2, last exit code 1"
    assert f"malleable: {said}" in gang.log(1) + gang.log(2)
    assert said in told_to.read_text()
    assert "the workers failed once, in round 1, last exit code 1" in told_to.read_text()


def stand_in(gang: Gang) -> Path:
    """Slurm's commands, as far as agents outside an array use them. Words for scontrol are
    in a file.
    """
    tools = gang.work / "tools"
    tools.mkdir()
    told_to = gang.work / "told"
    write_programs(tools, {"squeue": "echo mine", "scontrol": f'echo "$@" >> {told_to}'})
    gang.extra |= {"PATH": f"{tools}:{os.environ['PATH']}", "SLURM_JOB_ID": "12"}
    return told_to


SQUEUE = """cd {place}
job="${2#--job=}"
if [ "$job" = 1 ] && [ -e asked.1 ]; then cat end.later; else cat end.soon; fi
touch "asked.$job"
"""


def test_leaves_at_the_end_of_its_lease(gang: Gang) -> None:
    """With a stand-in for squeue: fragment 1 is renewed after the first answer, fragment 2
    never.
    """
    tools = gang.work / "tools"
    tools.mkdir()
    write_programs(tools, {"squeue": SQUEUE})
    (tools / "end.soon").write_text(f"{int(time.time()) + 60}\n")
    (tools / "end.later").write_text(f"{int(time.time()) + 600}\n")
    gang.extra["PATH"] = f"{tools}:{os.environ['PATH']}"
    gang.extra["MALLEABLE_NOTICE_S"] = "2"
    for fragment in (1, 2):
        gang.extra["SLURM_JOB_ID"] = str(fragment)
        gang.start(fragment, "1:2", LONG)
    gang.wait_world(2)
    assert gang.wait_exit(2) == [0]
    gang.wait_world(1)
    assert "lease" in gang.log(2)
    assert gang.agents[1].poll() is None
    assert crashed_fragments(gang) == []


def test_a_notice_is_heard_with_a_long_monitor_interval(gang: Gang) -> None:
    gang.flags = ["--monitor-interval=3600"]
    gang.start(1, "1:1", LONG)
    gang.wait_world(1)
    gang.notify(1)
    assert gang.wait_exit(1) == [0]


def test_an_unusable_directory_is_a_single_clear_line(gang: Gang) -> None:
    gang.shared = gang.work / "file" / "dir"
    (gang.work / "file").write_text("")
    gang.start(1, "1:2", 5)
    assert gang.wait_exit(1) == [1]
    lines = [line for line in gang.log(1).splitlines() if line.startswith("malleable:")]
    assert len(lines) == 1
    assert str(gang.shared) in lines[0]
    assert "Traceback" not in gang.log(1)


SHOW = """
import torch
from pathlib import Path
import sys
Path(sys.argv[1], "words").write_bytes(Path("/proc/self/cmdline").read_bytes())
"""


@pytest.mark.parametrize("flags", [[], pytest.param(["-m"], marks=pytest.mark.nightly)])
def test_the_first_workers_are_warm(gang: Gang, flags: list[str]) -> None:
    place = gang.work / "pkg" / "show.py"
    place.parent.mkdir()
    place.write_text(SHOW)
    gang.flags, gang.script = flags, Path("pkg.show") if flags else place
    gang.extra["PYTHONPATH"] = f"{gang.job_path}:{gang.work}"
    gang.start(1, "1:1", LONG)
    assert gang.wait_exit(1) == [0], gang.dump()
    assert b"stand_by" in (gang.work / "words").read_bytes()


DUMP = """
import json, os, sys
from pathlib import Path
import torch  # without TORCHDYNAMO, whose import adds a variable of its own
Path(sys.argv[1], "env.json").write_text(json.dumps(dict(os.environ)))
"""


def test_a_worker_has_the_documented_variables(gang: Gang) -> None:
    gang.script = gang.work / "at" / "dump.py"
    gang.script.parent.mkdir()
    gang.script.write_text(DUMP)
    gang.start(1, "1:1", LONG)
    assert gang.wait_exit(1) == [0], gang.dump()
    env = json.loads((gang.work / "env.json").read_text())
    section = (DOCS / "users" / "choosing.md").read_text().split("## Variables of a round\n")[1]
    rows = [line.split("|")[1] for line in section.split("\n## ")[0].splitlines() if "|" in line]
    named = {name for row in rows for name in re.findall(r"`([A-Z_]+)`", row)}
    assert env.keys() - gang.environment(1, "1:1").keys() == named
    assert env["NODE_RANK"] == env["GROUP_RANK"]


SLOW_PACKAGE = """
import os, sys
IS_AHEAD = not hasattr(sys.modules["__main__"], "__file__")
if IS_AHEAD:
    with open(os.environ["NOTES"], "a") as file:
        print(os.environ["MALLEABLE_FRAGMENT"], file=file)
"""
LEARN = """
import json, os, sys, time
from pathlib import Path
work = Path(sys.argv[1])

def train():
    try:
        import slow_package.late as late
    except ImportError:
        raise SystemExit(3)
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    fragment = int(os.environ["MALLEABLE_FRAGMENT"])
    begin = {"world": world, "fragment": fragment, "ahead": late.IS_AHEAD}
    with open(work / "begins.jsonl", "a") as file:
        file.write(json.dumps(begin) + "\\n")
    enough = torch.zeros(1)
    while not enough:
        enough += (work / "enough").exists()
        dist.all_reduce(enough)
        optimizer.step()
        time.sleep(0.03)
        if rank == 0:
            with open(work / "steps.log", "a") as file:
                file.write(f"{time.time():.3f} 1 {world}\\n")
    dist.destroy_process_group()

train()
"""


def test_warm_workers_import_what_earlier_workers_imported(gang: Gang) -> None:
    """Behind `try:` and in a function, also for a fragment that comes later."""
    package = gang.work / "site-packages" / "slow_package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(SLOW_PACKAGE)
    (package / "late.py").write_text("from . import IS_AHEAD\n")
    gang.script = gang.work / "at" / "learn.py"
    gang.script.parent.mkdir()
    gang.script.write_text(LEARN)
    notes = gang.work / "notes"
    gang.extra |= {"PYTHONPATH": f"{gang.job_path}:{package.parent}", "NOTES": str(notes)}
    gang.start(1, "1:2", LONG)
    gang.wait_world(1)
    wait_until(notes.exists, explain=gang.dump)  # by the workers that wait
    gang.start(2, "1:2", LONG)
    gang.wait_world(2)
    end_soon(gang)
    assert gang.wait_exit(1, 2) == [0, 0]
    ahead = {(b["fragment"], b["world"]): b["ahead"] for b in gang.begins()}
    assert ahead == {(1, 1): False, (1, 2): True, (2, 2): True}
    assert {"1", "2"} == set(notes.read_text().split())


BOUND = """
import os
import torch
from pathlib import Path
import sys
place = Path(sys.argv[1], os.environ["RANK"])
place.with_suffix(".words").write_bytes(Path("/proc/self/cmdline").read_bytes())
place.with_suffix(".cpus").write_text(str(sorted(os.sched_getaffinity(0))))
"""


@pytest.mark.parametrize(
    ("warm", "words"),
    [("", b"stand_by"), pytest.param("0", b"cold_worker", marks=pytest.mark.nightly)],
)
def test_workers_bound_by_numactl_are_warm_or_observed(gang: Gang, warm: str, words: bytes) -> None:
    tools = gang.work / "tools"
    tools.mkdir()
    numactl = 'cpus="${1#--physcpubind=}"; shift; exec taskset -c "$cpus" "$@"'
    write_programs(tools, {"numactl": numactl})
    gang.extra |= {"PATH": f"{tools}:{os.environ['PATH']}", "MALLEABLE_WARM": warm}
    gang.launcher = [str(Path(__file__).with_name("launch_bound.py"))]
    gang.flags = ["--numa-binding=node", "--nproc-per-node=2"]
    gang.script = gang.work / "at" / "bound.py"
    gang.script.parent.mkdir()
    gang.script.write_text(BOUND)
    gang.start(1, "1:1", LONG)
    assert gang.wait_exit(1) == [0], gang.dump()
    ours = sorted(os.sched_getaffinity(0))
    for rank in (0, 1):
        assert words in (gang.work / f"{rank}.words").read_bytes()
        assert (gang.work / f"{rank}.cpus").read_text() == str([ours[rank % len(ours)]])


def test_an_obstacle_to_an_agent_s_start_is_reported_to_slurm_too(gang: Gang) -> None:
    told_to = stand_in(gang)
    gang.flags = ["--local-addr=a b"]
    gang.extra["MALLEABLE_DIR"] = str(gang.shared)
    gang.start(1, "1:1", LONG)
    assert gang.wait_exit(1) == [1], gang.dump()
    (command,) = told_to.read_text().splitlines()
    assert command.startswith("update JobId=12 Comment=mine;remark{PET_LOCAL_ADDR='a b' is neither")


def test_with_all_helpers_no_step_is_lost_or_done_twice(gang: Gang) -> None:
    gang.script = gang.script.with_name("train_samples.py")
    for fragment in (1, 2):
        gang.start(fragment, "1:3", LONG, str(LONG))
    gang.wait_world(2)
    t = time.time()
    gang.start(3, "1:3", LONG, str(LONG))
    gang.wait_world(3, since=t)
    t = gang.notify(1)  # rank 0
    gang.wait_world(2, since=t)
    killed_at = time.time()
    gang.cut_off(2, signal.SIGKILL)
    gang.wait_world(1, since=killed_at)
    (gang.work / "enough").touch()
    assert gang.wait_exit(3) == [0]
    outcome = json.loads((gang.work / "finished").read_text())
    assert outcome["off"] == 0, outcome
    steps = [s for _, s, _ in gang.steps()]
    again = len(steps) - len(set(steps))
    planned = [s for t, s, _ in gang.steps() if t < killed_at]
    assert len(planned) == len(set(planned))  # the notice: no step is done twice
    assert again <= 1  # the loss: from the memory of a survivor, no file since step 0


def test_a_newcomer_with_other_start_options_gets_a_message(gang: Gang) -> None:
    """For example, a script decides in the shell: `[ -f ckpt ] && INIT=resume`."""
    gang.start(1, "1:3", LONG, "-1", "--init_from=scratch")
    gang.wait_world(1)
    gang.start(2, "1:3", LONG, "-1", "--init_from=resume")
    gang.wait_world(2)
    gang.start(3, "1:3", LONG, "-1", "--init_from=scratch")
    gang.wait_world(3)
    text = gang.log(2)
    assert text.count("malleable: this fragment was started with `") == 1, text
    (line,) = (line for line in text.splitlines() if "was started with" in line)
    assert re.search(r"started with `\S+\.py .*--init_from=resume`, and others .*scratch`: ", line)
    assert "was started with" not in gang.log(1)
    gang.notify(3)
    gang.wait_world(2, since=time.time())
    assert gang.log(2).count("was started with") == 1, "once, not at every round"
    end_soon(gang)
    assert gang.wait_exit(1, 2) == [0, 0]


def test_all_fragments_go_on_with_the_options_of_the_newest(gang: Gang) -> None:
    """For example, a script decides in the shell: `[ -f last.pt ] && R="--resume last.pt"`."""

    def options(world: int) -> dict[int, list[str]]:
        return {b["fragment"]: b["options"] for b in gang.begins() if b["world"] == world}

    gang.start(1, "1:3", LONG, "-1", "--out=1")
    gang.start(2, "1:3", LONG, "-1", "--out=2")
    gang.wait_world(2)
    assert options(2) == {1: ["--out=1"], 2: ["--out=2"]}, "values alone stay different"
    newest = ["--out=3", "--resume", "last.pt"]
    gang.start(3, "1:3", LONG, "-1", *newest)
    gang.wait_world(3)
    assert options(3) == {1: newest, 2: newest, 3: newest}, gang.dump()
    for fragment in (1, 2):
        assert gang.log(fragment).count("as fragment 3 was started, instead of `") == 1
    (gang.work / "begins.jsonl").unlink()
    gang.notify(3)
    gang.wait_world(2, since=time.time())
    assert options(2) == {1: newest, 2: newest}, "they have seen that there is a checkpoint"
    end_soon(gang)
    assert gang.wait_exit(1, 2) == [0, 0]


def test_a_newcomer_that_is_lost_before_the_round_costs_the_others_no_time(gang: Gang) -> None:
    from slurm_hooks.elastic.script.step_boundary import STALL_S  # noqa: PLC0415  (torch)

    gang.script = gang.script.with_name("train_samples.py")
    gang.extra["MALLEABLE_BOUNDARY_S"] = str(PATIENCE_S)
    gang.start(1, "1:2", LONG, str(LONG))
    gang.wait_world(1)
    (worker,) = gang.worker_pids(1)
    os.kill(worker, signal.SIGSTOP)  # in a step that is as long as the test wants it to be
    gang.start(2, "1:2", LONG, str(LONG))
    wait_until(lambda: planned_change(gang, 1), explain=gang.dump)
    gang.cut_off(2, signal.SIGKILL)
    wait_until(lambda: len(members(gang)) == 1, explain=gang.dump)
    os.kill(worker, signal.SIGCONT)
    since = time.time()
    wait_until(lambda: sum(t > since for t, _, _ in gang.steps()) > 3, explain=gang.dump)
    end_soon(gang)
    assert gang.wait_exit(1) == [0]
    times = [t for t, _, _ in gang.steps() if t > since]
    assert max(b - a for a, b in zip(times, times[1:])) < STALL_S, gang.dump()
    assert [b["world"] for b in gang.begins()] == [1]


def test_a_second_torchrun_of_a_fragment_gives_up_while_the_first_trains(gang: Gang) -> None:
    """For example `torchrun a & torchrun b` in a single script."""
    first = gang.start(1, "1:2", LONG)
    gang.wait_world(1)
    gang.start(1, "1:2", LONG)
    assert gang.wait_exit(1) == [1]
    gang.agents[1] = first
    assert "start one after the other" in gang.log(1)
    assert len(gang.rounds()) == 1
    gang.cut_off(1, signal.SIGKILL)
    gang.wait_exit(1)
    t = time.time()
    gang.start(1, "1:2", LONG)  # the script tries again
    gang.wait_world(1, since=t)
    end_soon(gang)
    assert gang.wait_exit(1) == [0]


def test_an_agent_whose_fragment_slurm_has_requeued_does_not_come_back(gang: Gang) -> None:
    """Its node was out of reach for a while. Slurm took it for lost, and it lives on there."""
    gang.pretend_slurm()
    for fragment in (1, 2):
        gang.extra["SLURM_ARRAY_TASK_ID"] = str(fragment)
        gang.start(fragment, "1:2", LONG)
    gang.wait_world(2)
    gang.cut_off(2, signal.SIGSTOP)
    alone_at = gang.wait_world(1)
    (gang.work / "run.77_2").write_text("PENDING  1\n")
    gang.cut_off(2, signal.SIGCONT)
    wait_until(lambda: "ends here: Slurm" in gang.log(2), explain=gang.dump)
    gang.agents[2].terminate()  # as slurmd does as soon as it is back
    assert gang.wait_exit(2) == [128 + signal.SIGTERM]
    end_soon(gang)
    assert gang.wait_exit(1) == [0]
    assert {world for t, _, world in gang.steps() if t > alone_at} == {1}


def test_trouble_with_the_directory_is_withdrawn_once_a_later_run_has_joined(gang: Gang) -> None:
    gang.pretend_slurm()
    gang.extra["SLURM_ARRAY_TASK_ID"] = "1"
    comment, place = gang.work / "comment.77_1", gang.work / "place"
    gang.shared = place / "shared"
    place.touch()
    gang.start(1, "1:2", LONG)
    assert gang.wait_exit(1) == [1]
    assert "remark{making " in comment.read_text()
    place.unlink()
    place.mkdir()
    gang.start(1, "1:2", LONG, restarts=1)
    wait_until(lambda: "joined{1}" in comment.read_text(), explain=gang.dump)
    wait_until(lambda: "remark{" not in comment.read_text(), explain=comment.read_text)


def members(gang: Gang) -> list[object]:
    """The members that the agents share."""
    return list(json.loads(gang.state().splitlines()[0])["members"])


def planned_change(gang: Gang, fragment: int) -> str:
    """The coming change in this agent's mailbox."""
    descriptors = Path(f"/proc/{gang.agents[fragment].pid}/fd").glob("*")
    mailbox = next(fd for fd in descriptors if "malleable-news" in os.readlink(fd))
    return mailbox.read_bytes()[:CHANGE_BYTES].strip(b"\0\n").decode()


def test_a_loss_after_another_has_finished_ends_the_wait_in_the_last_barrier(gang: Gang) -> None:
    gang.extra["MALLEABLE_LAST_CALL_S"] = "60"  # a first round of three: it is full
    gang.script = gang.script.with_name("train_last_barrier.py")
    for fragment in (1, 2, 3):
        gang.start(fragment, "1:3", 0)
    wait_until(lambda: len(list(gang.work.glob("waits-*"))) == 2, explain=gang.dump)
    wait_until(lambda: '"done":[[1,0,' in gang.state(), explain=gang.dump)
    gang.cut_off(3, signal.SIGKILL)
    assert gang.wait_exit(1, 2) == [0, 0]
    assert [r["cause"] for r in gang.rounds()] == ["start", "lost 3"]


def test_a_node_that_alone_fails_twice_in_a_row_is_left_behind(gang: Gang) -> None:
    gang.extra |= {"MALLEABLE_LAST_CALL_S": "60", "MALLEABLE_MAX_CRASHES": "2"}
    gang.script = gang.script.with_name("train_broken_node.py")
    for fragment in (1, 2, 3):
        gang.start(fragment, "1:3", 0)
    assert gang.wait_exit(1, 2, 3) == [0, 1, 0]
    assert "giving up: the workers of this fragment failed twice in a row" in gang.log(2)
    assert [r["cause"] for r in gang.rounds()] == ["start", "workers failed", "lost 2"]


def test_nobody_is_to_blame_for_a_collective_error(gang: Gang) -> None:
    gang.extra |= {"MALLEABLE_LAST_CALL_S": "60", "MALLEABLE_MAX_CRASHES": "2"}
    gang.script = gang.script.with_name("train_collective_error.py")
    for fragment in (1, 2, 3):
        gang.start(fragment, "1:3", 0)
    assert gang.wait_exit(1, 2, 3) == [1, 1, 1]
    assert "giving up: the workers failed 2 times in a row" in gang.log(2)
    assert [r["cause"] for r in gang.rounds()] == ["start", "workers failed"]


ALONE = """
import os, sys, time
from pathlib import Path
import torch.distributed as dist
work = Path(sys.argv[1])
dist.init_process_group("gloo")
rank = dist.get_rank()
dist.barrier()
dist.destroy_process_group()
if rank == 0:
    (work / "exports").open("a").write("x")
    while not (work / "enough").exists():
        time.sleep(0.05)
    (work / "exported").touch()
"""


def test_a_training_whose_rank_0_was_lost_in_its_export_is_done_again(gang: Gang) -> None:
    gang.extra["MALLEABLE_LAST_CALL_S"] = "60"  # a first round of two: it is full
    gang.script = gang.work / "alone.py"
    gang.script.write_text(ALONE)
    for fragment in (1, 2):
        gang.start(fragment, "1:2", 0)
    exports = gang.work / "exports"
    wait_until(lambda: exports.exists() and '"done":[[2,0,' in gang.state(), explain=gang.dump)
    gang.cut_off(1, signal.SIGKILL)
    wait_until(lambda: gang.agents[2].poll() is not None, explain=gang.dump)
    assert "fragment 2 starts again: rank 0 was lost" in gang.log(2)
    assert not (gang.work / "exported").exists()
    for fragment in (1, 2):
        gang.agents.pop(fragment).wait()
        gang.extra["SLURM_RESTART_COUNT"] = "1"
        gang.start(fragment, "1:2", 0)
    wait_until(lambda: len(exports.read_text()) == 2, explain=gang.dump)
    (gang.work / "enough").touch()
    assert gang.wait_exit(1, 2) == [0, 0]
    assert (gang.work / "exported").exists()


@pytest.mark.parametrize("warm", ["", pytest.param("0", marks=pytest.mark.nightly)])
def test_a_worker_does_not_outlive_its_agent(gang: Gang, warm: str) -> None:
    gang.extra["MALLEABLE_WARM"] = warm
    gang.script = gang.work / "pid.py"
    gang.script.write_text(
        "import os, sys, time\nfrom pathlib import Path\n"
        "Path(sys.argv[1], 'pid.new').write_text(str(os.getpid()))\n"
        "os.rename(Path(sys.argv[1], 'pid.new'), Path(sys.argv[1], 'pid'))\ntime.sleep(1000)\n"
    )
    gang.start(1, "1:1", 0)
    wait_until((gang.work / "pid").exists, explain=gang.dump)
    worker = Path("/proc", (gang.work / "pid").read_text(), "exe")
    assert worker.exists()
    gang.agents[1].kill()  # the agent alone
    wait_until(lambda: not worker.exists(), explain=gang.dump)  # a zombie has none
