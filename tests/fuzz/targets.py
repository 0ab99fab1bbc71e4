"""The fuzzed parsers: each reads text that a user, a file, a peer or Slurm has written.

`read` raises only exceptions of `refuses`, and asserts the properties of all accepted text.
"""

from __future__ import annotations

import math
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from ClusterShell.NodeSet import NodeSetParseError

from captured_slurm import CAPTURED, SITUATIONS, VERSIONS, as_asked_today, recorded
from fuzz import plugin, tars
from fuzz.job_submit import JOB_SUBMIT, LUA
from fuzz.kept import KEPT
from fuzz.peer import RefusedError
from fuzz.target import Target
from slurm_hooks.doctor.gather.slurm import read_slurm
from slurm_hooks.elastic.batch import expected, wish
from slurm_hooks.elastic.engines.torchrun import flags
from slurm_hooks.elastic.liveness import absent
from slurm_hooks.elastic.rendezvous.causes import causes_in
from slurm_hooks.elastic.rendezvous.codec import StateFormatError, decode, encode
from slurm_hooks.elastic.rendezvous.state import Member, Round, State
from slurm_hooks.errors import MalleableError
from slurm_hooks.hooks.preposition.content import NotLaid
from slurm_hooks.model import FragmentId
from slurm_hooks.model.snapshot import file as snapshots
from slurm_hooks.protocol import comment, tasks
from slurm_hooks.replay.logs.idle_csv import read_idle
from slurm_hooks.replay.logs.log_lines import Log
from slurm_hooks.replay.logs.sacct import read_sacct
from slurm_hooks.replay.logs.slots_csv import read_slots
from slurm_hooks.replay.logs.swf import read_swf
from slurm_hooks.settings.values import parse as parse_settings
from slurm_hooks.slurm import accounts, groups, jobs, mark, qos, remarks, telemetry, text
from slurm_hooks.slurm import wish as slurm_wish
from slurm_hooks.slurm.cluster import parse_cluster
from slurm_hooks.slurm.gateway import observe
from slurm_hooks.slurm.rows import RECORD_END, row_of

ROOT = Path(__file__).resolve().parents[2]
PLACE = tempfile.TemporaryDirectory()
NOW = datetime(2026, 3, 1, tzinfo=timezone.utc)
PLAIN = "malleable{min=1,max=6,unit=1,engine=torchrun,frags=6,lease=120,hole=60}"
FULL = (
    "site;malleable{min=1,max=6,unit=1,engine=torchrun,core=2,end=finish,lane=low,launch=srun,"
    "frags=6,lease=120,hole=60,name=a.sh,not=n(1-3+7),allow=1+2+6,prefer=2,keep=600,at=1800000000,run=2,leave=1800000009,fails=1,gone=1,"
    "avoid=n1@1800000000+n2@1800000001,unfit=n3@1800000000,sizes=3@1800000000,vain=2,why=Resources,prio=7,for=12_3,"
    "apart=1,hold=1,done=1,idle=1800000000,stop=x}more"
)


def _captured(kind: str) -> tuple[str, ...]:
    paths = (CAPTURED / v / f"{s}.{kind}.txt" for v in VERSIONS for s in SITUATIONS)
    return tuple(path.read_text() for path in paths if path.exists())


QUEUES = tuple(as_asked_today(damaged) for damaged in _captured("squeue"))
CLUSTERS = _captured("scontrol")
_RUNNING = as_asked_today((CAPTURED / "22.05" / "running.squeue.txt").read_text())
BEFORE = next(
    f"{row}{RECORD_END}\n" for row in _RUNNING.split(f"{RECORD_END}\n") if "_0|RUNNING|" in row
)


def _queue(damaged: str) -> None:
    """For any content of a row, the row before it is read as usual."""
    seen = jobs.parse_jobs(BEFORE + damaged, ["malleable"])
    alone = jobs.parse_jobs(BEFORE, ["malleable"])
    (kept,) = (f for job in alone.malleable for f in job.fragments)
    same = [f for job in seen.malleable for f in job.fragments if f.id == kept.id]
    assert kept in same or not same, kept.id  # a second row of its name leaves the job alone


