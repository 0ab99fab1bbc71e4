"""The engines that `benchmarks/rescale.py` compares: a table with an entry for each.

An entry has the request of its job and the commands of its batch script. It does not decide the
job's events. A training is called with the directory for its notes, which rescale_steps.py reads.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from parts.rescale_steps import Begins

HERE = Path(__file__).resolve().parents[1]
TRAININGS = HERE / "trainings"
SIZES = "1-8"  # more than the number of nodes, whose future is unknown


@contextmanager
def nothing() -> Iterator[dict[str, str]]:
    """Most engines need no program beside their job."""
    yield {}


@contextmanager
def safe_store() -> Iterator[dict[str, str]]:
    """A rendezvous store on a host that is never lost: this process."""
    from torch.distributed import TCPStore  # noqa: PLC0415  (only stock torchrun needs it)

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    yield {"PET_RDZV_ENDPOINT": f"127.0.0.1:{store.port}"}
    del store


def rank_zero(work: Path) -> int:
    """The fragment that is rank 0 of the newest round."""
    return [begin["fragment"] for begin in Begins(work).read() if begin["rank"] == 0][-1]


def lighthouse(work: Path) -> int:
    """The fragment that keeps the lighthouse of the replica groups."""
    (path,) = work.glob(".malleable-*/*/*/rounds.jsonl")
    return int(json.loads(path.read_text().splitlines()[-1])["lighthouse"])


@dataclass(frozen=True)
class Engine:
    """`request` is the value of --malleable. Without it the job is a plain array of held elements.

    `needs` are the programs and modules without which it is left out. They belong to a separate
    Python in build/engines or $ENGINES_PYTHON. With `has_own_tmp` each fragment has a directory for
    temporary files, as a node has. With `is_pool` fragments do tasks instead of steps. `beside`
    runs as long as the job does and gives variables that its script exports. `first` names the
    fragment on which the others depend.
    """

    name: str
    request: str = ""
    starter: tuple[str, ...] = ("torchrun",)
    training: str = "rescale_train.py"
    variables: Mapping[str, str] = field(default_factory=dict)
    beside: Callable[[], AbstractContextManager[dict[str, str]]] = nothing
    first: Callable[[Path], int] = rank_zero
    is_ours: bool = True
    is_pool: bool = False
    has_own_tmp: bool = False
    needs: tuple[str, ...] = ()


# Stock torchrun gets the best it can have. Without TORCH_DISABLE_SHARE_RDZV_TCP_STORE the loss of
# rank 0's node loses the job.
STOCK = {
    "PET_NNODES": SIZES.replace("-", ":"),
    "PET_RDZV_BACKEND": "c10d",
    "PET_RDZV_ID": "rescale",
    "PET_RDZV_CONF": "is_host=false",
    "PET_LOCAL_ADDR": "127.0.0.1",
    "PET_MAX_RESTARTS": "1000",
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
}

_BUILT = HERE.parent / "build" / "engines" / "bin" / "python"
OTHER = os.environ.get("ENGINES_PYTHON") or str(_BUILT if _BUILT.exists() else sys.executable)
RUN = ("malleable", "run", "--", OTHER)

ENGINES = {
    "malleable": Engine("torchrun engine", SIZES),
    "torchft": Engine(
        "torchft engine",
        f"{SIZES},engine=torchft",
        training="rescale_train_torchft.py",
        variables={"RUST_LOG": "error"},
        first=lighthouse,
    ),
    "command": Engine(
        "command engine",
        f"{SIZES},engine=command",
        starter=RUN,
        training="rescale_train_command.py",
    ),
    "mpi": Engine(
        "mpi engine (Open MPI)",
        f"{SIZES},engine=mpi",
        starter=(*RUN[:-1], "mpirun.openmpi", *RUN[-1:]),
        training="rescale_train_mpi.py",
        variables={
            "OMPI_MCA_btl_tcp_if_include": "lo",
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        },
        has_own_tmp=True,
        needs=("mpirun.openmpi", "mpi4py"),
    ),
    "tensorflow": Engine(
        "tensorflow engine",
        f"{SIZES},engine=tensorflow",
        starter=RUN,
        training="rescale_train_tensorflow.py",
        variables={"TF_CPP_MIN_LOG_LEVEL": "3"},
        needs=("tensorflow",),
    ),
    "pool": Engine(
        "pool engine",
        f"{SIZES.replace('1', '0', 1)},engine=pool",
        starter=RUN,
        training="rescale_train_pool.py",
        is_pool=True,
    ),
    "cold": Engine("without warm workers", SIZES, variables={"MALLEABLE_WARM": "0"}, is_ours=False),
    "stock": Engine("stock torchrun", variables=STOCK, beside=safe_store, is_ours=False),
}


def lacking(engine: Engine) -> list[str]:
    """The missing programs and modules."""
    return [name for name in engine.needs if not (shutil.which(name) or _imports(name))]


def _imports(module: str) -> bool:
    """Tell whether the Python of gangs has it."""
    words = [OTHER, "-c", f"import importlib.util as u; u.find_spec({module!r}) or exit(1)"]
    return subprocess.run(words, check=False, capture_output=True, timeout=60).returncode == 0


def script(engine: Engine, work: Path, added: Mapping[str, str]) -> str:
    """The batch script of a job that trains in `work`. It notes its start."""
    quiet = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    exports = {**quiet, **engine.variables, **added}
    lines = [f"export {name}={shlex.quote(value)}" for name, value in exports.items()]
    if engine.has_own_tmp:
        lines.append('export TMPDIR=$PWD/tmp-$SLURM_ARRAY_TASK_ID; mkdir -p "$TMPDIR"')
    words = [*engine.starter, str(TRAININGS / engine.training), str(work)]
    return "\n".join(
        [
            "#!/bin/bash",
            'echo "$(date +%s.%N) $SLURM_ARRAY_TASK_ID" >>starts.log',
            f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH",
            *lines,
            f"exec {shlex.join(words)}",
            "",
        ]
    )
