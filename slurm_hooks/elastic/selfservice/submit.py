"""`malleable submit [sbatch's options] SCRIPT [ARG...]`: submit a malleable job where the site has
installed nothing.
"""

from __future__ import annotations

import os
import pwd
import re
import secrets
import shlex
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from slurm_hooks.elastic.batch.command import ask
from slurm_hooks.elastic.private_directory import DirectoryError, make_private, write_file
from slurm_hooks.elastic.selfservice import lane, script
from slurm_hooks.elastic.selfservice.plan import Plan
from slurm_hooks.protocol.jobpath import write_job_path
from slurm_hooks.protocol.request import GPU, TASK, Request, RequestError, read

USAGE = """\
usage: malleable submit [--dry-run] [--lease=TIME] --malleable=MIN-MAX [sbatch's options] \
SCRIPT [ARG...]

Submit SCRIPT as a malleable job where the site has not installed this software. It runs in a
partition or a QOS from which Slurm takes nodes back. All other options go to sbatch.

  --malleable=MIN-MAX[,unit=gpu][,engine=NAME][,sizes=A,B]
                 the same words as for sbatch where the software is installed
  --lease=TIME   the longest time that a node is used without a break (default 8:00:00)
  --dry-run      print the sbatch line and the batch script, and submit nothing
"""
REFUSED = {
    "--array": "this command makes the array itself, with an element for each node",
    "-a": "this command makes the array itself, with an element for each node",
    "--wrap": "give a script",
    "--malleable-env": "only a site that has installed the software copies environments to nodes",
    "--clusters": "submit it on that cluster",
    "-M": "submit it on that cluster",
    "--nodelist": "each element has a node of its own; keep nodes out with --exclude",
    "-w": "each element has a node of its own; keep nodes out with --exclude",
    "--test-only": "write --dry-run",
    "--time-min": "give the time limit of an element with --lease",
    "--wait": "write `malleable wait JOBID` behind it",
    "-W": "write `malleable wait JOBID` behind it",
}
GPUS = (("--gres",), ("--gpus", "-G"), ("--gpus-per-node",), ("--gpus-per-task",))
VARIABLES = {
    "SBATCH_PARTITION": "--partition",
    "SBATCH_QOS": "--qos",
    "SBATCH_TIMELIMIT": "--time",
    "SBATCH_JOB_NAME": "--job-name",
}
"""What sbatch reads from the environment, and we have to know."""
HINTS = {
    "SubmitJob": "each element counts as a job: write a smaller MAX, or a larger unit",
    "did not answer": "it may have the job: look at `squeue --me`",
}
"""Advice, by a word in a refusal of sbatch."""
LEASE_S = 8 * 3600  # docs/lab/2026-11-29-lease.md
SHORTEST_S = 120
DATABASE_S, SBATCH_S = 60.0, 120.0
MOST_BYTES = 4 << 20  # sbatch's own limit, by default


@dataclass(frozen=True)
class Order:
    """What the user typed: our own options, sbatch's, and the script with its arguments."""

    request: str
    lease: str
    is_dry: bool
    options: tuple[str, ...]
    command: tuple[str, ...]


class SubmitError(Exception):
    """The job is not submitted. The message says why, and what to do."""


def order(words: Sequence[str], env: Mapping[str, str]) -> Order:
    """Read the words behind `malleable submit`. Raises SubmitError."""
    options, command = script.split(words)
    ours = dict.fromkeys(("--malleable", "--lease"), "")
    others, is_dry, rest = [], False, list(options)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if name in ours:
            ours[name] = value if equals else rest.pop(0) if rest else ""
        elif word == "--dry-run":
            is_dry = True
        else:
            others.append(word)
    if not command:
        raise SubmitError("name a batch script: malleable submit --malleable=2-16 train.sh")
    request = ours["--malleable"] or env.get("SBATCH_MALLEABLE", "")
    return Order(request, ours["--lease"], is_dry, tuple(others), tuple(command))


def submit(words: Sequence[str], env: Mapping[str, str]) -> int:
    """Submit the job, or print what would be submitted. Return the exit code."""
    if not words or "--help" in words[:1] or "-h" in words[:1]:
        sys.stdout.write(USAGE)
        return 0 if words else os.EX_USAGE
    try:
        return _submit(order(words, env), env)
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        return _failed(f"{what} (in {os.environ.get('PWD', '?')})")
    except (SubmitError, RequestError, script.ScriptError, lane.LaneError, DirectoryError) as error:
        return _failed(str(error))


