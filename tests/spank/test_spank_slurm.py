"""The SPANK plugin in a real Slurm: the option, its refusals and the processes' variables."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from spank_jobs import (
    LIMIT_S,
    NAMES,
    SHELL_USER,
    USER,
    ours,
    printed,
    release,
    run_fragment,
    script,
    shared_dir,
    show,
    submit,
    wait_for,
    wait_until_held,
)

from kept_sandbox import cancel_jobs_of
from slurm_hooks.protocol.engines import BACKENDS
from slurm_hooks.sandbox.project import project_spec

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(os.geteuid() != 0, reason="submits as another user, which needs root"),
]

BASIC = """print_env batch
srun bash -c 'print_env step'
cd /
PET_MAX_RESTARTS=7 srun bash -c 'print_env changed'
srun --export=NONE /usr/bin/env | sed 's/^/bare /'
"""


@pytest.fixture(autouse=True, scope="module")
def _tidy(sandbox: Any) -> Iterator[None]:
    yield
    cancel_jobs_of(sandbox, USER, SHELL_USER)


# --- the option ---


@pytest.mark.parametrize("command", ["sbatch", "salloc", "srun"])
def test_help(sandbox: Any, command: str) -> None:
    text = " ".join(sandbox.run([command, "--help"]).stdout.split())
    assert "--malleable=MIN-MAX[,KEY=VALUE...]" in text
    assert "core=N: wait for N nodes" in text


def test_option_in_the_script(sandbox: Any) -> None:
    path = script(sandbox, "directive", "", head="#SBATCH --malleable=2-4\n")
    job = submit(sandbox, path)
    seen = show(sandbox, job)
    sandbox.run(["scancel", job])
    assert seen["ArrayTaskId"] == "0-3"
    assert seen["AdminComment"].startswith("malleable{min=2,max=4,unit=1,engine=torchrun,")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("", "--malleable=2-16"),
        ("4", "--malleable=1-4"),
        ("4-2", "--malleable=2-4"),
        ("0-0", "from 1 to 65535"),
        ("2-70000", "from 1 to 65535"),
        ("2-b", "from 1 to 65535"),
        ("2-5,unit=2", "--malleable=2-4,unit=2"),
        ("2-4,unit=1,unit=1", "unit is given twice"),
        ("2-4,engine=Big", "engine=torchrun"),
        ("2-4,launch=mpirun", "launch=srun"),
        ("2-4,colour=blue", "the keys are"),
        ("2-4,", "remove that comma"),
    ],
)
def test_bad_values(sandbox: Any, value: str, said: str) -> None:
    argv = ["sbatch", f"--malleable={value}", "--wrap=true"]
    done = sandbox.run(argv, user=USER, check=False)
    assert done.returncode != 0
    assert f"sbatch: error: malleable: --malleable={value}: " in done.stderr
    assert said in done.stderr


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["train.sh"], "sbatch --malleable=2-16 train.sh"),
        (["--gres=gpu:1", "SCRIPT"], "sbatch --malleable=2-16 --gres=gpu:1 SCRIPT"),
    ],
)
def test_without_a_value_sbatch_reads_the_next_word(
    sandbox: Any, words: list[str], line: str
) -> None:
    path = script(sandbox, "no_value", "")
    words = [str(path) if word == "SCRIPT" else word for word in words]
    done = sandbox.run(["sbatch", "--malleable", *words], user=USER, check=False)
    assert done.returncode != 0
    assert f"so sbatch read {words[0]} as the value; write for example {line}\n" in done.stderr


def test_sbatch_that_waits_at_a_terminal_says_why(sandbox: Any) -> None:
    keyboard, terminal = os.openpty()
    os.write(keyboard, b"\x04")  # Ctrl-D, an empty script
    done = subprocess.run(
        ["sbatch", "--malleable", "train.sh"],
        stdin=terminal,
        env={**os.environ, **sandbox.environment},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    os.close(keyboard)
    os.close(terminal)
    assert "; write for example sbatch --malleable=2-16 train.sh\n" in done.stderr
    assert "sbatch now reads a script from the terminal; press Ctrl-C\n" in done.stderr


@pytest.mark.parametrize("command", ["salloc", "srun"])
def test_refused_by_commands_that_cannot_requeue(sandbox: Any, command: str) -> None:
    done = sandbox.run([command, "--malleable=1-2", "true"], user=USER, check=False)
    assert done.returncode != 0
    assert f"malleable: {command} cannot take --malleable" in done.stderr
    assert "use sbatch --malleable=MIN-MAX SCRIPT" in done.stderr


def test_renamed_commands(sandbox: Any) -> None:
    """A site's wrapper may have another name for its copy of sbatch or salloc."""
    find = 'cp "$(command -v {0})" ./my{0} && ./my{0} {1}'
    good = sandbox.run(
        ["bash", "-c", find.format("sbatch", "--parsable --malleable=1-2 --wrap=true")],
        user=USER,
    )
    assert "ArrayTaskId" in show(sandbox, good.stdout.strip())
    bad = sandbox.run(
        ["bash", "-c", find.format("salloc", "--malleable=1-2 true")], user=USER, check=False
    )
    assert "salloc cannot take --malleable" in bad.stderr


