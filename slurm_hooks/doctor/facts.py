"""The facts about a site, before checks judge them. Values only.

Each fact is a value or `Unread`, which has the reason why it is unknown. A check takes a fact by
`known`, and is skipped with that reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Optional, TypeVar, Union

from slurm_hooks.owned import OTHERS
from slurm_hooks.settings.values import Settings
from slurm_hooks.slurm.scontrol import Words

T = TypeVar("T")
_NONE = ("", "(null)", "N/A", "none", "None", "NONE")


class CannotLook(Exception):
    """A check needs a fact that could not be read. The text is the reason."""


@dataclass(frozen=True)
class Unread:
    """An unknown fact, with the reason."""

    because: str


def known(fact: Union[T, Unread]) -> T:
    """The fact. Raises CannotLook if it is unknown."""
    if isinstance(fact, Unread):
        raise CannotLook(fact.because)
    return fact


@dataclass(frozen=True)
class Host:
    """The host and user that doctor runs on."""

    name: str
    uid: int
    user: str


@dataclass(frozen=True)
class Line:
    """A logical line of a configuration file, without comment, and the place where it begins."""

    file: str
    number: int
    text: str
    lines: int = 1  # in the file: a backslash at the end continues a line


@dataclass(frozen=True)
class SlurmSays:
    """The answer of slurmctld: words of its configuration, partitions and nodes.

    `ours` are the partitions of the settings, `missing` names the partitions among them that Slurm
    does not have, `our_nodes` are the nodes of ours. `offset_s` is this host's clock minus
    slurmctld's, in seconds.
    """

    config: Words
    ours: tuple[Words, ...]
    others: tuple[tuple[Words, str, int], ...]  # (another, ours that it overlaps, tier of ours)
    missing: tuple[str, ...]
    nodes: tuple[Words, ...]
    our_nodes: frozenset[str] = frozenset()
    offset_s: float = 0.0
    now: Optional[datetime] = None

    @property
    def conf(self) -> str:
        """The path of slurm.conf on the controller."""
        return self.config.get("SLURM_CONF", "slurm.conf")

    def value(self, key: str) -> str:
        """A setting, empty if unset. `Epilog` also reads `Epilog[0]` of later releases."""
        text = self.config.get(key, self.config.get(f"{key}[0]", "")).strip()
        return "" if text in _NONE else text

    def values(self, key: str) -> tuple[str, ...]:
        """All values of a setting that may occur several times. Slurm 24.11 numbers them."""
        numbered = [name for name in self.config if name.startswith(f"{key}[")]
        return tuple(filter(None, map(self.value, numbered or [key])))

    def number(self, key: str, default: int = -1) -> int:
        """The whole number at the beginning of a setting."""
        match = re.match(r"\d+", self.value(key))
        return int(match.group()) if match else default

    def option(self, key: str, name: str, default: int) -> int:
        """A number in a list of options, like bf_window in SchedulerParameters."""
        match = re.search(rf"(?:^|,){name}=(\d+)", self.value(key))
        return int(match.group(1)) if match else default

    @property
    def version(self) -> tuple[int, ...]:
        """The version of Slurm, such as (22, 5, 8)."""
        return tuple(int(n) for n in re.findall(r"\d+", self.config.get("SLURM_VERSION", ""))[:3])

    @property
    def is_configless(self) -> bool:
        """True if nodes may get their configuration from slurmctld."""
        return "enable_configless" in self.value("SlurmctldParameters")


@dataclass(frozen=True)
class FileSeen:
    """The state of a file or directory: `mode` has permission bits, `kind` is file or directory.

    `is_reachable` is true if every user may enter the directories above it.
    """

    kind: str
    mode: int
    uid: int
    owner: str
    changed: datetime
    is_reachable: bool = True

    @property
    def is_open(self) -> bool:
        """True if users other than its owner can write to it."""
        return bool(self.mode & OTHERS)

    @property
    def is_for_all(self) -> bool:
        """True if every user can read it."""
        needed = 0o005 if self.kind == "directory" else 0o004
        return self.is_reachable and self.mode & needed == needed


@dataclass(frozen=True)
class Submission:
    """The site's job_submit.lua, the policy beside it, and the policy that should be there.

    A text is None if the file does not exist.
    """

    script: str
    lines: Optional[str]
    script_changed: Optional[datetime]
    policy_path: str
    policy: Optional[str]
    policy_changed: Optional[datetime]
    wanted: Union[str, Unread]
    strangers: tuple[str, ...]  # names in the settings without a user on this host
    glue: str = ""  # the path of malleable_submit.lua in job_submit.lua
    glue_is_there: bool = False


@dataclass(frozen=True)
class PluginLine:
    """The line of plugstack.conf that loads our plugin, and the files that it names."""

    where: Line
    is_required: bool
    plugin: str
    plugin_file: Optional[FileSeen]
    arguments: Mapping[str, str]
    unknown: tuple[str, ...]
    job_path_file: Optional[FileSeen] = None
    env_store_file: Optional[FileSeen] = None
    tested: tuple[tuple[int, int], ...] = ()  # the releases in the plugin's file


@dataclass(frozen=True)
class Plugstack:
    """plugstack.conf of this host: its path, our line and pyxis if it has them."""

    path: str
    ours: Optional[PluginLine]
    directory: str  # where this Slurm keeps its plugins
    pyxis: str = ""  # path of spank_pyxis.so
    pyxis_version: Optional[tuple[int, ...]] = None


@dataclass(frozen=True)
class Cgroups:
    """cgroup.conf of this host: its path, and its settings by their names in small letters."""

    path: str
    settings: Mapping[str, str]


@dataclass(frozen=True)
class Hook:
    """A script that slurm.conf names. `text` is None if it cannot be read here."""

    key: str
    value: str
    file: Optional[FileSeen]
    text: Optional[str]


@dataclass(frozen=True)
class Accounting:
    """QOS and associations in sacctmgr's words, and the users with an admin level."""

    qos: tuple[Words, ...]
    associations: tuple[Words, ...]
    levels: Mapping[str, str]