def _failed(why: str) -> int:
    sys.stderr.write(f"malleable submit: {why}\n")
    return os.EX_USAGE


def _submit(asked: Order, env: Mapping[str, str]) -> int:
    path = Path(asked.command[0])
    text = _text(path)
    own = script.read(text)
    options = [*own.options, *_of_environment(env), *asked.options]
    request = _request(asked.request or own.request, options)
    if request.engine.by_torchrun and request.largest > 1 and (copy := script.copies(text)):
        raise SubmitError(
            f"{copy}: each element would train a separate copy; start it with torchrun instead, as "
            "in `torchrun train.py`, or write --malleable=1-1"
        )
    cluster, where = _site(options, request)
    lease_s = _lease_s(asked.lease, script.value(options, "--time", "-t"), where.most_s)
    name = script.value(options, "--job-name", "-J") or path.name
    if not name.isprintable():
        raise SubmitError(f"{name!r} is no name for a job; give another with --job-name")
    line = [f"--job-name={name}", *asked.options, *_ours(request, lease_s, options, where)]
    place = _place(script.value(options, "--chdir", "-D"))
    job_path = place / "jobpath"
    folder = place / f"plan-{secrets.token_hex(6)}"  # no later submission changes it
    plan = Plan(
        script=str(folder / "script"),
        interpreter=own.interpreter,
        request=request.written,
        cluster=cluster,
        lease_s=lease_s,
        job_path=str(job_path if asked.is_dry else _lay_out(job_path)),
    )
    batch = script.batch_script(own, sys.executable, plan.job_path, str(folder / "plan.json"))
    if asked.is_dry:
        said = shlex.join(["sbatch", *line, "BATCH-SCRIPT", *asked.command[1:]])
        sys.stdout.write(f"{said}\n\n{batch}\n")
        return 0
    _write(folder, {"script": text, "plan.json": plan.text, "batch": batch})
    sbatch = ("sbatch", "--parsable", *line, str(folder / "batch"), *asked.command[1:])
    said, why = ask(*sbatch, limit_s=SBATCH_S)
    if why:
        hints = (hint for word, hint in HINTS.items() if word in why)
        raise SubmitError("\n".join([why, *hints]))
    print(_said(said.strip(), asked.options, request, where, lease_s))
    return 0


def _request(words: str, options: Sequence[str]) -> Request:
    """Return the request, if it goes with these options for sbatch. Raises SubmitError,
    RequestError.
    """
    if name := script.has(options, *REFUSED):
        raise SubmitError(f"{name}: {REFUSED[name]}")
    if re.match(r"R?B:(SIG)?(TERM|15)\b", script.value(options, "--signal")):
        raise SubmitError("--signal: Slurm ends jobs with TERM; write --signal=B:USR1@60")
    if not words:
        raise SubmitError("say how many nodes: malleable submit --malleable=2-16 SCRIPT")
    request = read(words)
    for names in GPUS:
        given = script.value(options, *names)
        if request.kind == GPU and "gpu" in f"{names[0]}{given}" and given:
            raise SubmitError(
                f"{names[0]}={given}: unit=gpu asks for the GPUs itself; leave it out"
            )
    return request


def _write(folder: Path, files: Mapping[str, str]) -> None:
    """Write files for this user alone. Raises OSError, DirectoryError."""
    make_private(folder)
    for name, text in files.items():
        data = text.encode("utf-8", "surrogateescape")
        write_file(folder, name, data, f"{name}.{os.getpid()}")


def _lay_out(link: Path) -> Path:
    """Return the directory that the job has in its PYTHONPATH, which no later version changes. A
    directory that another user has left there is refused. Raises SubmitError, DirectoryError,
    OSError.
    """
    for directory in (link.parent.parent, link.parent):
        make_private(directory)
    final = write_job_path(link).resolve()
    about = final.stat()
    if about.st_uid != os.geteuid() or about.st_mode & 0o022:
        raise SubmitError(f"{final} can be changed by another user; remove {link.parent}")
    return final


def _text(path: Path) -> str:
    """Return the text of a batch script. Raises OSError, SubmitError."""
    if not path.is_file():
        raise SubmitError(f"{path} is not a file")
    data = path.read_bytes()
    if len(data) > MOST_BYTES:
        raise SubmitError(f"{path} is larger than {MOST_BYTES >> 20} MiB, which sbatch refuses")
    return data.decode("utf-8", "surrogateescape")


