"""A bundle has everything a bug report needs, and no name of the site."""

from __future__ import annotations

import json
import os
import re
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from known_sites import GOOD_SITE, says

from captured_slurm import recorded
from slurm_hooks.doctor.anonymous import COMMON, Anonymiser
from slurm_hooks.doctor.bundle import FOLDER, Part, Seen, parts, write
from slurm_hooks.doctor.facts import SILENT, Accounting, Unread
from slurm_hooks.model import Snapshot
from slurm_hooks.model.snapshot.file import read
from slurm_hooks.settings.values import Settings, parse
from slurm_hooks.slurm.gateway import observe
from slurm_hooks.tick.reconcile import rehearse

TREE = Path(__file__).resolve().parents[2]
SALT = b"0123456789abcdef"
NAMES = {"gpu01": "host", "gpu02": "host", "alice": "user", "physics": "account", "a.b-c": "user"}


def hidden(text: str) -> str:
    return Anonymiser(SALT, NAMES).text(text)


@pytest.mark.parametrize(
    "text",
    [
        "gpu01",
        "on gpu[01-02] since",
        "gpu01.cluster.example.org is down",
        "job of alice (physics)",
        "/home/alice/run",
        "/home/bob/x",
        "dir=/scratch/.malleable-alice/7",
        "user=a.b-c",
        "mail to bob.x@example.org, please",
        "at 10.1.2.3 or fe80:1:2:3:4:5:6:7",
    ],
)
def test_names_are_gone(text: str) -> None:
    shown = hidden(text)
    for name in ("gpu", "alice", "physics", "bob", "a.b-c", "example", "10.1", "fe80"):
        assert name not in shown, shown


@pytest.mark.parametrize(
    "text",
    [
        "KillWait = 30 sec",
        "root and slurm in /home/root",
        "at 03:56:26 or 2026-11-22T03:56:26",
        "job 29_[1] in partition main",
        "22.05.8 and 127.0.0.1",
        "malicealice is one word",
    ],
)
def test_words_that_are_no_name_are_kept(text: str) -> None:
    assert hidden(text) == text


def test_a_name_is_the_same_word_only_within_a_bundle() -> None:
    one, two = hidden("gpu01 gpu[01-02]").split(" ")
    assert two.split(",")[0] == one
    assert Anonymiser(b"another", NAMES).text("gpu01") != one
    assert re.fullmatch(r"host-[0-9a-f]{8}", one)


@given(st.lists(st.from_regex(r"[a-z][a-z0-9_]{3,12}", fullmatch=True), min_size=1, max_size=5))
def test_no_name_survives_between_other_words(names: list[str]) -> None:
    secret = [name for name in names if name not in COMMON]
    text = " ".join(f"/scratch/{name}/x-{name}={name}.local;" for name in secret)
    shown = Anonymiser(SALT, dict.fromkeys(secret, "user")).text(text)
    words = set(re.findall(r"[a-z0-9_]+", shown)) - {"scratch", "user", "local"}
    assert not words & set(secret)


def seen(**changes: Any) -> Seen:
    snapshot = observe(recorded("running"), ["malleable"])
    facts = replace(
        GOOD_SITE,
        slurm=says(
            config={"AccountingStoragePass": "hunter2", "SlurmctldHost[1]": "backup7(10.9.8.7)"},
            more="NodeName=secretnode9 NodeHostName=secrethost9 State=IDLE",
        ),
        settings=parse(
            '[site]\noperators = ["root", "carol"]\naccount = "biology"\nusers = ["gerald"]\n'
        ),
        accounting=Accounting((), ({"Account": "physics", "User": "dave"},), {}),
    )
    report = {"summary": "the tick runs as carol on secretnode9 for dave of physics"}
    versions = {"python": "3.11"}
    return replace(Seen(facts, report, snapshot, versions, "tick on secretnode9"), **changes)


def text_of(all_parts: tuple[Part, ...]) -> str:
    return "\n".join(part.text for part in all_parts if isinstance(part.text, str))


def test_the_parts_have_no_names() -> None:
    text = text_of(parts(seen(), SALT))
    for name in ("carol", "dave", "physics", "secretnode9", "secrethost9", "backup7", "hunter2"):
        assert name not in text
    for name in ("biology", "gerald"):  # of [site]
        assert name not in text
    assert "10.9.8.7" not in text
    assert not re.search(r'"n[1-8]"', text)
    assert "KillWait                = 30 sec" in text


