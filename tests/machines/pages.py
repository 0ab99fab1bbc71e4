"""Installs as the pages for administrators say: each command is read out of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from machines.guest import Guest
from machines.root import NODES, TREE
from waiting import wait_until

ADMINS = TREE / "docs" / "admins"
APT_LIMIT_S = 1200.0
CALM_LIMIT_S = 600.0
YES = "y\n"


def block(page: str, before: str) -> list[str]:
    """The lines of code after a line of a page, with continued lines joined and no comments."""
    text = (ADMINS / page).read_text().partition(f"\n{before}\n")[2].lstrip("\n")
    code = re.match(r"(?:    .*\n|\n)*", text)
    assert code, f"{page} has no code after {before!r}"
    joined = re.sub(r"^    ", "", code[0], flags=re.M).replace("\\\n", " ")
    lines = (re.sub(r"(^| +)# .*", "", line) for line in joined.splitlines())
    return [line for line in lines if line.strip()]


class Administrator:
    """Types the commands of start.md on the machines, in their order."""

    def __init__(self, machines: Mapping[str, Guest]) -> None:
        self.ctl = machines["ctl"]
        self.nodes = [one for name, one in machines.items() if name in NODES] or [self.ctl]

    def install(self) -> Iterator[str]:
        """Carry out each command, and return it once it is done."""
        for line in block("start.md", "As commands:"):
            self._type(line)
            yield line

    def _type(self, line: str) -> None:
        if line.startswith(("make deb", "malleable top")):  # on the host; a screen
            return
        if line.startswith("apt install"):
            nodes = self.nodes if "{slurm,client}" in line else [self.ctl]
            on_all(nodes, f"cd /root/debs && {line}", YES, APT_LIMIT_S)
        elif line == "malleable doctor --pre":
            self._paste(self._todo(line))
        elif line.startswith("sacctmgr"):  # without slurmdbd
            self.run_as_slurm_user()
        elif line == "malleable doctor":
            wait_until(
                lambda: self.ctl.tries(line), CALM_LIMIT_S, lambda: self.ctl.ssh(line), every_s=10
            )
        else:
            if line.startswith("malleable test") and len(self.nodes) == 1:
                line += " --nodes=1 --timeout=500"
            self.ctl.run(line, limit_s=CALM_LIMIT_S)
            wait_until(lambda: self.ctl.tries("scontrol ping | grep -q UP"), CALM_LIMIT_S)

    def share_nodes(self) -> None:
        """Let malleable jobs take parts of nodes: the settings of the page, and doctor's lines."""
        for line in block("shared-nodes.md", "In malleable.toml:")[1:]:
            change = f"s/^{line.split()[0]} = .*/{line}/"
            self.ctl.run(f"sed -i '{change}' /etc/slurm-malleable/malleable.toml")
        for _ in range(2):  # first the partition, then what its jobs need
            self._paste(self._todo("malleable doctor"))
            self.ctl.run("systemctl restart slurmctld")
            wait_until(lambda: self.ctl.tries("scontrol ping | grep -q UP"), CALM_LIMIT_S)
        for line in block("start.md", "As commands:"):
            if line.startswith(("scontrol", "malleable render")) or line == "malleable doctor":
                self._type(line)

    def _todo(self, line: str) -> Any:
        done = self.ctl.ssh(f"{line} --json")
        assert done.returncode in (0, 1, 2, 3), done.stdout + done.stderr
        return json.loads(done.stdout)["to_do"]

    def _paste(self, todo: Any) -> None:
        for file in todo["files"]:
            for remedy in file["lines"]:
                self.ctl.write(file["file"], pasted(self._text(file["file"]), remedy))
        for name in ("slurm.conf", "plugstack.conf"):  # copies on all nodes
            for node in self.nodes:
                node.write(f"/etc/slurm/{name}", self._text(f"/etc/slurm/{name}"))

    def _text(self, path: str) -> str:
        return self.ctl.run(f"[ ! -e {path} ] || cat {path}")

    def run_as_slurm_user(self) -> None:
        """The way of packages.md to run ticks without slurmdbd."""
        unit = block("packages.md", "With a timer, let the unit run as SlurmUser:")
        place = "/etc/systemd/system/slurm-malleable.service.d"
        assert f"# {place}/user.conf" in (ADMINS / "packages.md").read_text()
        self.ctl.run(f"mkdir -p {place}")
        self.ctl.write(f"{place}/user.conf", "\n".join(unit) + "\n")
        for line in block("packages.md", "In both cases give that user the directories:"):
            self.ctl.run(line)


def pasted(text: str, remedy: Mapping[str, Any]) -> str:
    """The text of a file after a line of doctor was pasted where it says."""
    lines, new = text.splitlines(), remedy["line"].splitlines()
    if number := remedy.get("number", 0):
        lines[number - 1 : number - 1 + remedy.get("lines", 1)] = new
    else:
        lines += new
    return "\n".join(lines) + "\n"


def on_all(machines: list[Guest], command: str, typed: str = "", limit_s: float = 180) -> None:
    """Run a command on several machines at once. It must succeed on each."""

    def one(guest: Guest) -> None:
        done = guest.ssh(command, limit_s=limit_s, typed=typed)
        assert done.returncode == 0, f"{guest.name}: {command}:\n{done.stdout}{done.stderr}"

    with ThreadPoolExecutor(len(machines)) as pool:
        list(pool.map(one, machines))
