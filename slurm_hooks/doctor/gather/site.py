"""Read all facts for the checks, each once."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, TypeVar, Union

from slurm_hooks.allocation.solvers import milp
from slurm_hooks.doctor.facts import (
    NOT_ASKED,
    SILENT,
    Accounting,
    Facts,
    Host,
    JobSeen,
    PythonSeen,
    SharedDirectory,
    SlurmSays,
    Unread,
    known,
)
from slurm_hooks.doctor.gather import controller
from slurm_hooks.doctor.gather.cgroups import read_cgroups
from slurm_hooks.doctor.gather.files import attempt, configuration, user_name
from slurm_hooks.doctor.gather.job import ask_job
from slurm_hooks.doctor.gather.plugstack import read_plugstack
from slurm_hooks.doctor.gather.python import LIMIT_S, ask_python
from slurm_hooks.doctor.gather.shared import job_directory, try_links
from slurm_hooks.doctor.gather.slurm import ask_accounting, ask_slurm
from slurm_hooks.errors import SettingsError
from slurm_hooks.settings.file import DEFAULT_PATH, load
from slurm_hooks.settings.values import Settings
from slurm_hooks.slurm.cluster import cluster_command
from slurm_hooks.slurm.live import Live
from slurm_hooks.tick.entry_points import find_objective

T = TypeVar("T")
INSTALLED_JOB_PATH = "/usr/share/slurm-malleable/jobpath"
SBIN = "/usr/sbin:/usr/bin:/sbin:/bin"
COMMANDS_OF_A_JOB = 7
NO_PYTHON = Unread("name an interpreter with --python")
NO_JOB = Unread("name a job with --job")


@dataclass(frozen=True)
class Asked:
    """The objects to read in addition to the site."""

    settings: Optional[Path] = None
    is_node: bool = False
    directory: Optional[Path] = None
    python: str = ""
    job: Optional[int] = None


def gather(asked: Asked) -> Facts:
    """All facts. A fact that cannot be read has the reason. No fault of a site raises an error."""
    settings, faults = _settings(asked.settings)
    port = Live(settings.tick.command_timeout_s, settings.tick.slurm_bin)
    host = Host(socket.gethostname(), os.geteuid(), user_name(os.geteuid()))
    limit_s = settings.tick.command_timeout_s
    heard = attempt(lambda: ask_slurm(port, cluster_command(), settings.site.partitions), limit_s)
    slurm = SILENT if isinstance(heard, Unread) else heard[1]
    answer = "" if isinstance(heard, Unread) else heard[0]

    def here(read: Callable[[SlurmSays], T]) -> Union[T, Unread]:
        return _on_controller(slurm, host, read, 2 * limit_s)

    plugstack = attempt(lambda: read_plugstack(slurm))
    arguments: dict[str, str] = {}
    if not isinstance(plugstack, Unread) and plugstack.ours:
        arguments = dict(plugstack.ours.arguments)
    named = asked.directory or job_directory(arguments.get("dir", "%w"), Path.cwd())
    job_path = arguments.get("pythonpath", INSTALLED_JOB_PATH)
    return Facts(
        host=host,
        settings=settings,
        settings_path=str(asked.settings or os.environ.get("MALLEABLE_SETTINGS") or DEFAULT_PATH),
        settings_faults=faults,
        slurm=slurm,
        silence=heard.because if isinstance(heard, Unread) else "",
        conf=here(lambda says: configuration(Path(says.conf))),
        submission=here(lambda says: controller.submission(settings, says, answer, port)),
        plugstack=plugstack,
        cgroups=attempt(lambda: read_cgroups(slurm)) if asked.is_node else NOT_ASKED,
        hooks=attempt(lambda: controller.hooks(known(slurm)))
        if not isinstance(slurm, Unread)
        else slurm,
        accounting=_accounting(port, slurm),
        tick=here(lambda _: controller.tick(settings, limit_s)),
        textfile=here(lambda _: controller.textfile(settings)),
        shared=_shared(asked, named),
        has_setpriv=shutil.which("setpriv", path=SBIN) is not None,
        milp=here(lambda _: milp.installed()),
        python=_python(asked.python, job_path),
        job=_job(port, settings, asked.job),
    )


def _settings(path: Optional[Path]) -> tuple[Settings, tuple[str, ...]]:
    try:
        settings = load(path)
        find_objective(settings.plan.objective)
        return settings, ()
    except SettingsError as error:
        return Settings(), error.faults


def _on_controller(
    slurm: SlurmSays | Unread, host: Host, read: Callable[[SlurmSays], T], commands_s: float
) -> Union[T, Unread]:
    """Read a fact on the controller only: other hosts may have other files of the same name."""
    if isinstance(slurm, Unread):
        return SILENT
    hosts = controllers(slurm)
    if hosts and host.name.split(".")[0] not in hosts:
        return Unread(f"run this check on the controller ({', '.join(hosts)})")
    return attempt(lambda: read(slurm), commands_s)


def controllers(slurm: SlurmSays) -> tuple[str, ...]:
    """The short names of the hosts of slurmctld, in order."""
    named = [slurm.config[key] for key in slurm.config if key.startswith("SlurmctldHost[")]
    return tuple(name.split("(")[0].split(".")[0] for name in named)


def _shared(asked: Asked, named: Path) -> Union[SharedDirectory, Unread]:
    """Test the shared directory. Jobs do not run in root's directory, so root must name another."""
    if not asked.is_node:
        return NOT_ASKED
    if asked.directory is None and os.geteuid() == 0:
        return Unread("jobs do not run in root's directory: name another with --directory")
    return attempt(lambda: try_links(named))


def _accounting(port: Live, slurm: SlurmSays | Unread) -> Union[Accounting, Unread]:
    if isinstance(slurm, Unread):
        return SILENT
    if slurm.value("AccountingStorageType") != "accounting_storage/slurmdbd":
        return Unread("there is no accounting database (slurmdbd)")
    return attempt(lambda: ask_accounting(port), 3 * port.timeout_s)


def _python(named: str, job_path: str) -> Union[PythonSeen, Unread]:
    return attempt(lambda: ask_python(named, job_path), LIMIT_S) if named else NO_PYTHON


def _job(port: Live, settings: Settings, job: Optional[int]) -> Union[JobSeen, Unread]:
    if job is None:
        return NO_JOB
    return attempt(lambda: ask_job(port, settings, job), COMMANDS_OF_A_JOB * port.timeout_s)
