"""Build the archive for a bug report from facts, without the names of the site.

Pure, except `write`. It never contains a user's script, output or environment, or names of jobs.
"""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union

from slurm_hooks.doctor.anonymous import Anonymiser
from slurm_hooks.doctor.facts import Accounting, Facts, SlurmSays, Unread
from slurm_hooks.model import Snapshot
from slurm_hooks.model.snapshot.codec import to_data
from slurm_hooks.model.snapshot.file import snapshot_text

_SECRET = re.compile(r"pass|key|token|secret", re.IGNORECASE)
_HOSTS = re.compile(r"Host|Addr|Machine")
_USERS = re.compile(r"User$")
_WORDS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
FOLDER = "malleable-bundle"


@dataclass(frozen=True)
class Part:
    """A file of the bundle. `text` is Unread if it could not be made."""

    name: str
    what: str
    text: Union[str, Unread]


@dataclass(frozen=True)
class Seen:
    """The sources of a bundle."""

    facts: Facts
    report: Mapping[str, Any]  # of doctor
    snapshot: Union[Snapshot, Unread]
    versions: Mapping[str, str]
    journal: Union[str, Unread]


def parts(seen: Seen, salt: bytes) -> tuple[Part, ...]:
    """The files, without names. The last file describes the others."""
    hide = Anonymiser(salt, names_of(seen))
    slurm, snapshot, journal = seen.facts.slurm, seen.snapshot, seen.journal
    if isinstance(slurm, Unread):
        journal = Unread("without Slurm's answer its names cannot be replaced")
    every = (
        Part(
            "versions.json",
            "versions of this package, Python, Slurm, the system",
            _json(seen.versions),
        ),
        Part(
            "settings.json", "the settings in force", _json(hide.data(to_data(seen.facts.settings)))
        ),
        Part("doctor.json", "all findings of `malleable doctor`", _json(hide.data(seen.report))),
        Part(
            "slurm-config.txt",
            "scontrol show config, without passwords and keys",
            slurm if isinstance(slurm, Unread) else "".join(_config(slurm, hide)),
        ),
        Part(
            "snapshot.json",
            "nodes, reservations and malleable jobs: malleable plan --snapshot FILE",
            snapshot if isinstance(snapshot, Unread) else _snapshot(snapshot, hide),
        ),
        Part(
            "ticks.txt",
            "output of the last ticks",
            journal if isinstance(journal, Unread) else hide.text(journal),
        ),
    )
    return (*every, Part("README.txt", "this list", _readme(every, hide)))


def names_of(seen: Seen) -> dict[str, str]:
    """All names of the site with their kinds. If a host and a user share a name, it is a host."""
    names: dict[str, str] = {}
    for name, kind in (*_people(seen), *_places(seen)):
        names[name] = kind
    return names


def _people(seen: Seen) -> Iterator[tuple[str, str]]:
    facts = seen.facts
    if isinstance(facts.accounting, Accounting):
        for words in facts.accounting.associations:
            yield words.get("Account", ""), "account"
            yield words.get("User", ""), "user"
    yield facts.settings.site.account, "account"
    for name in (facts.host.user, *facts.settings.site.operators, *facts.settings.site.users):
        yield name, "user"
    if isinstance(facts.slurm, SlurmSays):
        for key, value in facts.slurm.config.items():
            if _USERS.search(key):
                yield value.split("(")[0], "user"
    if isinstance(seen.snapshot, Snapshot):
        for job in seen.snapshot.jobs:
            yield job.user, "user"


def _places(seen: Seen) -> Iterator[tuple[str, str]]:
    yield seen.facts.host.name.split(".")[0], "host"
    if isinstance(seen.snapshot, Snapshot):
        for reservation in seen.snapshot.reservations:
            yield reservation.name, "reservation"
        for node in seen.snapshot.nodes:
            yield node.name, "host"
    if not isinstance(seen.facts.slurm, SlurmSays):
        return
    slurm = seen.facts.slurm
    yield slurm.config.get("ClusterName", ""), "cluster"
    for words in slurm.nodes:
        for key in ("NodeName", "NodeHostName"):
            yield words.get(key, ""), "host"
    for key, value in slurm.config.items():
        if _HOSTS.search(key) and slurm.value(key):
            for word in _WORDS.findall(value):
                if not re.fullmatch(r"[\d.]+", word):
                    yield word.split(".")[0], "host"


def _config(slurm: SlurmSays, hide: Anonymiser) -> Iterator[str]:
    for key, value in slurm.config.items():
        shown = "(left out)" if _SECRET.search(key) and slurm.value(key) else hide.text(value)
        yield f"{key:<24}= {shown}\n"


def _snapshot(snapshot: Snapshot, hide: Anonymiser) -> str:
    """A file for `malleable plan --snapshot`, without other programs' text in AdminComment."""
    data = json.loads(snapshot_text(snapshot))
    for job in data["snapshot"]["jobs"]:
        marks = [fragment["mark"] for fragment in job["fragments"]]
        for request in (job["request"], *(mark["request"] for mark in marks)):
            request["name"] = hide.word("job", request["name"]) if request.get("name") else ""
        for fragment in job["fragments"]:
            fragment["note"] = ""
    return json.dumps({**data, "snapshot": hide.data(data["snapshot"])}, indent=1) + "\n"


def _json(value: Any) -> str:
    return json.dumps(to_data(value), indent=1) + "\n"


def _readme(every: Sequence[Part], hide: Anonymiser) -> str:
    lines = [
        "For a bug report about slurm-malleable. Names of hosts, users, accounts, reservations",
        "and the cluster are replaced by words that are the same within this bundle only.",
        "It has no names of jobs, and no scripts or output of users.",
        "",
    ]
    for part in every:
        why = f" (missing: {hide.text(part.text.because)})" if isinstance(part.text, Unread) else ""
        lines.append(f"{part.name:20} {part.what}{why}")
    return "\n".join(lines) + "\n"


def write(path: Path, every: Sequence[Part]) -> int:
    """Write the archive so that only its maker can read it. Return its number of bytes.

    Raises OSError, also if the file exists.
    """
    handle = os.open(
        path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
    with os.fdopen(handle, "wb") as file:
        with tarfile.open(fileobj=file, mode="w:gz") as archive:
            for part in every:
                if not isinstance(part.text, Unread):
                    content = part.text.encode("utf-8", "replace")
                    entry = tarfile.TarInfo(f"{FOLDER}/{part.name}")
                    entry.size, entry.mode = len(content), 0o644
                    archive.addfile(entry, io.BytesIO(content))
        return file.tell()