def _comment(damaged: str) -> None:
    """Users' free text is bounded and finite."""
    read = comment.parse(damaged)
    jobs.said_in(read, 0)
    assert read.loss is None or 0 <= read.loss.seconds < 1e6
    progress = telemetry.parse_progress(read.progress)
    assert progress is None or len(progress.rates) <= 64
    telemetry.parse_progress(damaged)
    noted = replace(read, remark="an entry of ours").text
    assert noted.count("remark{an entry of ours}") == 1
    assert comment.parse(noted).remark == "an entry of ours"
    asked = slurm_wish.parse_wish(damaged)
    assert asked is None or 0 <= asked.nodes <= 65_535


def _progress(damaged: str) -> None:
    progress = telemetry.parse_progress(damaged)
    assert progress is None or len(progress.rates) <= comment.SIZES
    for rate in progress.rates if progress else ():
        assert 1 <= rate.nodes <= 99_999
        assert 0 < rate.per_s <= 1e15
        assert all(map(math.isfinite, (rate.per_s, rate.error, rate.batch)))


def _remarks(damaged: str) -> None:
    said = remarks.parse_remarks(damaged)
    assert len(said) <= remarks.COUNT
    assert all(len(t) <= comment.REMARK_WIDTH and t.isascii() and t.isprintable() for t in said)


def _mark(damaged: str) -> None:
    """A mark of another writer is rewritten in our own form, which is then stable."""
    parsed = mark.parse_mark(damaged)
    if parsed is not None:
        written = mark.format_mark(*parsed)
        again = mark.parse_mark(written)
        assert again is not None
        assert mark.format_mark(*again) == written


def _state(damaged: str) -> None:
    state = decode(damaged)
    assert decode(encode(state)) == state


def _settings(damaged: str) -> None:
    parse_settings(damaged)


def _snapshot(damaged: str) -> None:
    path = Path(PLACE.name) / "snapshot"
    path.write_bytes(damaged.encode("utf-8", "surrogateescape"))
    snapshots.read(path)


def _hosts(damaged: str) -> None:
    names = text.expand(damaged)
    assert len(names) <= text.MOST_NAMES


def _elements(damaged: str) -> None:
    """An answer names the wanted agents in order, including the asking agent, or no agent."""
    facts = expected.parse(damaged, 0)
    assert list(facts.wanted) == sorted(facts.wanted)
    assert len(facts.wanted) <= expected.MOST
    assert not facts.wanted or 0 in facts.wanted
    assert min(facts.starts, facts.ends) >= 0
    absent.running(damaged, 1.8e9)


def _flags(damaged: str) -> None:
    """The words after the script do not belong to torchrun."""
    words, ours = damaged.split(" "), {"PET_RDZV_BACKEND": "malleable"}
    flags.overrides(["torchrun", *words], {})
    assert flags.overrides(["torchrun", "train.py", *words], ours) == ""


def _task(damaged: str) -> None:
    task = tasks.parse(damaged)
    assert task is None or tasks.parse(task.name) == task


def _in_file(read: Callable[[Log], object]) -> Callable[[str], object]:
    def body(damaged: str) -> object:
        path = Path(PLACE.name) / "log"
        path.write_bytes(damaged.encode("utf-8", "surrogateescape"))
        return read(Log(path, skip_bad=False))

    return body


def _places(damaged: str) -> None:
    for fragment, place in groups.parse_places(damaged).items():
        assert isinstance(fragment, FragmentId)
        assert len(place.excluded | place.nodes) <= 2 * text.MOST_NAMES