@dataclass(frozen=True)
class TickSeen:
    """The lock of the tick, the time of the last completed tick, and the source of ticks.

    `silent_s` is the time since the last completed tick, None before the first tick. `timer`
    comes from systemd, empty without systemd. `cron` is a file of cron's, and `has_cron` is false
    if neither systemd nor a cron daemon can start it. `user` comes from the source in use.
    """

    lock: str
    directory: Optional[FileSeen]
    silent_s: Optional[float]
    patience_s: float
    every_s: float
    timer: str = ""
    enabled: str = ""
    user: str = ""
    cron: str = ""
    has_cron: bool = True


@dataclass(frozen=True)
class Textfile:
    """The file for Prometheus's node exporter: its directory and its age, None without a file."""

    directory: Optional[FileSeen]
    age_s: Optional[float]


@dataclass(frozen=True)
class SharedDirectory:
    """The result of making and linking files in a directory such as a job's."""

    path: str
    kind: str  # of the file system, as the kernel names it
    options: str
    trouble: str  # the fault of link(), empty without a fault
    winners: int = 1  # number of writers whose link() to the same name succeeded
    no_locks: str = ""  # the reason why a lock (fcntl) was refused, empty if it was granted
    met: int = 1  # tasks of this step, usually on other nodes, that were seen there
    of: int = 1


@dataclass(frozen=True)
class PythonSeen:
    """The answers of an interpreter about itself."""

    path: str
    version: tuple[int, ...]
    torch: str = ""  # version, empty without torch
    has_rendezvous: bool = False
    handlers: tuple[str, ...] = ()  # entry points that torchrun sees with the job path
    job_path: str = ""


@dataclass(frozen=True)
class JobSeen:
    """A job: the lines of `explain`, its script, and the end of its log if readable.

    `lacks` are the lines that explain why it has fewer nodes than it needs.
    """

    job_id: int
    words: Words
    is_malleable: bool
    lines: tuple[str, ...]
    script: Union[str, Unread]
    log: Union[str, Unread]
    lacks: tuple[str, ...] = ()


NOT_ASKED = Unread("not asked for")
SILENT = Unread("slurmctld does not answer")


@dataclass(frozen=True)
class Facts:
    """All facts that checks may use."""

    host: Host
    settings: Settings = field(default_factory=Settings)
    settings_path: str = ""
    settings_faults: tuple[str, ...] = ()
    slurm: Union[SlurmSays, Unread] = NOT_ASKED
    silence: str = ""  # the message if slurmctld did not answer
    conf: Union[tuple[Line, ...], Unread] = NOT_ASKED
    submission: Union[Submission, Unread] = NOT_ASKED
    plugstack: Union[Plugstack, Unread] = NOT_ASKED
    cgroups: Union[Cgroups, Unread] = NOT_ASKED
    hooks: Union[tuple[Hook, ...], Unread] = NOT_ASKED
    accounting: Union[Accounting, Unread] = NOT_ASKED
    tick: Union[TickSeen, Unread] = NOT_ASKED
    textfile: Union[Textfile, Unread] = NOT_ASKED
    shared: Union[SharedDirectory, Unread] = NOT_ASKED
    has_setpriv: Union[bool, Unread] = NOT_ASKED
    milp: Union[str, Unread] = NOT_ASKED  # the solver that a tick uses, empty without a solver
    python: Union[PythonSeen, Unread] = NOT_ASKED
    job: Union[JobSeen, Unread] = NOT_ASKED