def _of_environment(env: Mapping[str, str]) -> list[str]:
    return [f"{option}={env[name]}" for name, option in VARIABLES.items() if env.get(name)]


def _site(options: Sequence[str], request: Request) -> tuple[str, lane.Lane]:
    """Return the cluster, and where the job will run. Raises SubmitError, LaneError."""
    settings = lane.config(_asked(lane.CONFIG))
    lane.check_preemption(settings)
    lane.check_size(request.elements, settings)
    known, qos = lane.partitions(_asked(lane.PARTITIONS)), ""
    most_s = lane.NEVER_S
    names = lane.chosen(script.value(options, "--partition", "-p"), known)
    if settings["PreemptType"] == "preempt/qos":
        qos = script.value(options, "--qos", "-q")
        if not qos:
            user = pwd.getpwuid(os.getuid()).pw_name
            account = script.value(options, "--account", "-A")
            qos = (_asked(lane.default_qos(user, account)).split() or ["normal"])[0]
        most_s = lane.longest_of_qos(qos, _asked(lane.QOS), settings)
    else:
        nodes = lane.nodes_of(_asked(lane.NODES))
        lane.check_partitions(names, known, nodes, settings)
    most_s = min(most_s, lane.longest(names, known))
    return settings["ClusterName"], lane.Lane(names, qos, most_s)


def _asked(command: Sequence[str]) -> str:
    said, why = ask(*command, limit_s=DATABASE_S)
    if why:
        raise SubmitError(why)
    return said


def _lease_s(given: str, limit: str, most_s: int) -> int:
    """Return the time limit of an element. Raises SubmitError."""
    wanted_s = lane.seconds(given) if given else LEASE_S
    if wanted_s == lane.NEVER_S:
        raise SubmitError(f"--lease={given} is no time; write for example --lease=30:00")
    lease_s = min(wanted_s, lane.seconds(limit), most_s) // 60 * 60  # Slurm counts minutes
    if lease_s < SHORTEST_S:
        raise SubmitError(f"{lane.slurm_time(lease_s)} is too short for a lease: give 2 minutes")
    return lease_s


def _place(chdir: str) -> Path:
    """Return the directory for our files: below the working directory of the job, or below the home
    directory if others can change the former. Raises SubmitError, OSError.
    """
    work = (Path(chdir) if chdir else Path.cwd()).resolve()
    for place in (work, Path(os.path.expanduser("~")).resolve()):
        if not _open_to_others(place):
            return place / f".malleable-{os.getuid()}" / "submitted"
    raise SubmitError(
        f"others can rename what is in {_open_to_others(work)}, and so change what your job runs: "
        "submit from a directory where only you can write"
    )


def _open_to_others(place: Path) -> Optional[Path]:
    """Return a directory on the way to this one in which others can rename files. Raises
    OSError.
    """
    for directory in (place, *place.parents):
        about = directory.stat()
        is_open = about.st_mode & 0o022 and not about.st_mode & stat.S_ISVTX
        if is_open or about.st_uid not in (0, os.getuid()):
            return directory
    return None


def _ours(request: Request, lease_s: int, options: Sequence[str], where: lane.Lane) -> list[str]:
    """Return the options for sbatch that win over the user's."""
    line = [
        f"--partition={','.join(where.partitions)}",  # those that were checked
        *([f"--qos={where.qos}"] if where.qos else []),
        f"--array=0-{request.elements - 1}",
        "--nodes=1",
        "--requeue",
        "--open-mode=append",
        f"--time={lane.slurm_time(lease_s)}",
    ]
    if request.kind == TASK:
        line.append(f"--ntasks={request.unit}")
    elif script.value(options, "--ntasks", "-n"):
        line.append("--ntasks=1")
    if request.kind == GPU:
        line.append(f"--gpus-per-node={request.unit}")
    if not request.kind:
        line.append("--exclusive")
    return line


def _said(
    job: str, options: Sequence[str], request: Request, where: lane.Lane, lease_s: int
) -> str:
    if "--parsable" in options:
        return job
    return (
        f"Submitted batch job {job.partition(';')[0]}: {request.text} of the partition "
        f"{','.join(where.partitions)}, each for at most {lane.slurm_time(lease_s)} at a time"
    )