def test_names_of_jobs_are_replaced_and_equal_names_by_equal_words() -> None:
    snapshot = seen().snapshot
    assert isinstance(snapshot, Snapshot)
    jobs = []
    for job in snapshot.jobs:
        request = replace(job.request, name="secret-project.sh")
        fragments = (
            replace(f, mark=replace(f.mark, request=replace(f.mark.request, name=request.name)))
            for f in job.fragments
        )
        jobs.append(replace(job, request=request, fragments=tuple(fragments)))
    text = text_of(parts(seen(snapshot=replace(snapshot, jobs=tuple(jobs))), SALT))
    assert "secret-project" not in text
    assert len(set(re.findall(r'"name": "(job-[0-9a-f]+)"', text))) == 1


def test_without_slurm_s_answer_no_file_with_unknown_names_is_included() -> None:
    facts = replace(seen().facts, slurm=SILENT)
    all_parts = parts(seen(facts=facts, snapshot=SILENT, report={}), SALT)
    assert "secretnode9" not in text_of(all_parts)
    assert "its names cannot be replaced" in text_of(all_parts[-1:])


@pytest.mark.parametrize("slip", ["gpu[1-999999999]", "gpu[2-1]", "gpu[1,,2]", "a.b-c[-]"])
def test_a_list_that_cannot_be_unfolded_is_hidden_as_a_whole(slip: str) -> None:
    assert re.fullmatch(r"on hosts-[0-9a-f]{8} since", hidden(f"on {slip} since"))


def test_the_snapshot_can_be_planned_elsewhere(tmp_path: Path) -> None:
    original = seen()
    (part,) = (part for part in parts(original, SALT) if part.name == "snapshot.json")
    path = tmp_path / "snapshot.json"
    assert isinstance(part.text, str)
    path.write_text(part.text)
    copy = read(path)
    assert not isinstance(original.snapshot, Unread)
    assert len(copy.nodes) == len(original.snapshot.nodes)
    there, here = (rehearse(one, Settings()).plan for one in (copy, original.snapshot))
    assert [job.nodes_planned for job in there.jobs] == [job.nodes_planned for job in here.jobs]


def test_unreadable_files_are_named() -> None:
    all_parts = parts(
        seen(snapshot=Unread("secretnode9 is gone"), journal=Unread("no rights")), SALT
    )
    readme = all_parts[-1].text
    assert isinstance(readme, str)
    assert re.search(r"ticks.txt .*missing: no rights", readme)
    assert re.search(r"snapshot.json .*missing: host-[0-9a-f]{8} is gone", readme)


def test_the_archive_is_private_and_replaces_no_file(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    all_parts = parts(seen(journal=Unread("no rights")), SALT)
    assert write(path, all_parts) == path.stat().st_size
    assert path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as archive:
        names = archive.getnames()
    assert f"{FOLDER}/snapshot.json" in names
    assert f"{FOLDER}/ticks.txt" not in names
    with pytest.raises(FileExistsError):
        write(path, all_parts)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "target")
    with pytest.raises(OSError):
        write(link, all_parts)
    assert not (tmp_path / "target").exists()


@pytest.mark.slurm
@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_the_answers_of_a_real_slurm(fresh_sandbox: Any, tmp_path: Path) -> None:
    box = fresh_sandbox(nodes=2)
    script = box.work / "job.sh"
    script.write_text("#!/bin/sh\necho script-secret\n")
    words = ["--job-name=name-secret", "--comment=comment-secret", "--malleable=1-2"]
    box.run(["sbatch", *words, str(script)], user="games", env={"OWN": "environment-secret"})
    mark = box.run(["squeue", "-h", "-j", "1", "-O", "admin_comment:|"]).stdout.strip("|\n ")
    box.run(["scontrol", "update", "jobid=1", f"admincomment=admin-secret {mark}"])
    path = tmp_path / "b.tar.gz"
    argv = [sys.executable, "-m", "slurm_hooks.cli", "bundle", "-o", str(path)]
    said = box.run(argv, env={"PYTHONPATH": str(TREE), "COLUMNS": "200"}, timeout_s=60).stdout
    assert said.index("slurm-config.txt") < said.index("written:")
    with tarfile.open(path) as archive:
        files = {
            name: archive.extractfile(name).read().decode()  # type: ignore[union-attr]
            for name in archive.getnames()
        }
    text = "\n".join(files.values())
    for secret in ("script", "name", "comment", "environment", "admin"):
        assert f"{secret}-secret" not in text
    assert "games" not in text
    assert not re.search(r'"n[12]"', text)
    report = json.loads(files[f"{FOLDER}/doctor.json"])
    assert {check["id"] for check in report["checks"]} > {"kill-wait", "plugstack"}
    assert len(json.loads(files[f"{FOLDER}/snapshot.json"])["snapshot"]["jobs"]) == 1
    again = box.run(argv, env={"PYTHONPATH": str(TREE)}, check=False)
    assert again.returncode == 64
    assert "exists already" in again.stderr
