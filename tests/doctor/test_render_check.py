"""The findings of `malleable render lua --check` about a slurm.conf: a part of doctor's
findings.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from known_sites import answer

from slurm_hooks.doctor.conf_check import check_conf
from slurm_hooks.settings.values import Settings, Site
from slurm_hooks.slurm.live import Asked
from slurm_hooks.slurm.site_policy import find_uids
from slurm_hooks.slurm.text import Command


@dataclass
class NoPort:
    """A Slurm that must not get any question."""

    asked: list[Asked] = field(default_factory=list)

    def ask(self, command: Command) -> str:
        raise AssertionError(command)


class Sacctmgr:
    """An accounting database whose `weak` QOS preempt no job."""

    def __init__(self, *weak: str, preempt: str = "low") -> None:
        self.asked: list[Asked] = []
        self._rows = [f"normal|{preempt}|", *(f"{name}||" for name in weak), "low||"]

    def ask(self, command: Command) -> str:
        kind = command.argv[command.argv.index("show") + 1]
        return (
            "\n".join(["Name|Preempt|PreemptMode", *self._rows])
            if kind == "qos"
            else "User|Admin\n"
        )


BY_QOS = Settings(site=Site(qos="low"))


def test_qos_that_cannot_preempt_are_named_in_a_single_line() -> None:
    text = answer({"PreemptType": "preempt/qos"}, {}, {})
    assert check_conf(text, BY_QOS, Sacctmgr()) == ()
    (line,) = check_conf(text, BY_QOS, Sacctmgr("high", "long"))
    assert "Run sacctmgr -i modify qos high,long set Preempt+=low" in line


def test_render_s_line_about_the_qos_is_not_repeated() -> None:
    text = answer({"PreemptType": "preempt/qos"}, {}, {})
    assert check_conf(text, BY_QOS, Sacctmgr(preempt="")) == ()


@pytest.mark.parametrize(
    ("config", "ours", "main", "wanted"),
    [
        ({}, {}, {}, []),
        ({"PreemptExemptTime": "00:05:00"}, {}, {}, []),  # a note: a promise, and no fault
        ({"JobRequeue": "0"}, {}, {}, []),  # a note: job_submit asks for it
        ({"PreemptType": "preempt/none"}, {}, {}, []),  # `render lua` says so itself
        (
            {"KillWait": "300 sec", "MinJobAge": "0 sec", "OverTimeLimit": "1 min"},
            {"GraceTime": "5"},
            {"PriorityTier": "1"},
            ["KillWait", "OverTimeLimit", "MinJobAge"],  # a tier that `render lua` tells itself
        ),
    ],
)
def test_findings(
    config: dict[str, str], ours: dict[str, str], main: dict[str, str], wanted: list[str]
) -> None:
    printed = check_conf(answer(config, ours, main), Settings(), NoPort())
    assert len(printed) == len(wanted), printed
    for line, pattern in zip(printed, wanted):
        assert re.search(pattern, line)
        assert "\n" not in line


@pytest.mark.parametrize("text", ["", "hello", "PartitionName=malleable", "PartitionName= a=b ="])
def test_an_unreadable_file_is_no_finding(text: str) -> None:
    assert check_conf(text, Settings(), NoPort()) == ()


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
    path.write_text(f'[mode]\nlevel = "on"\n[tick]\nlock = "{box.work}/own/tick.lock"\n')
    box.run(["sbatch", "--malleable=1-1", "--wrap=true"], user="nobody")
    own = box.work / "own"
    own.mkdir(mode=0o700)
    shutil.chown(own, "nobody")
    argv = [sys.executable, "-m", "slurm_hooks.cli", "reconcile", "--settings", str(path)]
    done = box.run(argv, user="nobody", check=False, env={"PYTHONPATH": str(tree)})
    assert done.returncode == 77, done.stdout + done.stderr
    assert "An Operator cannot write AdminComment" in " ".join(done.stderr.split())


@pytest.mark.slurm
def test_in_a_real_slurm(fresh_sandbox: Any) -> None:
    check = [sys.executable, "-m", "slurm_hooks.cli", "render", "lua", "--check"]
    tree = {"PYTHONPATH": str(Path(__file__).resolve().parents[2]), "COLUMNS": "500"}
    good = fresh_sandbox(nodes=1).run(check, check=False, env=tree)
    assert (good.returncode, good.stdout, good.stderr) == (0, "no problems found\n", "")
    box = fresh_sandbox(nodes=1, extra_conf=BAD)
    bad = box.run(check, check=False, env=tree)
    assert bad.returncode == 1
    said = bad.stderr.splitlines()
    wanted = ["KillWait=90", "OverTimeLimit=1", "MinJobAge=7200", "third: PriorityTier=1"]
    assert [word for word, line in zip(wanted, said) if word not in line] == []
    assert len(said) == len(wanted)
    job = box.run(["sbatch", "--parsable", "--malleable=1-2", "--wrap=true"]).stdout.strip()
    shown = box.run(["scontrol", "show", "job", job]).stdout
    assert "Requeue=1" in shown  # whatever JobRequeue says
    assert "OverSubscribe=NO" in shown  # whole nodes, whatever the partition says