# --- the environment ---


@pytest.fixture(scope="module")
def basic(sandbox: Any) -> tuple[str, str]:
    return run_fragment(
        sandbox, script(sandbox, "basic", BASIC), "--malleable=2-4", PYTHONPATH="/mine"
    )


def test_batch_script(sandbox: Any, basic: tuple[str, str]) -> None:
    job, log = basic
    seen = printed(log, "batch")
    directory = shared_dir(sandbox, job)
    assert seen["PET_NNODES"] == "2:4"
    assert seen["PET_RDZV_BACKEND"] == BACKENDS[-1]
    assert seen["PET_RDZV_ID"] == seen["MALLEABLE_JOB_ID"] == job
    assert seen["PET_RDZV_ENDPOINT"] == seen["MALLEABLE_DIR"] == directory
    assert seen["PET_LOCAL_ADDR"] == "127.0.0.1"
    assert int(seen["PET_MAX_RESTARTS"]) >= 1000
    assert seen["MALLEABLE_NOTICE_S"] == "20"
    assert seen["MALLEABLE_FAREWELL_S"] == "2"
    assert seen["MALLEABLE_FRAGMENT"] == "0"
    assert (seen["MALLEABLE_MIN"], seen["MALLEABLE_MAX"]) == ("2", "4")
    assert (seen["MALLEABLE_UNIT"], seen["MALLEABLE_ENGINE"]) == ("1", "torchrun")
    assert "MALLEABLE_KEPT" not in seen
    assert "your own values" not in log
    assert not any("_SLURM_SPANK_OPTION_" in name for name in seen if name[0] == "_")


def test_python_path(basic: tuple[str, str]) -> None:
    for who in ("batch", "step"):
        seen = printed(basic[1], who)
        assert seen["PYTHONPATH"] == f"{seen['MALLEABLE_PYTHONPATH']}:/mine"


def test_the_path_of_programs(basic: tuple[str, str]) -> None:
    for who in ("batch", "step"):
        seen = printed(basic[1], who)
        first, *rest = seen["PATH"].split(":")
        assert first == f"{seen['MALLEABLE_PYTHONPATH']}/bin"
        assert rest
        assert first not in rest
    assert "PATH" not in printed(basic[1], "bare")  # so a shell there has its own


def test_a_step_has_the_variables_of_the_script(basic: tuple[str, str]) -> None:
    batch, step = printed(basic[1], "batch"), printed(basic[1], "step")
    assert ours(step) == ours(batch) >= NAMES
    assert all(step[name] == batch[name] for name in ours(step))


def test_value_changed_in_the_script_wins(basic: tuple[str, str]) -> None:
    seen = printed(basic[1], "changed")
    assert seen["PET_MAX_RESTARTS"] == "7"
    assert seen["MALLEABLE_KEPT"] == "PET_MAX_RESTARTS"


def test_step_without_exported_environment(basic: tuple[str, str]) -> None:
    batch, bare = printed(basic[1], "batch"), printed(basic[1], "bare")
    assert {name: bare[name] for name in NAMES} == {name: batch[name] for name in NAMES}
    assert bare["PYTHONPATH"] == batch["MALLEABLE_PYTHONPATH"]


