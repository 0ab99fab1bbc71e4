"""job_submit in Lua, compared with a tick's reading of the mark that it writes."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from datetime import timedelta
from pathlib import Path

from fuzz.peer import RefusedError, ask, start
from fuzz.target import Target
from slurm_hooks.errors import MalleableError
from slurm_hooks.model import Request, Slurm
from slurm_hooks.settings.values import parse as parse_settings
from slurm_hooks.slurm.lua_policy import Rules, Submits, render_policy
from slurm_hooks.slurm.mark import parse_mark

HERE = Path(__file__).resolve().parent
MODULES = HERE.parents[1] / "plugins" / "lua"
PLACE = tempfile.TemporaryDirectory()
LUAS = ("lua5.1", "lua5.3", "lua5.4")
LUA = next(filter(None, map(shutil.which, LUAS)), None)
RULES = Rules(
    Submits(
        {"normal": {"user": 500}, 'o"d\nd': {"account": 9, "all": 0}},
        {"malleable": 'o"d\nd'},
        frozenset({"normal"}),
    )
)
LIMITS = Slurm((22, 5, 8), timedelta(0), timedelta(0), 1001)
_SUBMISSION = (
    "malleable=2-16,unit=2,launch=srun\x1fname=train.sh\x1fexc_nodes=n[1-3,7]\x1fstd_out=o-%a\x1f"
    "script=#!/bin/sh\n#SBATCH --open-mode=append\x1fmail_type=255\x1ftime_limit=10\x1ftime_min=2"
)
_BY_VARIABLE = (
    "variable=0-64,engine=pool\x1fcomment=a run\x1fdependency=afterok:7\x1fstd_out=/dev/null\x1f"
    "admin_comment=site;malleable{min=1};x\x1fnum_tasks=1\x1fntasks_per_node=1\x1fbitflags=9"
)
_PARTS = (
    "malleable=4-64,unit=2gpu\x1ftres_per_node=gres:gpu:a100:8\x1fntasks_per_node=8\x1f"
    "cpus_per_task=6\x1fmin_mem_per_node=81920\x1fcpus_per_tres=gres:gpu:6\x1fmin_nodes=2"
)
_TASKS = (
    "malleable=0-40,unit=4task,engine=pool\x1fcpus_per_task=2\x1fmin_mem_per_cpu=100\x1fshared=1"
)
_CORE = (
    "malleable=2-13,core=4,core_end=finish,sizes=x2,prefer=4,min_run=10m\x1fpartition=main,malleable"
    "\x1fqos=normal\x1faccount=lab\x1ftime_limit=2880"
)
_CORE_GPUS = (
    "malleable=4-64,unit=2gpu,core=4\x1fpartition=main\x1ftres_per_node=gres:gpu:1"
    "\x1fcpus_per_tres=gres:gpu:8\x1fmem_per_tres=gres:gpu:1000"
)
_SITE = """[site]
partitions = ["malleable", "parts"]
part_nodes = "parts"
"""
_CHANGE = "comment=wish{8,1790000000}\x1fname=another\x1fmail_type=1\x1fpriority=0"


@functools.cache
def _driver() -> subprocess.Popen[bytes]:
    policy = Path(PLACE.name) / "policy.lua"
    policy.write_text(render_policy(parse_settings(_SITE), LIMITS, {"root": 0}, RULES))
    assert LUA is not None
    return start(LUA, str(HERE / "controller.lua"), str(MODULES), str(policy))


def _answer(kind: str, text: str) -> list[str]:
    """The written fields. Raises RefusedError."""
    process = _driver()
    data = text.replace("\0", "").encode("utf-8", "surrogateescape")
    ask(process, f"{kind} {data.hex()}\n".encode())
    assert process.stdout is not None
    said, _, rest = process.stdout.readline().decode("ascii").strip().partition(" ")
    if not said:
        _driver.cache_clear()
        raise AssertionError(f"Lua ended with {process.wait(30)}")
    if said == "refused":
        raise RefusedError
    written = bytes.fromhex(rest).decode("utf-8", "surrogateescape")
    assert said == "taken", written
    return written.split("\x1f")


def _submission(damaged: str) -> None:
    """A tick reads the request in the mark, and sees as many held elements."""
    comment, elements, partition, nodes, priority, *size = _answer("submission", damaged)
    if not elements:
        return  # an ordinary job
    parsed = parse_mark(comment)
    assert parsed is not None, comment
    request = parsed[0].request
    assert elements == f"0-{request.fragments - 1}"
    assert float(priority) == 0
    lane = "parts" if request.slot else "malleable"
    if request.core:  # they wait in the user's own partitions
        assert request.lane == lane
        assert not {"malleable", "parts"} & set(partition.split(","))
    else:
        assert partition == lane
    assert float(nodes) == (1 if request.slot else request.unit)
    if request.slot:
        _part(request, *size)
    else:
        assert request.unit * request.fragments == request.max_nodes
    assert 0 <= request.min_nodes <= request.max_nodes
    assert timedelta(0) < request.shortest_hole <= request.lease


def _part(request: Request, gres: str, cpus: str, memory: str) -> None:
    """An element waits with a unit of slots, and there are no more elements than its sizes need."""
    slot, unit = request.slot, request.unit
    assert slot
    assert gres == (f"gres:{slot.gres}:{unit}" if slot.gres else "")
    assert (float(cpus), float(memory)) == (unit * (slot.cpus or 1), unit * slot.memory_mib or 1)
    assert not request.core or (slot.cpus and slot.memory_mib)
    assert 1 <= request.fragments <= request.max_nodes // request.unit


def _change(damaged: str) -> None:
    """A user's change of a fragment is allowed or refused, never an error."""
    _answer("change", damaged)


def _policy(damaged: str) -> None:
    """Lua reads the same partitions for any settings of a site."""
    settings = parse_settings(damaged)
    text = render_policy(settings, LIMITS, {"root": 0}, RULES)
    assert _answer("policy", text) == list(settings.site.partitions)


_SETTINGS = (HERE.parents[1] / "etc" / "malleable.toml").read_text()
JOB_SUBMIT = {
    "a submission": Target(
        (_SUBMISSION, _BY_VARIABLE, _PARTS, _TASKS, _CORE, _CORE_GPUS), _submission, (RefusedError,)
    ),
    "a change": Target((_CHANGE,), _change, (RefusedError,)),
    "a site's policy": Target((_SETTINGS,), _policy, (MalleableError,)),
}
