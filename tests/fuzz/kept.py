"""Files and messages that this software writes for itself, and that others may have damaged."""

from __future__ import annotations

import json
import math
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import astuple
from datetime import datetime, timezone
from pathlib import Path

from fuzz.target import Target
from slurm_hooks.elastic import observed, speed
from slurm_hooks.elastic.engines import kin
from slurm_hooks.elastic.engines.gang import channel
from slurm_hooks.elastic.engines.gang.secret import answer
from slurm_hooks.history.harvest.values import Promise, Seen, SeenRun
from slurm_hooks.model import FragmentId, Why
from slurm_hooks.model.snapshot.codec import from_data, to_data
from slurm_hooks.protocol import map_directory
from slurm_hooks.tick import switch

PLACE = tempfile.TemporaryDirectory()
NOW = datetime(2026, 3, 1, tzinfo=timezone.utc)
SECRET, CHALLENGE = b"s" * 64, b"c" * 32
_NODES = frozenset({"n1", "n2"})
_SEEN = Seen(
    at=NOW,
    runs=(SeenRun(FragmentId(7, 0), 1, _NODES, NOW, NOW, "lease"),),
    waiting={7: {1: 0}},
    idle=((Why.NO_JOB, 3),),
    promises=(Promise("12_3", NOW, 4.5),),
)


def _seen(damaged: str) -> None:
    seen = from_data(Seen, json.loads(damaged))
    assert from_data(Seen, json.loads(json.dumps(to_data(seen)))) == seen


def _numbers(damaged: str) -> None:
    """Add a right checksum. Without it every text would be refused at once."""
    data = damaged.encode("utf-8", "surrogateescape")[:48].ljust(48, b"\0")
    whole = (data + zlib.crc32(data).to_bytes(4, "little")).ljust(64, b"\0")
    for seen in (speed.unpack(whole), observed.unpack(whole)):
        assert seen is None or all(map(math.isfinite, astuple(seen)))
    assert speed.unpack(data) is observed.unpack(data) is None


def _order(damaged: str) -> None:
    order = map_directory.read_order(_file("map.json", damaged).parent)
    assert all(isinstance(word, str) for word in order.words("x"))


def _request(damaged: str) -> None:
    line = damaged.encode("utf-8", "surrogateescape")
    asked = channel.request_in(line, SECRET, CHALLENGE)
    assert asked is None or asked["answer"] == answer(SECRET, CHALLENGE)


def _reason(damaged: str) -> None:
    off = switch.find_off(str(_file(switch.NAME, damaged).parent))
    assert off is not None
    assert len(off.reason) <= switch.LONGEST
    assert "\n" not in off.reason


def _process(damaged: str) -> None:
    """The kernel's line, with a name that the process chose."""
    name = damaged.replace("\0", "")[:15]
    line = f"7 ({name}) S 1 7 7 0 -1 4194304 " + " ".join(map(str, range(40))) + "\n"
    place = _file("stat", line, "7").parent
    (process,) = kin.living(place.parent)
    assert (process.pid, process.parent, process.is_zombie) == (7, 1, False)


def _file(name: str, text: str, directory: str = "") -> Path:
    path = Path(PLACE.name) / (directory or name.replace(".", "-")) / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return path


KEPT: Mapping[str, Target] = {
    "what a tick remembers": Target(
        (json.dumps(to_data(_SEEN)),), _seen, (ValueError, RecursionError)
    ),
    "a worker's numbers": Target(("\x01" * 48, "\0" * 44 + "?@@@"), _numbers),
    "map.json": Target(
        ('{"command": ["a", "{}"], "retries": 2, "keep_going": true, "tasks": 9}',),
        _order,
        (map_directory.MapError,),
    ),
    "an agent's request": Target(
        (f'{{"what": "gather", "answer": "{answer(SECRET, CHALLENGE)}", "round": [1, "n1"]}}',),
        _request,
        (ValueError,),
    ),
    "the switch": Target(("maintenance until noon\n",), _reason),
    "a process": Target(("python", "a) R 1 (b"), _process),
}
