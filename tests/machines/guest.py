"""Machines on this host, each with its own kernel: User Mode Linux, or Debian's in an emulator.

All of them live in namespaces whose first process reads from a pipe of this process. When this
process ends, however it ends, that pipe closes, and the kernel ends all machines.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from machines.root import KEPT, NAMES, SPARE, boot_file, root_disk, torch_disk
from waiting import wait_until

MIB = {"ctl": 1500, SPARE: 500}
NODE_MIB = 1800
BOOT_LIMIT_S = 600.0
SETUP = """set -eu
mount -t tmpfs -o size=8g tmpfs /dev/shm
ip link set lo up
ip link add br0 type bridge
ip address add 10.99.0.1/24 dev br0
ip link set br0 up
for n in 0 1 2 3 4; do ip tuntap add tap$n mode tap; ip link set tap$n master br0 up; done
echo ready
exec cat
"""


@dataclass(frozen=True)
class Room:
    """The namespaces of the machines. `pid` is their first process, `files` a directory."""

    pid: int
    files: Path

    def inside(self, *argv: str) -> list[str]:
        return ["nsenter", f"--target={self.pid}", "--mount", "--pid", "--net", *argv]

    def call(self, *argv: str) -> None:
        subprocess.run(self.inside(*argv), stdin=subprocess.DEVNULL, check=True, timeout=60)


@dataclass
class Guest:
    """A machine. Commands reach it by ssh."""

    room: Room
    name: str
    boot: Callable[[Guest], list[str]]
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def number(self) -> int:
        return NAMES.index(self.name)

    @property
    def mac(self) -> str:
        return f"52:54:00:99:00:1{self.number}"

    @property
    def console(self) -> Path:
        return self.room.files / f"{self.name}.console"

    def start(self) -> None:
        """Switch the power on."""
        with self.console.open("ab") as console:
            self.process = subprocess.Popen(
                self.room.inside(*self.boot(self)),
                env={**os.environ, "TMPDIR": "/dev/shm", "HOME": str(self.room.files)},
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def cut(self) -> None:
        """Cut its power."""
        assert self.process
        (kernel,) = children(self.process.pid)  # in a session of its own
        os.killpg(kernel, signal.SIGKILL)
        self.process.wait(60)
        self.forget()

    def await_off(self) -> None:
        """Wait until it has switched itself off. UML cannot boot again by itself, since its network
        is in use then.
        """
        assert self.process
        self.process.wait(BOOT_LIMIT_S)
        self.forget()

    def unplug(self) -> None:
        """Take its network cable out. With `down`, the guest's interface would stay dead."""
        self.room.call("ip", "link", "set", f"tap{self.number}", "nomaster")

    def plug(self) -> None:
        self.room.call("ip", "link", "set", f"tap{self.number}", "master", "br0")
        self.forget()

    @contextmanager
    def clock_off(self, off_s: int, then: str = "") -> Iterator[None]:
        """Let its clock be wrong within this context."""
        self.run(f"date -s '{off_s:+d} seconds'{then}")
        try:
            yield
        finally:
            self.run(f"date -s '{-off_s:+d} seconds'{then}")

    def forget(self) -> None:
        """Use a new connection, since the guest no longer answers on the old one."""
        for socket in self.room.files.glob(f"ssh-*-{self.name}"):
            socket.unlink()

    def await_up(self) -> None:
        """Wait until it takes commands, and systemd has started all it will."""
        wait_until(lambda: self.tries("true"), BOOT_LIMIT_S, self.last_words, every_s=1)
        self.run("systemctl is-system-running --wait || true", limit_s=BOOT_LIMIT_S)

    def tries(self, command: str, user: str = "root", limit_s: float = 30) -> bool:
        """Tell whether the command succeeds."""
        try:
            return self.ssh(command, user, limit_s).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def run(self, command: str, user: str = "root", limit_s: float = 180) -> str:
        """The output of a command that must succeed."""
        done = self.ssh(command, user, limit_s)
        said = f"{self.name}: {command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        assert done.returncode == 0, said
        return done.stdout

    def ssh(
        self, command: str, user: str = "root", limit_s: float = 180, typed: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell's command there as somebody who has logged in."""
        return subprocess.run(
            self._ssh(user, command), input=typed, capture_output=True, text=True,
            timeout=limit_s, check=False, errors="replace",
        )  # fmt: skip

    def _ssh(self, user: str, command: str) -> list[str]:
        options = {
            "StrictHostKeyChecking": "no", "UserKnownHostsFile": "/dev/null", "LogLevel": "ERROR",
            "ConnectTimeout": "20", "ServerAliveInterval": "15", "ControlMaster": "auto",
            "ControlPath": f"{self.room.files}/ssh-%r-{self.name}", "ControlPersist": "3600",
        }  # fmt: skip
        words = [f"-o{name}={value}" for name, value in options.items()]
        address = f"{user}@10.99.0.1{self.number}"
        return self.room.inside("ssh", "-i", str(KEPT / "key"), *words, address, command)

    def write(self, path: str, text: str, user: str = "root") -> None:
        done = self.ssh(f"mkdir -p $(dirname {path}) && cat >{path}", user, typed=text)
        assert done.returncode == 0, done.stderr

    def receive(self, debs: list[Path]) -> None:
        """Copy our packages into the directory of an administrator."""
        for deb in debs:
            with deb.open("rb") as file:
                argv = self._ssh("root", f"cat >/root/debs/{deb.name}")
                subprocess.run(argv, stdin=file, timeout=120, check=True)

    def last_words(self) -> str:
        return self.console.read_text(errors="replace")[-3000:] if self.console.exists() else ""


def uml(guest: Guest) -> list[str]:
    """The command of a kernel that is a program: fast, with a single processor and no cpuset."""
    disk = guest.room.files / f"{guest.name}.cow"
    return [
        "linux.uml", f"mem={MIB.get(guest.name, NODE_MIB)}M", f"umid={guest.name}",
        f"uml_dir={guest.room.files}", f"ubd0={disk},{root_disk()}", f"ubd1r={torch_disk()}",
        "root=/dev/ubda", "rw", "con=null", "con0=null,fd:1", "con1=null,fd:1", "ssl=null",
        f"vec0:transport=tap,ifname=tap{guest.number},depth=128,gro=1,mac={guest.mac}",
        f"systemd.hostname={guest.name}", "systemd.mask=dev-ttyS0.device",
        "systemd.show_status=0",
    ]  # fmt: skip


def qemu(guest: Guest) -> list[str]:
    """The command of Debian's kernel in an emulated PC: slow, with two cores and cpusets. It has no
    disk with torch.
    """
    kernel = "root=/dev/vda rw console=ttyS0 net.ifnames=0 fstab=no mitigations=off"
    return [
        "qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-m", "2048",
        "-smp", "2,sockets=1,cores=2", "-nodefaults", "-display", "none", "-serial", "stdio",
        "-kernel", str(boot_file("vmlinuz")), "-initrd", str(boot_file("initrd.img")),
        "-append", f"{kernel} systemd.hostname={guest.name}",
        "-drive", f"file={root_disk()},format=raw,if=virtio,snapshot=on",
        "-netdev", f"tap,id=net,ifname=tap{guest.number},script=no,downscript=no",
        "-device", f"virtio-net-pci,netdev=net,mac={guest.mac}", "-device", "virtio-rng-pci",
    ]  # fmt: skip


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


@contextmanager
def guests(
    files: Path, names: Sequence[str] = NAMES, boot: Callable[[Guest], list[str]] = uml
) -> Iterator[dict[str, Guest]]:
    """Machines, whose power is on except for the spare. They end with this context. Raises OSError
    if this host has no room for them.
    """
    argv = ["unshare", "--net", "--pid", "--mount", "--mount-proc", "--fork", "--kill-child=KILL"]
    pipe = subprocess.PIPE
    holder = subprocess.Popen(
        [*argv, "sh", "-c", SETUP], stdin=pipe, stdout=pipe, stderr=pipe, text=True,
        start_new_session=True,
    )  # fmt: skip
    machines: dict[str, Guest] = {}
    try:
        assert holder.stdout
        assert holder.stderr
        if holder.stdout.readline() != "ready\n":
            raise OSError(f"no namespaces for machines here: {holder.stderr.read()}")
        room = Room(*children(holder.pid), files)
        machines |= {name: Guest(room, name, boot) for name in names}
        for name in (name for name in names if name != SPARE):
            machines[name].start()
            time.sleep(1)
        yield machines
    finally:
        with suppress(ProcessLookupError):
            os.killpg(holder.pid, signal.SIGKILL)
        holder.communicate(timeout=60)
        for guest in machines.values():
            if guest.process:
                guest.process.wait(60)