@pytest.mark.parametrize("export", ["NONE", "ALL,X=1", "X=1"])
def test_export_does_not_lose_the_request(sandbox: Any, export: str) -> None:
    name = f"export{export.replace(',', '').replace('=', '')}"
    path = script(sandbox, name, "export PATH=/usr/bin:/bin\nprint_env batch")
    options = ("--malleable=1-2", f"--export={export}")
    job, log = run_fragment(sandbox, path, *options, user=SHELL_USER)
    seen = printed(log, "batch")
    assert seen["PET_NNODES"] == "1:2"
    assert seen["MALLEABLE_DIR"] == shared_dir(sandbox, job, SHELL_USER)
    assert seen.get("X") == ("1" if "X=1" in export else None)


def test_a_submission_from_a_job_of_another_cluster_ignores_that_cluster_s_name(
    sandbox: Any,
) -> None:
    path = script(sandbox, "nested_cluster", "print_env batch")
    job, log = run_fragment(sandbox, path, "--malleable=1-2", SLURM_CLUSTER_NAME="elsewhere")
    assert printed(log, "batch")["MALLEABLE_DIR"] == shared_dir(sandbox, job)


def test_the_notice_equals_the_settings(fresh_sandbox: Any) -> None:
    """Neither the words of plugstack.conf nor variables that the user leaves out change it."""
    box = fresh_sandbox(
        nodes=1, settings_text="[lease]\nnotice_s = 35\n", job_dir="%w/.malleable/%A notice=7"
    )
    bare = "srun --export=NONE /usr/bin/env | sed 's/^/bare /'"
    body = f"export PATH=/usr/bin:/bin\nprint_env batch\n{bare}"
    for export in ("ALL", "NONE", "X=1"):
        path = script(box, f"notice{export}".replace("=", ""), body)
        options = ("--malleable=1-2", f"--export={export}")
        log = run_fragment(box, path, *options, user=SHELL_USER)[1]
        for who in ("batch", "bare"):
            seen = printed(log, who)
            assert seen["MALLEABLE_NOTICE_S"] == "35", (export, who)
            assert "MALLEABLE_KEPT" not in seen


def test_users_values_win_and_are_reported(sandbox: Any) -> None:
    path = script(sandbox, "kept", "print_env batch")
    mine = {"PET_RDZV_BACKEND": "c10d", "PET_NNODES": "3", "MALLEABLE_UNIT": "1"}
    log = run_fragment(sandbox, path, "--malleable=1-2", **mine)[1]
    seen = printed(log, "batch")
    assert mine.items() <= seen.items()
    assert seen["MALLEABLE_KEPT"] == "PET_NNODES,PET_RDZV_BACKEND"
    lines = [line for line in log.splitlines() if "your own values" in line]
    assert len(lines) == 1
    assert lines[0].startswith("malleable: PET_NNODES,PET_RDZV_BACKEND: your own values are kept")


def test_an_upgrade_changes_no_module_under_a_running_job(fresh_sandbox: Any) -> None:
    """`make install` leaves a link to a version. A job keeps the version of its start."""
    box = fresh_sandbox(nodes=2)
    link = box.record.layout.job_path
    first = link.rename(link.with_name("jobpath-1"))
    shutil.copytree(first, link.with_name("jobpath-2"))
    link.symlink_to("jobpath-1")
    switch = f"ln -sfn jobpath-2 {link}"
    path = script(
        box, "upgrade", "print_env batch\necho READY\nsleep 3\nsrun bash -c 'print_env step'"
    )
    job = submit(box, path, "--malleable=1-2")
    release(box, f"{job}_0")
    wait_for(path.with_suffix(".0.out"), "\nREADY\n")
    box.run(["sh", "-c", switch])
    log = wait_for(path.with_suffix(".0.out"), "\nEND\n")
    for who in ("batch", "step"):
        assert printed(log, who)["PYTHONPATH"] == str(first)
    release(box, f"{job}_1")
    log = wait_for(path.with_suffix(".1.out"), "\nEND\n")
    assert printed(log, "batch")["PYTHONPATH"] == str(link.with_name("jobpath-2"))


def test_a_fragment_without_the_work_directory_meets_no_other(sandbox: Any) -> None:
    """In this case slurmd runs the script in /tmp. A directory there would belong to this
    node alone.
    """
    path = script(sandbox, "astray", "print_env batch\npwd\nsrun bash -c 'print_env step'")
    log = run_fragment(sandbox, path, "--malleable=1-2", "--chdir=/no/such/directory")[1]
    seen, step = printed(log, "batch"), printed(log, "step")
    assert "\n/tmp\n" in log
    for variables in (seen, step):
        assert "MALLEABLE_DIR" not in variables
        assert variables["PET_RDZV_ENDPOINT"] == "the-work-directory-of-the-job-is-not-on-this-node"
    assert log.count("malleable: this fragment cannot meet the others") == 1


