"""The directory of a job is on another NFS server, version or mount than in the other tests."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from machines.course import Site
from machines.pages import on_all
from machines.root import NODES

pytestmark = [pytest.mark.machines, pytest.mark.timeout(3600)]
# The kernel has the usual port.
GANESHA = """\
NFS_CORE_PARAM { NFS_Port = 2050; Protocols = 4; Enable_NLM = false; Enable_RQUOTA = false; }
NFSv4 { Graceless = true; }
EXPORT {
  Export_Id = 1; Path = /srv/shared; Pseudo = /shared; Access_Type = RW; SecType = sys;
  Squash = No_Root_Squash; FSAL { Name = VFS; }
}
"""
# directory of the server, options of the nodes' mount, promised seconds until the next round
KINDS = {
    "NFSv3": ("/shared", "vers=3", 20),
    "NFSv3, nolock": ("/shared", "vers=3,nolock", 20),
    "Ganesha": ("/srv/shared", "vers=4.2,port=2050", 30),
}


@contextmanager
def mounted(site: Site, kind: str) -> Iterator[str]:
    """A directory with the users' homes that nodes mount this way."""
    directory, options, _ = KINDS[kind]
    place = f"/mnt/{kind.rsplit(maxsplit=1)[-1].lower()}"
    if kind == "Ganesha":
        site.ctl.run(f"install -d -o ann -g ann {directory}/home/ann")
        site.ctl.write("/etc/ganesha/ganesha.conf", GANESHA)
        site.ctl.run("systemctl restart nfs-ganesha")
    site.ctl.run(f"mkdir -p {place} && mount --bind {directory} {place}")
    mount = f"mount -t nfs -o hard,timeo=100,{options} ctl:/shared {place}"
    on_all(site.nodes, f"mkdir -p {place} && {mount}")
    try:
        yield place
    finally:
        on_all([site.ctl, *site.nodes], f"umount -l {place}")


@pytest.mark.parametrize("kind", KINDS)
def test_a_lost_node_holds_the_lock(site: Site, kind: str) -> None:
    """The others go on without it, and it comes back."""
    with mounted(site, kind) as base, site.training("server", base=base) as training:
        fragment = training.ranks()[0]
        node = site.machines[training.places()[fragment]]
        training.lock(node.name)
        began = time.monotonic()
        node.unplug()
        training.await_round(lambda one: fragment not in one["fragments"])
        took_s = time.monotonic() - began
        training.await_steps()
        node.plug()
        site.note(f"{kind}, rank 0 cut off", "next round", took_s, KINDS[kind][2])
        training.await_size(len(NODES))
        site.note(f"{kind}, rank 0 cut off", "on all nodes again", time.monotonic() - began)
