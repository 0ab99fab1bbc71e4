"""The disks of the machines: a small Debian with Slurm, and the tests' Python environment.

Both are built once, and again when their contents would change. The site in /etc/slurm is as an
administrator may have it who does not know us yet.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
KEPT = TREE / "build" / "machines"
NODES = ("c1", "c2", "c3")
USUAL = ("ctl", *NODES)
SPARE = "ctl2"  # off until a test needs a second controller or file server
NAMES = (*USUAL, SPARE)
BOOT = KEPT / "root.boot"
MODULES = Path("/usr/lib/uml/modules")
PROGRAMS = ("mmdebstrap", "linux.uml", "mke2fs", "ssh", "ssh-keygen", "ip", "nsenter", "unshare")
BUILD_LIMIT_S = 1800
PACKAGES = (
    "systemd-sysv,udev,dbus,kmod,procps,iproute2,openssh-server,ca-certificates,python3,less,"
    "munge,slurmctld,slurmd,slurm-client,nfs-kernel-server,nfs-common,coinor-cbc,"
    "nfs-ganesha,nfs-ganesha-vfs,"
    "linux-image-cloud-amd64"  # for qemu
)
# UML has no cpuset, hence ConstrainCores=no. A requeued job starts when its credential has expired.
FILES = {
    "slurm/slurm.conf": """\
ClusterName=machines
SlurmctldHost=ctl
SlurmUser=slurm
AuthType=auth/munge
AuthInfo=cred_expire=60
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup,task/affinity
JobAcctGatherType=jobacct_gather/cgroup
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdTimeout=120
ReturnToService=2
SchedulerType=sched/backfill
AccountingStorageType=accounting_storage/none
NodeName=c[1-3] CPUs=1 RealMemory=1200 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
""",
    "slurm/cgroup.conf": """\
CgroupPlugin=autodetect
ConstrainCores=no
ConstrainRAMSpace=yes
ConstrainDevices=yes
""",
    "exports": "/shared 10.99.0.0/24(rw,no_root_squash,no_subtree_check,fsid=0)\n",
    "fstab": f"/dev/ubdb {sys.prefix} ext4 ro,nofail 0 0\n",
    "hosts": "127.0.0.1 localhost\n"
    + "".join(f"10.99.0.1{number} {name}\n" for number, name in enumerate(NAMES)),
    "ssh/sshd_config.d/key.conf": "AuthorizedKeysFile /etc/ssh/authorized_keys\nUseDNS no\n",
    "systemd/system/shared.mount": """\
[Unit]
ConditionHost=!ctl
Wants=network-online.target
After=network-online.target
[Mount]
What=ctl:/
Where=/shared
Type=nfs4
Options=hard,timeo=100,_netdev
TimeoutSec=300
[Install]
WantedBy=multi-user.target
""",
    "systemd/system/slurmctld.service.d/here.conf": (
        "[Unit]\nConditionHost=ctl*\nAfter=shared.mount remote-fs.target\n"
    ),
    "systemd/system/nfs-server.service.d/here.conf": "[Unit]\nConditionHost=ctl\n",
    "systemd/system/slurmd.service.d/here.conf": (
        "[Unit]\nConditionHost=!ctl*\nAfter=shared.mount remote-fs.target munge.service\n"
    ),
    **{
        f"systemd/network/{name}.network": (
            f"[Match]\nHost={name}\nName=vec* eth*\n[Network]\nAddress=10.99.0.1{number}/24\n"
            "LinkLocalAddressing=no\nIPv6AcceptRA=no\n"
        )
        for number, name in enumerate(NAMES)
    },
}
SETUP = f"""set -e
mkdir -p /shared/home
useradd -m -s /bin/bash -u 1001 -b /shared/home ann
useradd -m -s /bin/bash -u 1002 -b /shared/home bob
systemctl enable -q systemd-networkd ssh munge slurmctld slurmd nfs-server shared.mount
systemctl mask -q apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer fstrim.timer \
    man-db.timer dpkg-db-backup.timer getty.target serial-getty@.service nfs-blkmap.service
systemctl disable -q nfs-ganesha
mkdir -p {sys.prefix} /var/lib/slurm/slurmctld /var/lib/slurm/slurmd /root/debs
chown slurm: /var/lib/slurm/slurmctld
"""


def missing() -> list[str]:
    """What this host lacks of the packages that these tests need."""
    path = "/usr/sbin:/usr/bin:/sbin:/bin"
    return [name for name in PROGRAMS if shutil.which(name, path=path) is None]


@cache
def root_disk() -> Path:
    """The disk of all machines, with the key that opens them beside it (`key`)."""
    key = KEPT / "key"
    if not key.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
    said = repr((PACKAGES, FILES, SETUP, key.with_suffix(".pub").read_text()))
    return _kept("root", said, _build_root, "6G")


def boot_file(name: str) -> Path:
    """The `vmlinuz` or `initrd.img` of the root disk."""
    root_disk()
    (path,) = BOOT.glob(f"{name}-*")
    return path


@cache
def torch_disk() -> Path:
    """A disk with this Python environment, less this project, which users do not have there."""
    stamp = Path(sys.prefix) / ".installed"
    said = f"{sys.prefix} {stamp.read_text() if stamp.exists() else ''}"
    return _kept("torch", said, _build_torch, "3G")


def _kept(name: str, said: str, build: Callable[[Path], None], size: str) -> Path:
    disk = KEPT / f"{name}-{hashlib.sha256(said.encode()).hexdigest()[:12]}.img"
    if disk.exists():
        return disk
    for old in KEPT.glob(f"{name}*"):
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    tree, draft = KEPT / name, KEPT / f"{name}.draft"
    build(tree)
    _run("truncate", "-s", size, str(draft))
    _run("mke2fs", "-q", "-F", "-t", "ext4", "-d", str(tree), str(draft))
    shutil.rmtree(tree)
    return draft.rename(disk)


def _build_root(tree: Path) -> None:
    _run("mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(tree))
    for name, text in FILES.items():
        path = tree / "etc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    shutil.copy(KEPT / "key.pub", tree / "etc" / "ssh" / "authorized_keys")
    shutil.copytree(MODULES, tree / "usr" / "lib" / "modules", dirs_exist_ok=True)
    _run("chroot", str(tree), "sh", "-c", SETUP)
    shutil.copytree(tree / "boot", BOOT)


def _build_torch(tree: Path) -> None:
    _run("cp", "-al", sys.prefix, str(tree))
    for path in tree.glob("lib/python*/site-packages/*slurm_malleable*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _run(*argv: str) -> None:
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=BUILD_LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{argv[0]}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
