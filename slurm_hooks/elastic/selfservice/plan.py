"""What `malleable submit` has decided, for the elements of the job: a JSON file beside the copy of
the user's script, and the environment that an element makes of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from slurm_hooks.elastic.private_directory import read_file
from slurm_hooks.protocol.engines import BACKENDS
from slurm_hooks.protocol.request import GPU, REQUEST_VARIABLE, SELF_VARIABLE, TASK, Request, read

MOST_BYTES = 1 << 16
RESTARTS = "1000"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # a shell's without one


@dataclass(frozen=True)
class Plan:
    """`script` is the copy of the user's, and `interpreter` the words of its first line. `lease_s`
    is the time limit of an element. `job_path` is the directory for PYTHONPATH."""

    script: str
    interpreter: tuple[str, ...]
    request: str
    cluster: str
    lease_s: int
    job_path: str

    @property
    def wanted(self) -> Request:
        """The request as a value."""
        return read(self.request)

    def directory(self, work: Path, job: int) -> Path:
        """The directory that the elements of a job share, from the job's working directory."""
        return work / f".malleable-{os.getuid()}" / self.cluster / str(job)

    @property
    def text(self) -> str:
        """The written form."""
        return json.dumps(asdict(self), indent=1) + "\n"


def load(path: Path) -> Plan:
    """Read a plan. Raises OSError, DirectoryError, ValueError."""
    fields = json.loads(read_file(path.parent, path.name, MOST_BYTES))
    return Plan(**{**fields, "interpreter": tuple(fields["interpreter"])})


def environment(plan: Plan, env: Mapping[str, str], shared: Path) -> dict[str, str]:
    """Return the environment of the user's script in an element, as the plugin would set it.
    `shared` is the job's directory.
    """
    request, job = plan.wanted, shared.name
    words = {
        REQUEST_VARIABLE: request.written,
        SELF_VARIABLE: env["SLURM_JOB_ID"],
        "MALLEABLE_JOB_ID": job,
        "MALLEABLE_FRAGMENT": env["SLURM_ARRAY_TASK_ID"],
        "MALLEABLE_MIN": str(request.smallest),
        "MALLEABLE_MAX": str(request.largest),
        "MALLEABLE_UNIT": str(request.unit),
        "MALLEABLE_ENGINE": request.engine.name,
        "MALLEABLE_DIR": str(shared),
        "MALLEABLE_PYTHONPATH": plan.job_path,
        "PYTHONPATH": _joined(plan.job_path, env.get("PYTHONPATH", "")),
        "PATH": _joined(f"{plan.job_path}/bin", env.get("PATH") or PATH),
    }
    own = _torchrun(request, job, str(shared)) if request.engine.by_torchrun else {}
    return {**env, **words, **own}


def _torchrun(request: Request, job: str, shared: str) -> dict[str, str]:
    """torchrun reads PET_<OPTION> for every option missing from its command line."""
    fewest = 1 if request.kind else request.fewest
    sizes = (fewest, request.elements) if request.engine.is_gang else (1, 1)
    return {
        "PET_NNODES": f"{sizes[0]}:{sizes[1]}" if sizes[0] < sizes[1] else str(sizes[0]),
        "PET_RDZV_BACKEND": BACKENDS[1],
        "PET_RDZV_ID": job,
        "PET_RDZV_ENDPOINT": shared,
        "PET_MAX_RESTARTS": RESTARTS,
        **({"PET_NPROC_PER_NODE": "gpu"} if request.kind == GPU else {}),
        **({"PET_NPROC_PER_NODE": str(request.unit)} if request.kind == TASK else {}),
    }


def _joined(first: str, rest: str) -> str:
    return f"{first}:{rest}" if rest else first
