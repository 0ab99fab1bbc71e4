"""The administrator removes the packages, as the page says."""

from __future__ import annotations

import pytest

from machines.course import Site
from machines.pages import on_all
from machines.root import NODES, USUAL

pytestmark = [pytest.mark.machines, pytest.mark.timeout(3600)]
OURS = r"malleable|^Preempt|^JobSubmitPlugins|^JobFileAppend"
PACKAGES = "slurm-malleable slurm-malleable-slurm slurm-malleable-client"


def test_removing_leaves_a_slurm_that_runs_jobs(site: Site) -> None:
    ctl, everywhere = site.ctl, [site.machines[name] for name in USUAL]
    site.end_lasting()
    ctl.run("malleable off --reason removal")
    site.await_nodes("idle")
    ctl.run("systemctl disable --now slurm-malleable.timer")
    strip = f"cd /etc/slurm && sed -i -E '/{OURS}/d' slurm.conf && rm -f plugstack.conf"
    on_all(everywhere, f"{strip} job_submit.lua malleable_policy.lua")
    ctl.run("systemctl restart slurmctld")
    site.await_nodes("idle")
    ctl.run("scontrol reconfigure")
    purge = f"dpkg-query -f '${{Package}}\\n' -W | grep -xE '{PACKAGES.replace(' ', '|')}'"
    on_all(everywhere, f"DEBIAN_FRONTEND=noninteractive apt purge -y $({purge})", limit_s=900)
    on_all(everywhere, "rm -rf /etc/systemd/system/slurm-malleable.service.d")
    ctl.run("rm -f /etc/tmpfiles.d/slurm-malleable.conf; rm -rf /var/lib/slurm-malleable")
    assert sorted(ctl.run(f"srun -N {len(NODES)} hostname", "ann").split()) == list(NODES)
    homes = "-not -path '/shared/*' -not -path '/srv/*' -not -path '/root/*'"
    left = ctl.run(f"find / -xdev -name '*malleable*' {homes}")
    assert left.split() == []