def test_users_of_the_same_work_directory_have_separate_directories(sandbox: Any) -> None:
    logs = [
        run_fragment(
            sandbox, script(sandbox, f"of_{user}", "print_env batch"), "--malleable=1-2", user=user
        )
        for user in (USER, SHELL_USER)
    ]
    parents = {Path(printed(log, "batch")["MALLEABLE_DIR"]).parents[1].name for _, log in logs}
    assert parents == {f".malleable-{pwd.getpwnam(user).pw_uid}" for user in (USER, SHELL_USER)}


def test_other_jobs_get_no_variable(sandbox: Any) -> None:
    path = script(sandbox, "plain", "print_env batch\nsrun bash -c 'print_env step'")
    submit(sandbox, path, f"--output={path.with_suffix('.out')}")
    log = wait_for(path.with_suffix(".out"), "\nEND\n")
    assert not ours(printed(log, "batch")) | ours(printed(log, "step"))
    assert not [name for name in printed(log, "batch") if "SPANK" in name]
    assert "malleable:" not in log


def test_requeue_keeps_the_environment(sandbox: Any) -> None:
    path = script(sandbox, "requeue", "print_env run$SLURM_RESTART_COUNT\necho RUNS\nexec sleep 60")
    job = submit(sandbox, path, "--malleable=1-2", env={"PYTHONPATH": "/mine"})
    log = path.with_suffix(".0.out")
    release(sandbox, f"{job}_0", "ReqNodeList=n1")
    wait_for(log, "\nRUNS\n")
    sandbox.run(["scontrol", "requeuehold", f"{job}_0"])
    wait_until_held(sandbox, f"{job}_0")
    release(sandbox, f"{job}_0", "ReqNodeList=n2")
    content = wait_for(log, "\nRUNS\n", count=2)
    sandbox.run(["scancel", job])
    first, second = printed(content, "run"), printed(content, "run1")
    assert (first["SLURMD_NODENAME"], second["SLURMD_NODENAME"]) == ("n1", "n2")
    assert ours(first) == ours(second) >= NAMES
    assert all(first[name] == second[name] for name in (*NAMES, "PYTHONPATH"))


def test_without_job_submit_the_job_is_rigid_and_says_so(fresh_sandbox: Any) -> None:
    box = fresh_sandbox(nodes=1, lua_dir=None, policy=None)
    path = script(box, "rigid", "print_env batch")
    submit(box, path, "--malleable=1-2", f"--output={path.with_suffix('.out')}")
    log = wait_for(path.with_suffix(".out"), "\nEND\n")
    expected = {"MALLEABLE_MIN", "MALLEABLE_MAX", "MALLEABLE_UNIT", "MALLEABLE_ENGINE"}
    assert ours(printed(log, "batch")) == {*expected, "MALLEABLE_SET"}
    assert log.count("malleable: this job is not an array, so it runs") == 1


def test_fragments_of_an_engine_without_traits_say_so_and_do_not_meet(
    fresh_sandbox: Any, tmp_path: Path
) -> None:
    """The job is older than the plugin, or a site's own script writes over ours."""
    source = project_spec().lua_dir  # of this tree, or the installed modules
    assert source
    lua = shutil.copytree(source, tmp_path / "lua")
    text = (lua / "malleable_checks.lua").read_text()
    assert text.count("policy.engines[request.engine]") == 1
    (lua / "malleable_checks.lua").write_text(
        text.replace("policy.engines[request.engine]", '"gang+daemon"')
    )
    box = fresh_sandbox(nodes=1, lua_dir=lua)
    log = run_fragment(box, script(box, "traits", "print_env batch"), "--malleable=1-2")[1]
    seen = printed(log, "batch")
    assert log.count("malleable: job_submit did not say what kind of program engine=torchrun") == 1
    assert "if the job is older than the last upgrade, submit it again" in log
    assert seen["PET_RDZV_ENDPOINT"].startswith("job_submit-did-not-say")
    assert "MALLEABLE_DIR" not in seen
    assert seen["MALLEABLE_MAX"] == "2"
