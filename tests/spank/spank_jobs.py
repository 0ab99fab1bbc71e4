"""Jobs that print their environment, and the plugin's variables in it: for the tests beside it."""

from __future__ import annotations

import pwd
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from kept_sandbox import job_directory
from waiting import wait_until

USER = "nobody"
# --export=NONE and the like read the user's login environment, for which `nobody` lacks a shell:
# 26.05 then holds the job (user_env_retrieval_failed_requeued_held), older releases run it.
SHELL_USER = "root"
LIMIT_S = 60
PRINT = r"""#!/bin/bash
print_env() { env -0 | while IFS= read -r -d '' line; do echo "$1 $line"; done; }
export -f print_env
"""
NAMES = {
    "PET_NNODES", "PET_RDZV_BACKEND", "PET_RDZV_ID", "PET_RDZV_ENDPOINT", "PET_LOCAL_ADDR",
    "PET_MAX_RESTARTS", "MALLEABLE_JOB_ID", "MALLEABLE_FRAGMENT", "MALLEABLE_MIN", "MALLEABLE_MAX",
    "MALLEABLE_UNIT", "MALLEABLE_ENGINE", "MALLEABLE_DIR", "MALLEABLE_NOTICE_S",
    "MALLEABLE_FAREWELL_S",
}  # fmt: skip
WITHOUT_TORCHRUN = {name for name in NAMES if not name.startswith("PET_")} | {"MALLEABLE_ADDR"}
BOOKKEEPING = {"MALLEABLE_SET", "MALLEABLE_KEPT", "MALLEABLE_PYTHONPATH"}


def script(sandbox: Any, name: str, body: str, head: str = "") -> Path:
    path = Path(sandbox.work) / f"spank_{name}.sh"
    first, rest = PRINT.split("\n", 1)
    path.write_text(f"{first}\n{head}{rest}{body}\necho END\n")
    path.chmod(0o755)
    return path


def submit(
    sandbox: Any,
    path: Path,
    *options: str,
    env: Optional[Mapping[str, str]] = None,
    user: str = USER,
) -> str:
    """Submit as an ordinary user. Return the array job id."""
    output = f"--output={path.with_suffix('')}.%a.out"
    argv = ["sbatch", "--parsable", "--open-mode=append", output, *options, str(path)]
    return str(sandbox.run(argv, user=user, env=env).stdout.strip())


def release(sandbox: Any, element: str, *changes: str) -> None:
    changes = ("TimeLimit=2", "StartTime=now", *changes)
    sandbox.run(["scontrol", "update", f"jobid={element}", *changes])
    sandbox.run(["scontrol", "release", element])


def wait_for(path: Path, text: str, count: int = 1) -> str:
    """Wait until `text` is in the file `count` times. Return the content."""

    def content() -> str:
        return path.read_text() if path.exists() else ""

    wait_until(lambda: content().count(text) >= count, LIMIT_S, lambda: content()[-3000:])
    return content()


def run_fragment(
    sandbox: Any, path: Path, *options: str, user: str = USER, **env: str
) -> tuple[str, str]:
    """Run the first fragment to its end. Return the array job id and the fragment's log."""
    job = submit(sandbox, path, *options, env=env, user=user)
    release(sandbox, f"{job}_0")
    log = wait_for(path.with_suffix(".0.out"), "\nEND\n")
    sandbox.run(["scancel", job])
    return job, log


def printed(log: str, who: str) -> dict[str, str]:
    """The environment that print_env wrote, or {} if it did not run."""
    return dict(re.findall(rf"^{who} (\w+)=(.*)$", log, flags=re.MULTILINE))


def ours(environment: Mapping[str, str]) -> set[str]:
    return set(environment) & (NAMES | WITHOUT_TORCHRUN | BOOKKEEPING)


def shared_dir(sandbox: Any, job: str, user: str = USER) -> str:
    """The directory that the plugin names."""
    return str(job_directory(sandbox, int(job), pwd.getpwnam(user).pw_uid))


def show(sandbox: Any, job: str) -> dict[str, str]:
    text = sandbox.run(["scontrol", "-o", "show", "job", job]).stdout.splitlines()[0]
    return dict(re.findall(r"(\w+)=(\S*)", text))


def wait_until_held(sandbox: Any, element: str) -> None:
    wait_until(
        lambda: show(sandbox, element)["JobState"] == "PENDING",
        LIMIT_S,
        lambda: show(sandbox, element),
    )
