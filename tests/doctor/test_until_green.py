"""Doctor is red on a site that is not set up, and green after its lines are pasted.

The sandbox has the package's files in its own directories. Printed lines are pasted with these
directories, and otherwise unchanged.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from slurm_hooks.sandbox import Sandbox
from waiting import wait_until

pytestmark = pytest.mark.slurm
TREE = Path(__file__).resolve().parents[2]
MALLEABLE = [sys.executable, "-m", "slurm_hooks.cli"]
ROUNDS = 3
OWN_SCRIPT = """function slurm_job_submit(job_desc, parts, uid)
  return slurm.SUCCESS
end
function slurm_job_modify(job_desc, job_rec, parts, uid)
  return slurm.SUCCESS
end
return slurm.SUCCESS
"""
BROKEN = """KillWait=120
OverTimeLimit=2
JobFileAppend=0
MinJobAge=7200
UnkillableStepTimeout=120
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval=600
PartitionName=main Nodes=ALL Default=YES \\
  MaxTime=INFINITE OverSubscribe=EXCLUSIVE # of all
PartitionName=debug Nodes=n1 PriorityTier=1
"""
GONE = (
    "PreemptType",
    "PreemptMode",
    "PartitionName",
    "JobSubmitPlugins",
    "Epilog",
    "JobRequeue",
    *(line.split("=")[0] for line in BROKEN.splitlines() if "=" in line),
)


@dataclass
class Site:
    """The sandbox, as an administrator handles it."""

    box: Sandbox

    @property
    def etc(self) -> Path:
        return self.box.dir / "etc"

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        env = {"PYTHONPATH": str(TREE), "COLUMNS": "300"}
        return self.box.run([*MALLEABLE, *words], check=False, env=env, timeout_s=90)

    def doctor(self, *words: str) -> tuple[int, dict[str, Any]]:
        done = self.run("doctor", "--json", *words)
        assert done.returncode in (0, 1, 2), done.stdout + done.stderr
        return done.returncode, json.loads(done.stdout)

    def spoil(self) -> None:
        """Remove all our parts, and set values that do not suit us."""
        conf = self.etc / "slurm.conf"
        kept = [line for line in conf.read_text().splitlines() if line.split("=")[0] not in GONE]
        conf.write_text("\n".join(kept) + "\n" + BROKEN)
        (self.etc / "job_submit.lua").write_text(OWN_SCRIPT)
        (self.etc / "malleable_policy.lua").unlink()
        (self.etc / "plugstack.conf").unlink()
        self.box.restart_controller()

    def here(self, line: str) -> str:
        """A printed line with the sandbox's directories in place of the package's."""
        line = line.replace("/usr/share/slurm-malleable/lua", str(self.etc))
        line = line.replace("/usr/share/slurm-malleable/jobpath", str(self.box.dir / "jobpath"))
        line = line.replace("/usr/libexec/slurm-malleable/epilog.sh", str(self.etc / "epilog.sh"))
        return re.sub(r"/\S*/malleable\.so", str(self.etc / "malleable.so"), line)

    def heal(self, report: dict[str, Any]) -> None:
        """Carry out all remedies in the printed order."""
        todo = report["to_do"]
        for file in todo["files"]:
            for remedy in file["lines"]:
                self.paste(remedy)
        for remedy in todo["first"]:
            self.obey(self.here(remedy["command"]))
        if "restart slurmctld" in todo["then"]:
            self.box.restart_controller()
        if "scontrol reconfigure" in todo["then"]:
            self.box.run(["scontrol", "reconfigure"])
        for remedy in todo["run"]:
            self.obey(self.here(remedy["command"]))

    def paste(self, remedy: dict[str, Any]) -> None:
        path, line = Path(remedy["file"]), self.here(remedy["line"])
        lines = path.read_text().splitlines() if path.exists() else []
        number = remedy.get("number", 0)
        assert line not in lines, "told twice"
        if number:
            lines[number - 1 : number - 1 + remedy["lines"]] = [line]
        elif remedy.get("place", "").startswith("before its final"):
            lines.insert(len(lines) - 1, line)
        else:
            assert "place" not in remedy, remedy
            lines.append(line)
        path.write_text("\n".join(lines) + "\n")
        path.chmod(0o644)

    def obey(self, command: str) -> None:
        if "cron.d" in command or "systemctl" in command or "journalctl" in command:
            assert self.run("reconcile").returncode == 0  # stands for the timer
            return
        for one in command.split(" && "):
            words = one.split()
            if words[0] == "malleable":
                assert self.run(*words[1:]).returncode == 0, one
            else:
                self.box.run(words)


def ids(report: dict[str, Any], severities: Sequence[str] = ("error", "warning")) -> set[str]:
    return {check["id"] for check in report["checks"] if check["result"] in severities}


def test_paste_until_green(fresh_sandbox: Any) -> None:
    site = Site(fresh_sandbox(nodes=2))
    site.spoil()
    code, report = site.doctor()
    assert code == 2
    assert ids(report) == {
        "bf-interval", "epilog", "job-file-append", "job-submit-chain",
        "job-submit-plugin", "kill-wait", "last-tick", "min-job-age",
        "partition", "plugstack", "policy", "preempt-mode", "preempt-type", "priority-tier",
        "timer",
    }  # fmt: skip
    assert site.doctor("--pre")[0] == 2  # preemption is the site's own affair
    assert site.doctor("--pre")[1]["to_do"] == report["to_do"]
    rounds = 0
    while code:
        rounds += 1
        assert rounds <= ROUNDS, json.dumps(report, indent=1)
        site.heal(report)
        code, report = site.doctor()
    assert ids(report) == set()
    print(f"green after {rounds} round(s): {report['summary']}")
    assert (site.etc / "slurm.conf").read_text().count("PartitionName=main ") == 1
    job = site.box.run(
        ["sbatch", "--parsable", "--malleable=1-2", "--wrap=sleep 60"]
    ).stdout.strip()
    argv = ["squeue", "-h", "-j", job, "-t", "R", "-o", "%N"]

    def runs_after_a_tick() -> bool:
        assert site.run("reconcile").returncode == 0
        return bool(site.box.run(argv).stdout.strip())

    wait_until(runs_after_a_tick, explain=lambda: site.run("explain", job).stdout, every_s=3)


def test_a_fresh_sandbox_needs_only_a_tick(fresh_sandbox: Any) -> None:
    site = Site(fresh_sandbox(nodes=1))
    code, report = site.doctor()
    assert (code, ids(report)) == (2, {"last-tick", "timer"})
    assert site.run("reconcile").returncode == 0
    code, report = site.doctor()
    assert (code, ids(report)) == (0, set())
    assert site.run("doctor", "kill-wait", "clocks").stdout.splitlines()[-1] == (
        "All is well: 2 checks fine, 0 skipped."
    )
    site.box.kill_controller()
    code, report = site.doctor()
    assert (code, ids(report)) == (2, {"slurm-answers"})