SACCT = (
    "JobIDRaw|Submit|Start|End|NodeList|AllocTRES\n"
    "1|2024-01-01T00:00:00|2024-01-01T00:00:00|2024-01-01T01:00:00|n[1-3]|cpu=6,gres/gpu=3,mem=1.5G\n"
)
QOS = "normal||cluster||||\nscavenge|normal|requeue|10|5||OverPartQOS\n"
SNAPSHOTS = tuple(
    snapshots.snapshot_text(observe(recorded(name), ["malleable"])) for name in SITUATIONS[:4]
)
_ME = Member("a" * 16, 1, 0, "1.0", "n1", ends=9000, ping_port=4000)
_ROUND = Round(1, ("a" * 16,), (1,), "n1", 5000, causes_in("lost 3"), 1_800_000_000)
STATES = tuple(
    encode(state)
    for state in (
        State(run="7"),
        State(run="7", revision=3, members=(_ME,), round=_ROUND, rounds=1, wanted=(0, 1)),
    )
)
TARGETS: Mapping[str, Target] = {
    **KEPT,
    **(JOB_SUBMIT if LUA else {}),
    "squeue": Target(QUEUES, _queue),
    "squeue row": Target(tuple(q.split(RECORD_END)[0] for q in QUEUES if q), row_of),
    "scontrol": Target(CLUSTERS, parse_cluster, (MalleableError,)),
    "scontrol for the doctor": Target(
        CLUSTERS, lambda damaged: read_slurm(damaged, ["malleable"]), (MalleableError,)
    ),
    "comment": Target(
        (
            "trained{3};h{600}r;wish{8,1790000000};progress{s1,1:9/1/9,2:7/0/9};remark{x}",
            "finished{0}",
            "wish{0,1}",
        ),
        _comment,
    ),
    "progress": Target(
        (
            "progress{s1790000000,8:1234/12/256,4:700/9/128/5400,p20/12//40,y12}",
            "progress{n5,1:2.5e-3/30/0}",
        ),
        _progress,
    ),
    "mark": Target((PLAIN, FULL), _mark, (ValueError,)),
    "host list": Target(
        ("n1", "n[1-3,007-012],x-a.b", "r[1-2]c[01-03]"), _hosts, (NodeSetParseError,)
    ),
    "time": Target(("1800000000", "N/A", ""), text.parse_time, (ValueError,)),
    "limit": Target(("1-02:03:04", "10:00", "UNLIMITED"), text.parse_limit, (ValueError,)),
    "memory": Target(("1000M", "62.50G", "5"), text.parse_memory),
    "gres": Target(("gpu:a100:4(S:0-1),tmp:1", "gres/gpu:2"), text.parse_gres),
    "places": Target(("7_1|n[1-2]|\n7_2||n3\n",), _places),
    "accounts": Target(("7|physics    |normal |\n",), accounts.parse_charges),
    "qos": Target((QOS,), qos.parse_qos, (MalleableError,)),
    "remarks": Target(("trained{1};remark{loss 3}",), _remarks),
    "plugin": Target(
        (
            "2-16,unit=2,engine=torchrun,launch=srun",
            "2-16,core=4,core_end=finish,sizes=2,4,16,prefer=4,min_run=10m",
            "2-13,sizes=x2",
            "0-64,engine=pool",
            "4-64,unit=2gpu,launch=srun",
            "0-64,unit=task,engine=pool",
            "pythonpath=/opt/malleable",
            "dir=%w/.malleable-%U/%C/%A",
            "PYTHONPATH=/a:/b\nMALLEABLE_SET=PYTHONPATH:0123456789abcdef\nPATH=/bin",
        ),
        plugin.read,
        (RefusedError,),
    ),
    "settings": Target(
        ((ROOT / "etc" / "malleable.toml").read_text(),), _settings, (MalleableError,)
    ),
    "snapshot": Target(SNAPSHOTS, _snapshot, (MalleableError,)),
    "state of a job": Target(STATES, _state, (StateFormatError,)),
    "an agent's squeue": Target(
        ("0|RUNNING|0|1|1800000000|1800000600|None|a\n1|PENDING|9|1|N/A|N/A|Resources|(null)\n",),
        _elements,
    ),
    "torchrun's flags": Target(
        ("--nnodes 2 --rdzv_backend=c10d -t3 train.py --x", "--standalone -m train", "- -- -m"),
        _flags,
    ),
    "wish file": Target(
        ("8", "0"), lambda damaged: wish.read_nodes(damaged, "16"), (wish.WishError,)
    ),
    "name of a task": Target(("17.0.0.todo", "17.2.1.run.7_3-0-abcdef", "17.0.0.done"), _task),
    "tar": Target(
        tuple(map(tars.sound, (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT))),
        tars.read_bytes,
        (NotLaid,),
    ),
    "members of a tar": Target(tars.MEMBERS, tars.read_members, (NotLaid,)),
    "swf": Target(
        ("; MaxNodes: 8\n1 0 0 10 4 -1 -1 4 20 -1 1 1 1 -1 1 -1 -1 -1\n",),
        _in_file(read_swf),
        (MalleableError,),
    ),
    "sacct": Target((SACCT,), _in_file(read_sacct), (MalleableError,)),
    "idle slots": Target(
        ("node,slot,idle_from_s,idle_to_s\na,0,0,100\n",), _in_file(read_slots), (MalleableError,)
    ),
    "idle nodes": Target(
        ("node,column,idle_from_s,idle_to_s\na,0,0,100\n",), _in_file(read_idle), (MalleableError,)
    ),
}
