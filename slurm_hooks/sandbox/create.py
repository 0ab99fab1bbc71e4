"""Makes a sandbox on disk: a name, ports and files that no other sandbox has.

Starts no process. The directory appears complete or not at all, so that any process that sees it
can also end the sandbox.
"""

from __future__ import annotations

import getpass
import logging
import socket
from pathlib import Path

from slurm_hooks.errors import MalleableError, UsageError
from slurm_hooks.sandbox import accounting, base, daemons
from slurm_hooks.sandbox.installation import Installation, find_installation
from slurm_hooks.sandbox.record import Record, read_record, write_record
from slurm_hooks.sandbox.spec import Layout, SandboxSpec

_log = logging.getLogger(__name__)


def create(spec: SandboxSpec) -> Record:
    """Takes a name and ports, writes all files, and returns the record of a sandbox that is down.

    Raises UsageError if the name is taken, MissingProgram if Slurm is not installed.
    """
    slurm = spec.slurm or find_installation()
    if spec.is_accounting:
        accounting.check_installed(slurm)
    with base.locked(spec.base or base.default_base()) as where:
        name = spec.name or base.free_name(where)
        if (where / name).exists():
            raise UsageError(f"There is already a sandbox {name!r} in {where}; end it first.")
        taken = [_ports(path) for path in base.sandbox_directories(where)]
        first = base.free_ports(spec.nodes + 2, taken)
        layout = Layout(
            dir=where / name,
            user=getpass.getuser(),
            controller_port=first + 1,
            node_port=first + 2,
            is_loopback_only=_is_loopback_only(slurm),
            accounting_port=first if spec.is_accounting else None,
        )
        record = Record(layout, slurm, spec.nodes)
        draft = where / f"{base.UNFINISHED}{name}"
        draft.mkdir(mode=0o755)
        draft.chmod(0o755)
        daemons.lay_out(spec, slurm, layout, draft)
        write_record(record, draft)
        draft.rename(layout.dir)
    return record


def _ports(directory: Path) -> range:
    try:
        return read_record(directory).ports
    except MalleableError as error:  # ended since, or unreadable: the test of each port decides
        _log.debug("%s", error)
        return range(0)


def _is_loopback_only(slurm: Installation) -> bool:
    """Tells whether the daemons may bind to 127.0.0.1 alone.

    With NoInAddrAny (22.05) Slurm binds to the address of the host's own name, and srun fails if
    the name does not resolve. The nodes' address is 127.0.0.1. Another root may resolve the name
    differently.
    """
    if slurm.prefix:
        return False
    try:
        return socket.gethostbyname(socket.gethostname()) == "127.0.0.1"
    except OSError as error:
        _log.debug("this host's own name does not resolve: %s", error)
        return False
