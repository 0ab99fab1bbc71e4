"""An environment that a job names, laid by the Prolog of a real Slurm."""

from __future__ import annotations

import os
import pwd
import shutil
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_hooks.hooks import preposition
from waiting import wait_until

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(os.geteuid() != 0, reason="submits as another user, which needs root"),
]
SCRIPT = '#!/bin/sh\necho "env $MALLEABLE_ENV"\ncat "$MALLEABLE_ENV/bin/tool"\n' + (
    "srun sh -c 'echo \"step $MALLEABLE_ENV\"'\necho END\n"
)
STORE = "/tmp/malleable-test-env-{pid}"


@pytest.fixture(scope="module")
def site(new_site: Any) -> Iterator[Any]:
    """A site whose Prolog lays environments, and its store."""
    store = Path(STORE.format(pid=os.getpid()))
    store.mkdir(mode=0o711)
    prolog = store / "prolog.sh"
    hook = store / "preposition"
    shutil.copytree(Path(preposition.__file__).parent, hook)
    call = f"{sys.executable} -I {hook} --store={store} --seconds=20 --free-gib=0 --free-share=0"
    prolog.write_text(f"#!/bin/sh\n{call} >/dev/null 2>>{store}/log\nexit 0\n")
    prolog.chmod(0o755)
    box = new_site(nodes=2, extra_conf=f"Prolog={prolog}\n")
    plugstack = Path(box.environment["SLURM_CONF"]).with_name("plugstack.conf")
    plugstack.write_text(plugstack.read_text().rstrip("\n") + f" env_store={store}\n")
    yield box, store
    shutil.rmtree(store)


def run(box: Any, name: str, *options: str, body: str = SCRIPT) -> str:
    """The log of a job's first fragment."""
    script = box.work / f"{name}.sh"
    script.write_text(body)
    output = box.work / f"{name}.out"
    argv = ["sbatch", "--parsable", "--malleable=1-1", f"--output={output}", *options, str(script)]
    job = box.run(argv, user="nobody").stdout.strip()
    box.run(["scontrol", "release", f"{job}_0"])
    wait_until(lambda: output.exists() and "END\n" in output.read_text())
    box.run(["scancel", job], check=False)
    return lines(output)


def lines(log: Path) -> str:
    """The output of the script. slurmstepd may print between its lines that TMPDIR is not
    writable.
    """
    written = log.read_text().splitlines(keepends=True)
    return "".join(line for line in written if not line.startswith("slurmstepd"))


def test_a_job_has_its_environment_on_the_node(site: Any) -> None:
    box, store = site
    tar = box.work / "env.tar"
    tool = box.work / "tool"
    tool.write_text("content\n")
    with tarfile.open(tar, "w") as archive:
        archive.add(tool, "bin/tool")
    log = run(box, "laid", f"--malleable-env={tar}")
    home = store / str(pwd.getpwnam("nobody").pw_uid)
    (laid,) = home.glob("env-*")
    assert f"env {laid}\ncontent\nstep {laid}\n" in log


def test_an_environment_that_cannot_be_laid_is_used_in_its_place(site: Any) -> None:
    box, _ = site
    log = run(box, "cold", "--malleable-env=/nowhere/env.tar")
    assert "env /nowhere/env.tar\n" in log
    assert "step /nowhere/env.tar\n" in log
    states = box.run(["sinfo", "-h", "-o", "%T"]).stdout.split()
    assert not [state for state in states if "drain" in state]


def test_a_job_that_names_no_environment_gets_none(site: Any) -> None:
    assert "env \n" in run(site[0], "none")


def test_a_path_that_depends_on_the_directory_is_refused(site: Any) -> None:
    argv = ["sbatch", "--malleable=1-1", "--malleable-env=env.tar", "--wrap=true"]
    done = site[0].run(argv, user="nobody", check=False)
    assert done.returncode != 0
    assert "not an absolute path" in done.stderr


def test_an_ordinary_job_gets_a_message_and_no_environment(site: Any) -> None:
    argv = ["sbatch", "--hold", "--parsable", "--malleable-env=/env.tar", "--wrap=true"]
    done = site[0].run(argv, user="nobody")
    site[0].run(["scancel", done.stdout.strip()])
    assert "needs --malleable=MIN-MAX" in done.stderr


def test_a_job_submitted_from_inside_does_not_inherit_the_environment(site: Any) -> None:
    box, _ = site
    inner = box.work / "inner.sh"
    inner.write_text(SCRIPT)
    output = box.work / "inner.out"
    body = f"#!/bin/sh\nsbatch --output={output} {inner}\necho END\n"
    run(box, "outer", "--malleable-env=/nowhere/env.tar", body=body)
    log = wait_until(lambda: output.exists() and "END\n" in output.read_text() and output)
    assert lines(log).startswith("env \n")
