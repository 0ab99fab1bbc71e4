"""The record of a sandbox on disk, so that any later process can use or end the sandbox.

A JSON file per sandbox, replaced whole.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Optional

from slurm_hooks.errors import UsageError
from slurm_hooks.sandbox.base import RECORD
from slurm_hooks.sandbox.installation import Installation
from slurm_hooks.sandbox.processes import Process
from slurm_hooks.sandbox.spec import Layout


@dataclass(frozen=True)
class Record:
    """Layout, Slurm and node count of a sandbox, and daemons by name (munged, slurmctld, n1)."""

    layout: Layout
    slurm: Installation
    nodes: int
    daemons: dict[str, Process] = field(default_factory=dict)

    @property
    def ports(self) -> range:
        """All its ports: slurmdbd's with accounting, slurmctld's and then the nodes'."""
        first = self.layout.accounting_port or self.layout.controller_port
        return range(first, self.layout.node_port + self.nodes)

    def with_daemons(self, started: dict[str, Process]) -> Record:
        return replace(self, daemons={**self.daemons, **started})

    def without(self, daemon: str) -> Record:
        left = {name: process for name, process in self.daemons.items() if name != daemon}
        return replace(self, daemons=left)


def write_record(record: Record, directory: Optional[Path] = None) -> None:
    """Replaces the record in `directory` (default: its own) in a single step."""
    target = (directory or record.layout.dir) / RECORD
    draft = target.with_suffix(".draft")
    draft.write_text(json.dumps(_to_json(record), indent=1))
    os.replace(draft, target)


def read_record(directory: Path) -> Record:
    """Reads a record. Raises UsageError if it is missing or unreadable."""
    path = directory / RECORD
    try:
        return _from_json(json.loads(path.read_text()), directory)
    except FileNotFoundError as error:
        raise UsageError(f"There is no sandbox in {directory} (no {RECORD} there).") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"The record {path} cannot be read ({error!r}); end the processes that name "
            f"{directory} and remove that directory."
        ) from error


def _to_json(record: Record) -> dict[str, Any]:
    layout, slurm = record.layout, record.slurm
    return {
        "user": layout.user,
        "controller_port": layout.controller_port,
        "node_port": layout.node_port,
        "is_loopback_only": layout.is_loopback_only,
        "accounting_port": layout.accounting_port,
        "nodes": record.nodes,
        "slurm": {
            "bin_dir": str(slurm.bin_dir),
            "sbin_dir": str(slurm.sbin_dir),
            "munge_sbin_dir": str(slurm.munge_sbin_dir),
            "plugin_dir": str(slurm.plugin_dir) if slurm.plugin_dir else None,
            "version": slurm.version,
            "prefix": slurm.prefix,
        },
        "daemons": {name: [p.pid, p.started] for name, p in record.daemons.items()},
    }


def _from_json(data: dict[str, Any], directory: Path) -> Record:
    slurm = data["slurm"]
    return Record(
        layout=Layout(
            dir=directory,
            user=data["user"],
            controller_port=data["controller_port"],
            node_port=data["node_port"],
            is_loopback_only=data["is_loopback_only"],
            accounting_port=data.get("accounting_port"),
        ),
        slurm=Installation(
            bin_dir=Path(slurm["bin_dir"]),
            sbin_dir=Path(slurm["sbin_dir"]),
            munge_sbin_dir=Path(slurm["munge_sbin_dir"]),
            plugin_dir=Path(slurm["plugin_dir"]) if slurm["plugin_dir"] else None,
            version=tuple(slurm["version"]),
            prefix=tuple(slurm["prefix"]),
        ),
        nodes=data["nodes"],
        daemons={name: Process(*identity) for name, identity in data["daemons"].items()},
    )
