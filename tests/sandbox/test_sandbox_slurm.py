"""Real sandboxes: their daemons start, jobs run in them, and no process remains."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_hooks.cli import main as malleable
from slurm_hooks.commands import sandbox as cli
from slurm_hooks.errors import CommandRefused, RetryLater, UsageError
from slurm_hooks.sandbox import Sandbox, SandboxSpec, list_sandboxes
from slurm_hooks.sandbox.processes import Process, find_processes, is_alive
from waiting import wait_until

pytestmark = pytest.mark.slurm
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="jobs of other users need root")

STUBBORN = (
    "#!/bin/bash\ntrap '' TERM\n(trap '' TERM; setsid sleep 987) &\nwhile :; do sleep 1; done\n"
)


def submit(box: Sandbox, script: str, *options: str, user: str | None = None) -> str:
    return box.run(["sbatch", "--parsable", *options], stdin=script, user=user).stdout.strip()


def state(box: Sandbox, job: str) -> str:
    return box.run(["squeue", "-h", "-t", "all", "-j", job, "-o", "%T"]).stdout.strip()


def is_reachable(tree: str) -> bool:
    """Tell whether every user can enter every directory on the way."""
    return all(path.stat().st_mode & 0o001 for path in [Path(tree), *Path(tree).parents])


def family(box: Sandbox) -> list[Process]:
    return find_processes(box.dir, box.record.layout.conf)


def test_all_nodes_start_and_no_process_remains(bare_sandbox):
    box = bare_sandbox(nodes=4)
    job = submit(box, STUBBORN, "-N2")
    wait_until(lambda: state(box, job) == "RUNNING")
    # munged, slurmctld, its slurmscriptd, 4 slurmd, 2 slurmstepd... and a job that ignores SIGTERM
    wait_until(lambda: len(family(box)) >= 9)
    running, conf = family(box), box.record.layout.conf
    box.down()
    assert not [process for process in running if is_alive(process)]
    assert find_processes(box.dir, conf) == []
    box.down()


SHOW_GPUS = "#!/bin/sh\necho $CUDA_VISIBLE_DEVICES\nexec sleep 600\n"


def gpus_used(box: Sandbox, node: str) -> str:
    shown = box.run(["scontrol", "-d", "-o", "show", "node", node]).stdout
    return next(word for word in shown.split() if word.startswith("GresUsed="))


def set_size(box: Sandbox, element: str, gpus: int) -> None:
    """As many GPUs with 2 CPUs and 100 MiB each."""
    cpus = [f"{key}={2 * gpus}" for key in ("CpusPerTask", "NumCPUs", "MinCPUsNode")]
    sizes = [f"Gres=gpu:{gpus}", *cpus, f"MinMemoryNode={100 * gpus}", "StartTime=now"]
    box.run(["scontrol", "update", f"jobid={element}", *sizes])


def test_a_part_of_a_node_starts_beside_another_job_and_can_be_resized(bare_sandbox):
    box = bare_sandbox(nodes=1, cpus=16, gpus=8)
    submit(box, SHOW_GPUS, "--partition=main", "--gres=gpu:2", "--cpus-per-task=4", "-origid")
    wait_until(lambda: gpus_used(box, "n1") == "GresUsed=gpu:2")
    wanted = ["--gres=gpu:1", "--ntasks=1", "--cpus-per-task=2", "--mem=100", "--output=part.%a"]
    lane = ["--partition=parts", "--array=0-1", "--hold", "--requeue"]
    job = submit(box, SHOW_GPUS, *lane, *wanted)
    set_size(box, f"{job}_0", 4)
    box.run(["scontrol", "release", f"{job}_0"])
    wait_until(lambda: gpus_used(box, "n1") == "GresUsed=gpu:6")
    shown = box.work / "part.0"
    wait_until(lambda: shown.exists() and shown.read_text() == "2,3,4,5\n")

    submit(box, SHOW_GPUS, "--partition=main", "--gres=gpu:3", "--cpus-per-task=6")
    wait_until(lambda: state(box, f"{job}_0") == "PENDING")
    box.run(["scontrol", "hold", f"{job}_0"])
    set_size(box, f"{job}_0", 2)
    box.run(["scontrol", "release", f"{job}_0"])
    wait_until(lambda: gpus_used(box, "n1") == "GresUsed=gpu:7")


@pytest.fixture
def own_base():
    """A separate directory. In the usual directory others may take a name as soon as it is free."""
    base = Path(f"/tmp/sbo-{os.getpid()}")
    yield base
    base.rmdir()


def test_an_ended_sandbox_never_ends_the_next_of_its_name(installation, own_base):
    spec = SandboxSpec(nodes=1, slurm=installation, base=own_base)
    with Sandbox.up(spec) as one:
        seen_by_others = Sandbox.attach(one.dir)
        one.down()
        assert not one.dir.exists()
        with Sandbox.up(spec) as two:
            assert two.dir == one.dir
            one.down()
            seen_by_others.down()
            assert set(two.running()) == {"munged", "slurmctld", "n1"}


def test_the_context_ends_a_sandbox_after_an_error(installation, own_base):
    spec = SandboxSpec(nodes=1, slurm=installation, base=own_base)
    with pytest.raises(KeyError), Sandbox.up(spec) as box:
        raise KeyError
    assert not box.dir.exists()


def test_two_sandboxes_at_once_share_no_file(bare_sandbox):
    one, two = bare_sandbox(nodes=2), bare_sandbox(nodes=2)
    job = submit(one, "#!/bin/sh\nsleep 60\n")
    wait_until(lambda: state(one, job) == "RUNNING")
    assert two.run(["squeue", "-h"]).stdout == ""
    assert not set(one.record.ports) & set(two.record.ports)
    two.down()
    assert state(one, job) == "RUNNING"
    assert set(one.running()) == {"munged", "slurmctld", "n1", "n2"}


def test_two_starting_at_the_same_moment_do_not_collide(installation):
    script = (
        "import sys; from pathlib import Path; from slurm_hooks.sandbox import *\n"
        "box = Sandbox.up(SandboxSpec(nodes=2, base=Path(sys.argv[1]))); print(box.dir)"
    )
    base = Path(f"/tmp/sbt-{os.getpid()}")
    argv = [sys.executable, "-c", script, str(base)]
    try:
        starters = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(3)]
        directories = {starter.communicate(timeout=150)[0].strip() for starter in starters}
        assert len(directories) == 3
        assert [str(box.dir) for box in list_sandboxes(base)] == sorted(directories)
    finally:
        for box in list_sandboxes(base):
            box.down()
        base.rmdir()


def test_a_crash_and_a_restart_of_the_controller_keep_jobs(bare_sandbox):
    box = bare_sandbox(nodes=2)
    job = submit(box, "#!/bin/sh\nsleep 60\n")
    wait_until(lambda: state(box, job) == "RUNNING")
    box.restart_controller()
    assert state(box, job) == "RUNNING"
    box.kill_controller()
    assert "slurmctld" not in box.running()
    box.start_controller()
    assert state(box, job) == "RUNNING"
    box.wait_ready()


def test_a_node_can_be_stopped_and_started(bare_sandbox):
    box = bare_sandbox(nodes=2)
    box.stop_node("n2")
    assert "n2" not in box.running()
    box.start_node("n2")
    assert box.run(["srun", "-w", "n2", "printenv", "SLURMD_NODENAME"]).stdout == "n2\n"
    with pytest.raises(UsageError, match="n9"):
        box.stop_node("n9")


@needs_root
def test_another_user_runs_jobs_and_owns_their_files(bare_sandbox):
    box = bare_sandbox(nodes=2)
    job = submit(box, "#!/bin/sh\nid -un; hostname >&2\nsrun -N2 id -un\n", "-N2", user="nobody")
    output = box.work / f"slurm-{job}.out"
    wait_until(lambda: state(box, job) == "COMPLETED")
    assert output.read_text().split().count("nobody") == 3
    assert output.owner() == "nobody"


@needs_root
def test_an_ordinary_user_can_have_a_sandbox(installation):
    """A process that is `nobody` from its start. The other tests show it when such a user
    runs them.
    """
    python = shutil.which("python3", path="/usr/bin:/bin")
    tree = str(Path(__file__).resolve().parents[2])
    if python is None or not is_reachable(tree):
        pytest.skip(f"user nobody cannot reach a python3 or {tree}")
    base = Path(f"/tmp/sbn-{os.getpid()}")
    base.mkdir(mode=0o755)
    os.chown(base, 65534, 65534)
    script = (
        "import sys; from pathlib import Path; from slurm_hooks.sandbox import *\n"
        "with Sandbox.up(SandboxSpec(nodes=2, base=Path(sys.argv[1]))) as box:\n"
        "    print(box.run(['srun', '-N2', 'id', '-u']).stdout)\n"
    )
    try:
        done = subprocess.run(
            [python, "-c", script, str(base)],
            user=65534,
            group=65534,
            extra_groups=[],
            cwd="/",
            env={"PYTHONPATH": tree, "PYTHONDONTWRITEBYTECODE": "1", "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        assert done.stdout.split() == ["65534", "65534"], done.stderr
        assert list(base.iterdir()) == []
    finally:
        base.rmdir()


def test_many_nodes(bare_sandbox):
    box = bare_sandbox(nodes=24)
    ran = box.run(["srun", "-N24", "printenv", "SLURMD_NODENAME"]).stdout.split()
    assert sorted(ran) == sorted(box.nodes)


def test_a_killed_parent_leaves_a_sandbox_that_down_can_end(installation):
    base = Path(f"/tmp/sbk-{os.getpid()}")
    script = (
        "import sys, time; from pathlib import Path; from slurm_hooks.sandbox import *\n"
        "box = Sandbox.up(SandboxSpec(nodes=2, base=Path(sys.argv[1])))\n"
        "box.run(['sbatch', '-N2'], stdin='#!/bin/sh\\nsleep 600\\n')\n"
        "print('up', flush=True); time.sleep(600)\n"
    )
    argv = [sys.executable, "-c", script, str(base)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "up\n"
        parent.send_signal(signal.SIGKILL)
    (box,) = list_sandboxes(base)
    left = family(box)
    assert {"munged", "slurmctld", "n1", "n2"} == set(box.running())
    assert cli.main(["--base", str(base), "down", "--all"]) == 0
    assert not [process for process in left if is_alive(process)]
    assert list(base.iterdir()) == []
    base.rmdir()


def test_a_parent_killed_during_the_start_leaves_a_sandbox_that_down_can_end(installation):
    base = Path(f"/tmp/sbm-{os.getpid()}")
    script = (
        "import sys; from pathlib import Path; from slurm_hooks.sandbox import *\n"
        "import os; seen = lambda what, done, total: what == 'slurmd' and os.kill(os.getpid(), 9)\n"
        "Sandbox.up(SandboxSpec(nodes=2, base=Path(sys.argv[1])), seen)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(base)], timeout=150, check=False)
    assert done.returncode == -signal.SIGKILL
    (box,) = list_sandboxes(base)
    assert set(box.running()) == {"munged", "slurmctld"}
    box.down()
    assert list(base.iterdir()) == []
    base.rmdir()


def test_a_failed_start_gives_its_reason_and_leaves_no_process(installation):
    base = Path(f"/tmp/sbf-{os.getpid()}")
    with pytest.raises(RetryLater, match="slurmctld ended as soon as it started"):
        Sandbox.up(SandboxSpec(nodes=1, base=base, slurm=installation, extra_conf="Nonsense=1"))
    assert list(base.iterdir()) == []
    base.rmdir()


def test_down_spares_shells_that_use_the_sandbox(bare_sandbox):
    box = bare_sandbox(nodes=1)
    with subprocess.Popen(["sleep", "60"], env=box.environment) as user_shell:
        box.down()
        assert user_shell.poll() is None
        user_shell.kill()


def test_a_failing_command_shows_its_output(bare_sandbox):
    box = bare_sandbox(nodes=1)
    with pytest.raises(CommandRefused, match="invalid partition"):
        box.run(["sbatch", "-p", "nowhere"], stdin="#!/bin/sh\n")
    assert box.run(["false"], check=False).returncode == 1
    with pytest.raises(RetryLater, match="did not end within"):
        box.run(["sleep", "9"], timeout_s=0.2)
    with pytest.raises(UsageError, match="no user"):
        box.run(["true"], user="nobody-of-that-name")


def test_attach_returns_a_running_sandbox(bare_sandbox):
    box = bare_sandbox(nodes=2)
    other = Sandbox.attach(box.dir)
    assert other.running() == box.running()
    assert other.run(["sinfo", "-h", "-o", "%N"]).stdout.split() == ["n[1-2]"]
    with pytest.raises(UsageError, match="no sandbox"):
        Sandbox.attach(box.work)


def test_the_project_is_in_the_shared_sandbox(sandbox):
    assert "--malleable=" in sandbox.run(["sbatch", "--help"]).stdout
    job = sandbox.run(
        ["sbatch", "--parsable", "--malleable=1-2"], stdin="#!/bin/sh\nenv | sort\n"
    ).stdout.strip()
    shown = sandbox.run(["scontrol", "show", "job", job]).stdout
    assert "AdminComment=malleable{min=1,max=2," in shown
    assert "Partition=malleable" in shown
    assert "JobHeldUser" in shown
    assert (sandbox.record.layout.job_path / "slurm_hooks" / "elastic").is_dir()
    sandbox.run(["scontrol", "update", f"jobid={job}_0", "ReqNodeList=n1", "TimeLimit=2"])
    sandbox.run(["scontrol", "release", f"{job}_0"])
    output = sandbox.work / f"slurm-{job}_0.out"
    wait_until(lambda: output.exists() and "PYTHONPATH=" in output.read_text())
    seen = output.read_text().splitlines()
    assert any(line.startswith("PET_RDZV_BACKEND=malleable") for line in seen)
    assert f"PYTHONPATH={sandbox.record.layout.job_path}" in seen
    sandbox.run(["scancel", job])


def test_the_command_line(installation, capfd):
    base = Path(f"/tmp/sbc-{os.getpid()}")
    options = ["--base", str(base)]
    try:
        assert cli.main([*options, "up", "--plain", "--nodes", "2", "--json"]) == 0
        answer = json.loads(capfd.readouterr().out)
        assert (answer["name"], answer["nodes"]) == ("sb1", 2)
        assert cli.main([*options, "run", "sb1", "--", "sinfo", "-h", "-o", "%P %N"]) == 0
        assert cli.main([*options, "run", "sb1", "--", "sh", "-c", "exit 7"]) == 7
        assert cli.main([*options, "status"]) == 0
        said = capfd.readouterr().out
        assert said.splitlines()[:2] == ["main* n[1-2]", "preempt n[1-2]"]
        assert "sb1: up, 2 of 2 nodes" in said
        assert malleable(["sandbox", *options, "down", "sb2"]) == UsageError.exit_code
        assert "name one of sb1" in capfd.readouterr().err
        assert cli.main([*options, "run", "--json", "sb1", "--", "sh", "-c", "echo x; exit 7"]) == 7
        data = json.loads(capfd.readouterr().out)
        assert (data["exit_code"], data["stdout"]) == (7, "x\n")
        assert malleable(["--json", "sandbox", *options, "status"]) == 0
        assert json.loads(capfd.readouterr().out)["sandboxes"][0]["name"] == "sb1"
        assert cli.main([*options, "down", "--all", "--json"]) == 0
        assert json.loads(capfd.readouterr().out)["removed"] == ["sb1"]
        assert cli.main([*options, "status"]) == 0
        assert "There is no sandbox." in capfd.readouterr().out
    finally:
        for box in list_sandboxes(base):
            box.down()
        base.rmdir()


def test_up_prints_lines_that_a_shell_can_eval(installation, capfd):
    base = Path(f"/tmp/sbe-{os.getpid()}")
    try:
        assert cli.main(["--base", str(base), "up", "--plain", "--nodes", "1"]) == 0
        text = f"{capfd.readouterr().out}\nsinfo -h -o %N"
        done = subprocess.run(
            ["sh", "-c", text], capture_output=True, text=True, timeout=150, check=False
        )
        assert done.stdout == "n1\n", done.stderr
    finally:
        for box in list_sandboxes(base):
            box.down()
        base.rmdir()
