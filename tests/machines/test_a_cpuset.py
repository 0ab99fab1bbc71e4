"""Jobs on parts of a node that confines each job to its cores (ConstrainCores), with cgroup v2.

User Mode Linux has no cpuset, so this machine is emulated. It runs before the four others start,
since they would make it slower.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from machines.course import LONG_S, Site
from machines.guest import guests, qemu
from machines.pages import Administrator
from machines.root import root_disk
from waiting import wait_until

pytestmark = [pytest.mark.machines, pytest.mark.timeout(3600)]
HOME = "/shared/home/ann/cores"
AGENT = "python3 /usr/share/slurm-malleable/jobpath"
WORKER = "sleep 10000"  # the last digit is the answer of nproc
WORK = f"sh -c 'exec {WORKER}$(nproc)'"
SHELL = f"#!/bin/sh\n#SBATCH --output=shell.log\nmalleable run -- {WORK}\n"
# A line for each job with its cores, and for each of its processes with the cores it may use.
PROCESSES = r"""cd /sys/fs/cgroup/system.slice/*slurmstepd.scope
for job in job_*; do
  [ -d $job ] || continue
  cores="$job $(cat $job/cpuset.cpus.effective)"
  echo $cores
  for pid in $(find $job -path '*/user/*' -name cgroup.procs -exec cat {} +); do
    may=$(sed -n 's/^Cpus_allowed_list:\t//p' /proc/$pid/status)
    echo "$cores $may $(tr '\0' ' ' </proc/$pid/cmdline)"
  done
done 2>/dev/null"""

# A site's own Prolog and Epilog, which says where it runs, and calls ours.
HOOK = """\
#!/bin/sh
{ echo "$SLURM_SCRIPT_CONTEXT" "$SLURM_JOB_ID"; cat /proc/self/cgroup; taskset -pc $$; } |
  tr '\\n' ' ' >>/var/log/slurm/hooks
echo >>/var/log/slurm/hooks
[ "$SLURM_SCRIPT_CONTEXT" != epilog_slurmd ] || exec /usr/libexec/slurm-malleable/epilog.sh
"""
# The only machine becomes a node that confines jobs to their cores.
IS_NODE = """set -e
cd /etc/slurm
chmod 755 hook.sh
sed -i "/^NodeName=/d" slurm.conf
slurmd -C | grep ^NodeName= >>slurm.conf
echo "Prolog=/etc/slurm/hook.sh\nEpilog=/etc/slurm/hook.sh" >>slurm.conf
sed -i s/ConstrainCores=no/ConstrainCores=yes/ cgroup.conf
rm -r /etc/systemd/system/slurmd.service.d
systemctl daemon-reload
systemctl restart slurmctld slurmd
"""


@pytest.fixture(scope="module")
def alone(
    debs: list[Path],
    rows: list[tuple[str, str, float, float]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Site]:
    """A machine of two cores. It is the controller and a node, whose parts malleable jobs take."""
    if not shutil.which("qemu-system-x86_64"):
        pytest.skip("needs qemu-system-x86: make test-machines")
    root_disk()
    began = time.monotonic()
    with guests(tmp_path_factory.mktemp("alone"), ["ctl"], qemu) as machines:
        site = Site(machines, rows)
        site.ctl.await_up()
        site.note("none", "an emulated machine is up", time.monotonic() - began)
        site.ctl.write("/etc/slurm/hook.sh", HOOK)
        site.ctl.run(IS_NODE)
        site.install(debs)
        began = time.monotonic()
        Administrator(machines).share_nodes()
        site.note("none", "malleable jobs take parts of nodes", time.monotonic() - began)
        yield site


@dataclass
class Held:
    """What a job has on the node: the cores of its cgroup, and its processes with their cores."""

    lane: str
    cores: str = ""
    processes: dict[str, str] = field(default_factory=dict)

    def runs(self, *words: str) -> bool:
        return all(any(one.startswith(word) for one in self.processes) for word in words)


def held(site: Site) -> list[Held]:
    """The jobs on the node. A cgroup without a job has no lane."""
    lanes = {f"job_{job}": lane for job, lane in site.squeue("%A %P", "-t R,CG")}
    jobs: dict[str, Held] = {}
    for line in site.ctl.run(PROCESSES).splitlines():
        job, *words = line.strip().split(maxsplit=3)
        one = jobs.setdefault(job, Held(lanes.get(job, "none"), *words[:1]))
        if len(words) == 3:  # it has not ended meanwhile
            one.processes[words[2]] = words[1]
    return list(jobs.values())


def await_held(site: Site, lanes: set[str]) -> None:
    """Wait until jobs of these partitions, and no others, have both cores and run their commands.

    Each process may then use the cores of its job alone.
    """

    def look() -> list[Held]:
        seen = held(site)
        is_so = {one.lane for one in seen} == lanes and all(
            one.runs(WORKER) and (one.lane == "main" or one.runs(AGENT)) for one in seen
        )
        return seen if is_so and cores(seen) == ["0", "1"] else []

    def evidence() -> str:
        return f"{held(site)}\n{site.ctl.ssh('squeue -ar; malleable plan').stdout}"

    jobs = wait_until(look, LONG_S, evidence, every_s=5)
    for job in jobs:
        assert set(job.processes.values()) == {job.cores}, jobs
        assert f"{WORKER}{len(cores([job]))}" in job.processes, jobs
    assert "CPUAlloc=2 " in site.ctl.run("scontrol show node ctl")


def cores(jobs: Sequence[Held]) -> list[str]:
    """The cores of all jobs on a node of two. A core that two jobs have appears twice."""
    return sorted(core for job in jobs for core in re.split("[,-]", job.cores))


def submit(site: Site, words: str) -> str:
    said = site.ctl.run(f"cd {HOME} && sbatch --parsable {words}", "ann")
    return said.split(";")[0].strip()


def findings(site: Site, user: str, command: str) -> list[str]:
    """The checks of doctor that are not content."""
    said = json.loads(site.ctl.ssh(command, user).stdout)
    return [one["id"] for one in said["checks"] if one["result"] in ("error", "warning")]


def test_doctor_has_no_finding(alone: Site) -> None:
    """But that no other node sees the home directories, which are on this machine's own disk."""
    assert findings(alone, "root", "malleable doctor --json") == []
    command = "cd /shared/home/ann && malleable doctor --node --json"
    assert findings(alone, "ann", command) == ["shared-directory"]


def test_a_fragment_keeps_to_the_cores_of_its_part(alone: Site) -> None:
    """A job has the core that another job leaves, then both, and none if the other wants both."""
    site = alone
    site.ctl.run(f"mkdir -p {HOME}", "ann")
    site.ctl.write(f"{HOME}/shell.sh", SHELL, "ann")
    site.ctl.write(f"{HOME}/other.sh", f"#!/bin/sh\n{WORK}\n", "ann")
    site.await_nodes("idle")
    other = submit(site, "--output=/dev/null other.sh")
    wait_until(lambda: any(one.runs(WORKER) for one in held(site)), LONG_S, every_s=5)
    job, began = submit(site, "--malleable=1-2,unit=task,engine=command shell.sh"), time.monotonic()
    await_held(site, {"main", "parts"})
    site.note("ConstrainCores", "a fragment on the other core", time.monotonic() - began)

    site.ctl.run(f"scancel {other}")
    began = time.monotonic()
    await_held(site, {"malleable"})
    site.note("ConstrainCores", "both cores", time.monotonic() - began)

    other, began = submit(site, "--output=/dev/null --exclusive other.sh"), time.monotonic()
    await_held(site, {"main"})
    site.note("ConstrainCores", "an ordinary job on both cores", time.monotonic() - began)

    site.ctl.run(f"scancel {other} {job}")
    site.await_nodes("idle")
    assert held(site) == []


def test_hooks_of_the_site_have_all_cores(alone: Site) -> None:
    """Its Epilog calls ours."""
    said = alone.ctl.run("cat /var/log/slurm/hooks").splitlines()
    assert {line.split()[0] for line in said} == {"prolog_slurmd", "epilog_slurmd"}
    assert all(re.search("/system.slice/slurmd.service .* 0,1 *$", line) for line in said), said
