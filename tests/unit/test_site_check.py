"""What `malleable render lua --check` says of a slurm.conf."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from slurm_hooks.slurm.site_check import check_site
from slurm_hooks.slurm.site_policy import find_uids

GOOD = """NodeName=n1 State=IDLE Comment=OverTimeLimit = 5
Configuration data as of 1795287648
JobRequeue              = 1
KillWait                = 30 sec
MaxJobCount             = 10000
MinJobAge               = 300 sec
OverTimeLimit           = 0 min
PreemptMode             = REQUEUE
PreemptType             = preempt/partition_prio
PreemptExemptTime       = 00:00:00
"""
MAIN = {"PriorityTier": "10", "Nodes": "n[1-4]", "OverTimeLimit": "NONE"}
OURS = {**MAIN, "PriorityTier": "1", "GraceTime": "0", "OverSubscribe": "EXCLUSIVE"}


def answer(config: dict[str, str], ours: dict[str, str], main: dict[str, str]) -> str:
    """What scontrol says, with some words changed."""
    lines = [
        f"{key} = {config.pop(key)}" if (key := line.split(" ")[0]) in config else line
        for line in GOOD.splitlines()
    ]
    assert not config
    for name, words, changed in (("main", MAIN, main), ("malleable", OURS, ours)):
        pairs = " ".join(f"{key}={value}" for key, value in {**words, **changed}.items())
        lines.insert(0, f"PartitionName={name} {pairs} State=UP")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("config", "ours", "main", "wanted"),
    [
        ({}, {}, {}, []),
        ({"OverTimeLimit": "5 min"}, {}, {}, [r"malleable: OverTimeLimit=5 .*=0 for it"]),
        ({"OverTimeLimit": "UNLIMITED"}, {}, {}, [r"OverTimeLimit=UNLIMITED"]),
        ({"OverTimeLimit": "5 min"}, {"OverTimeLimit": "0"}, {}, []),
        ({}, {"OverTimeLimit": "3"}, {}, [r"OverTimeLimit=3 "]),
        ({}, {}, {"OverTimeLimit": "3"}, []),
        ({"PreemptExemptTime": "00:05:00"}, {}, {}, [r"PreemptExemptTime=00:05:00: .*=0$"]),
        ({"PreemptExemptTime": "NONE"}, {}, {}, []),
        ({}, {}, {"PriorityTier": "1"}, [r"main: PriorityTier=1 .* write PriorityTier=2 or more"]),
        ({}, {"PriorityTier": "10"}, {}, [r"above that of malleable .10."]),
        ({}, {}, {"PriorityTier": "1", "Nodes": "n[5-8]"}, []),
        ({}, {}, {"PriorityTier": "1", "Nodes": "n[4-8]"}, [r"main: PriorityTier=1"]),
        ({}, {}, {"PriorityTier": "1", "Nodes": "n[4-"}, []),
        ({"PreemptType": "preempt/qos"}, {}, {"PriorityTier": "1"}, []),
        ({}, {"GraceTime": "10"}, {}, [r"GraceTime=10 .*write GraceTime=0"]),
        ({}, {"OverSubscribe": "FORCE:4"}, {}, [r"OverSubscribe=FORCE:4 .*EXCLUSIVE$"]),
        ({}, {"OverSubscribe": "NO"}, {}, []),  # job_submit asks for whole nodes
        ({"JobRequeue": "0"}, {}, {}, []),  # job_submit asks for it
        ({"MinJobAge": "3600 sec"}, {}, {}, [r"kept for 3600 s .*write MinJobAge=300"]),
        ({"MinJobAge": "3600 sec", "MaxJobCount": "100000"}, {}, {}, []),
        ({"MinJobAge": "0 sec"}, {}, {}, [r"kept for ever"]),
        ({"MinJobAge": "60 sec"}, {}, {}, [r"forgotten before a tick .*at least 120"]),
        ({"KillWait": "60 sec"}, {}, {}, []),
        ({"KillWait": "300 sec"}, {}, {}, [r"KillWait=300: .*write KillWait=30"]),
        (
            {"KillWait": "300 sec", "MinJobAge": "0 sec", "OverTimeLimit": "1 min"},
            {"GraceTime": "5"},
            {"PriorityTier": "1"},
            ["OverTimeLimit", "PriorityTier", "GraceTime", "MinJobAge", "KillWait"],
        ),
    ],
)
def test_findings(
    config: dict[str, str], ours: dict[str, str], main: dict[str, str], wanted: list[str]
) -> None:
    found = check_site(answer(dict(config), ours, main), ["malleable"], 30)
    assert len(found) == len(wanted), found
    for line, pattern in zip(found, wanted):
        assert re.search(pattern, line)
        assert "\n" not in line


@pytest.mark.parametrize("text", ["", "hello", "PartitionName=malleable", "PartitionName= a=b ="])
def test_what_cannot_be_read_is_no_finding(text: str) -> None:
    assert check_site(text, ["malleable"], 30) == ()


def test_users_are_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory service need not list its users to know them."""
    monkeypatch.setattr(pwd, "getpwall", list)
    me = pwd.getpwuid(os.geteuid()).pw_name
    assert find_uids([me, "nobody-of-that-name", "a\0b"]) == {me: os.geteuid()}


BAD = """PreemptExemptTime=00:02:00
OverTimeLimit=1
JobRequeue=0
KillWait=90
MinJobAge=7200
PartitionName=third Nodes=n1 PriorityTier=1 PreemptMode=OFF
"""


@pytest.mark.slurm
@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_a_tick_of_an_ordinary_user_fails(fresh_sandbox: Any) -> None:
    box = fresh_sandbox(nodes=1)
    tree = Path(__file__).resolve().parents[2]
    path = box.work / "malleable.toml"
    path.write_text(f'[tick]\nlock = "{box.work}/own/tick.lock"\n')
    box.run(["sbatch", "--malleable=1-1", "--wrap=true"], user="nobody")
    own = box.work / "own"
    own.mkdir(mode=0o700)
    shutil.chown(own, "nobody")
    argv = [sys.executable, "-m", "slurm_hooks.cli", "reconcile", "--settings", str(path)]
    done = box.run(argv, user="nobody", check=False, env={"PYTHONPATH": str(tree)})
    assert done.returncode == 77, done.stdout + done.stderr
    assert "Operators cannot write AdminComment" in " ".join(done.stderr.split())


@pytest.mark.slurm
def test_in_a_real_slurm(fresh_sandbox: Any) -> None:
    program = str(Path(sys.executable).with_name("malleable"))
    good = fresh_sandbox(nodes=1).run([program, "render", "lua", "--check"], check=False)
    assert (good.returncode, good.stdout, good.stderr) == (0, "", "")
    box = fresh_sandbox(nodes=1, extra_conf=BAD)
    bad = box.run([program, "render", "lua", "--check"], check=False, env={"COLUMNS": "500"})
    assert bad.returncode == 1
    said = bad.stderr.splitlines()
    wanted = ["OverTimeLimit=1", "PreemptExemptTime=00:02:00", "third: PriorityTier=1",
              "MinJobAge=7200", "KillWait=90"]  # fmt: skip
    assert [word for word, line in zip(wanted, said) if word not in line] == []
    assert len(said) == len(wanted)
    job = box.run(["sbatch", "--parsable", "--malleable=1-2", "--wrap=true"]).stdout.strip()
    shown = box.run(["scontrol", "show", "job", job]).stdout
    assert "Requeue=1" in shown  # whatever JobRequeue says
    assert "OverSubscribe=NO" in shown  # whole nodes, whatever the partition says
