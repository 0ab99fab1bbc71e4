"""A malleable job by Slurm's REST interface: slurmrestd has no plugin and no command line."""

from __future__ import annotations

import http.client
import json
import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Optional

import pytest
from spank_jobs import PRINT, USER, printed, release, show, wait_for

from kept_sandbox import cancel_jobs_of
from slurm_hooks.sandbox.installation import Installation
from waiting import wait_until

SBIN = "/usr/sbin:/usr/local/sbin:/opt/slurm/sbin"
SLURMRESTD = shutil.which("slurmrestd", path=f"{os.environ.get('PATH', '')}:{SBIN}")
SINCE_SPANK = (23, 11)  # the first version whose description has spank_environment; 22.05 lacks it
SCRIPT = PRINT + "print_env batch\nsrun bash -c 'print_env step'\necho END\n"

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(os.geteuid() != 0, reason="slurmrestd refuses root, so this changes users"),
    pytest.mark.skipif(SLURMRESTD is None, reason="needs slurmrestd: apt-get install slurmrestd"),
]


class OverUnixSocket(http.client.HTTPConnection):
    """HTTP to a server that listens on a path."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(20)
        self.sock.connect(str(self._path))


def version(installation: Installation) -> str:
    """The API version to use. 0.0.42 is common to 24.11 and 26.05."""
    if installation.version < (23, 2):
        return "v0.0.38"
    return "v0.0.40" if installation.version < (24, 11) else "v0.0.42"


@pytest.fixture(scope="module")
def rest(sandbox: Any, installation: Installation) -> Iterator[Path]:
    """The socket of a slurmrestd that runs as an ordinary user and speaks to that user alone."""
    account, path = pwd.getpwnam(USER), Path(sandbox.work) / "rest.sock"
    spoken = version(installation)
    plugins = ["-s", spoken] if spoken == "v0.0.38" else ["-s", "slurmctld", "-d", spoken]
    user = [f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]
    argv = ["setpriv", *user, str(SLURMRESTD), "-a", "rest_auth/local", *plugins, f"unix:{path}"]
    environment = {**os.environ, **sandbox.environment}
    log = Path(sandbox.work) / "rest.log"
    with log.open("w") as out:
        server = subprocess.Popen(argv, env=environment, stdout=out, stderr=subprocess.STDOUT)
    try:
        wait_until(path.exists, explain=log.read_text)
        yield path
    finally:
        server.terminate()
        server.wait(20)
        cancel_jobs_of(sandbox, USER)


def submit(
    rest: Path, spoken: str, work: Path, variables: Mapping[str, str], **more: Any
) -> dict[str, Any]:
    """The answer to a job description."""
    wanted = {"PATH": "/usr/bin:/bin", **variables}
    described = {
        "name": "rest",
        "current_working_directory": str(work),
        "standard_output": f"{work}/rest_%A.%a.out",
        "environment": wanted if spoken == "v0.0.38" else [f"{k}={v}" for k, v in wanted.items()],
        **more,
    }
    body = json.dumps({"job": described, "script": SCRIPT})
    headers = {"Content-Type": "application/json"}
    with closing(OverUnixSocket(rest)) as connection:
        connection.request("POST", f"/slurm/{spoken}/job/submit", body, headers)
        answer: dict[str, Any] = json.loads(connection.getresponse().read())
    return answer


@pytest.mark.parametrize("field", ["environment", "spank_environment"])
def test_a_described_job_is_malleable(
    sandbox: Any, installation: Installation, rest: Path, field: str
) -> None:
    variables: dict[str, str] = {}
    more: dict[str, list[str]] = {}
    if field == "environment":
        variables = {"SBATCH_MALLEABLE": "1-3"}
    elif installation.version < SINCE_SPANK:
        pytest.skip("this Slurm's REST interface has no spank_environment")
    else:
        more = {field: ["MALLEABLE=1-3"]}
    answer = submit(rest, version(installation), sandbox.work, variables, **more)
    job: Optional[int] = answer.get("job_id")
    assert job, answer
    assert show(sandbox, str(job))["ArrayTaskId"] == "0-2"
    release(sandbox, f"{job}_0")
    log = wait_for(Path(sandbox.work) / f"rest_{job}.0.out", "\nEND\n")
    sandbox.run(["scancel", str(job)])
    for who in ("batch", "step"):
        assert printed(log, who)["PET_NNODES"] == "1:3"


def test_a_refusal(sandbox: Any, installation: Installation, rest: Path) -> None:
    answer = submit(rest, version(installation), sandbox.work, {"SBATCH_MALLEABLE": "3"})
    assert not answer.get("job_id")
    assert answer["errors"]  # without job_submit's message, which is dropped (22.05.8, 26.05.5)
