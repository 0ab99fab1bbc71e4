"""What is known of a site before anybody judges it. Values only.

Each fact is a value or `Unread`, which says why it is not known; a check takes a fact by `known`
and is then skipped with that reason.
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
    """A check needs a fact that could not be read; its text says why."""


@dataclass(frozen=True)
class Unread:
    """A fact that is not known, because of this."""

    because: str


def known(fact: Union[T, Unread]) -> T:
    """The fact. Raises CannotLook if it is not known."""
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
    """One logical line of a configuration file, without comment, and where it begins."""

    file: str
    number: int
    text: str
    lines: int = 1  # in the file: a backslash at the end of one continues it


@dataclass(frozen=True)
class SlurmSays:
    """What slurmctld says of itself: words of its configuration, partitions and nodes.

    `ours` are the partitions of the settings as they are, `missing` names those that Slurm does
    not know, `our_nodes` are those of ours. `offset_s` is this host's clock minus slurmctld's, in
    seconds.
    """

    config: Words
    ours: tuple[Words, ...]
    others: tuple[tuple[Words, str, int], ...]  # (another, one of ours that it overlaps, its tier)
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
        """A setting, empty for none; `Epilog` also finds `Epilog[0]` of later releases."""
        text = self.config.get(key, self.config.get(f"{key}[0]", "")).strip()
        return "" if text in _NONE else text

    def values(self, key: str) -> tuple[str, ...]:
        """All values of a setting that can be given several times, which 24.11 numbers."""
        numbered = [name for name in self.config if name.startswith(f"{key}[")]
        return tuple(filter(None, map(self.value, numbered or [key])))

    def number(self, key: str, default: int = -1) -> int:
        """The whole number at the beginning of a setting."""
        found = re.match(r"\d+", self.value(key))
        return int(found.group()) if found else default

    def option(self, key: str, name: str, default: int) -> int:
        """A number in a list of options, like bf_window in SchedulerParameters."""
        found = re.search(rf"(?:^|,){name}=(\d+)", self.value(key))
        return int(found.group(1)) if found else default

    @property
    def version(self) -> tuple[int, ...]:
        """Such as (22, 5, 8)."""
        return tuple(int(n) for n in re.findall(r"\d+", self.config.get("SLURM_VERSION", ""))[:3])

    @property
    def is_configless(self) -> bool:
        """Whether nodes may get their configuration from slurmctld."""
        return "enable_configless" in self.value("SlurmctldParameters")


@dataclass(frozen=True)
class FileSeen:
    """A file or directory as it is: `mode` has permission bits, `kind` is file or directory.

    `is_reachable` says whether every user may enter the directories above it.
    """

    kind: str
    mode: int
    uid: int
    owner: str
    changed: datetime
    is_reachable: bool = True

    @property
    def is_open(self) -> bool:
        """Whether others than its owner can write to it."""
        return bool(self.mode & OTHERS)

    @property
    def is_for_all(self) -> bool:
        """Whether every user can read it."""
        needed = 0o005 if self.kind == "directory" else 0o004
        return self.is_reachable and self.mode & needed == needed


@dataclass(frozen=True)
class Submission:
    """The site's job_submit.lua and the policy beside it, and the policy as it should be.

    A text is None if the file is not there.
    """

    script: str
    lines: Optional[str]
    script_changed: Optional[datetime]
    policy_path: str
    policy: Optional[str]
    policy_changed: Optional[datetime]
    wanted: Union[str, Unread]
    strangers: tuple[str, ...]  # names in site.operators that this host does not know
    glue: str = ""  # the path of malleable_submit.lua as job_submit.lua names it
    glue_is_there: bool = False


@dataclass(frozen=True)
class PluginLine:
    """The line of plugstack.conf that loads our plugin, and what it names."""

    where: Line
    is_required: bool
    plugin: str
    plugin_file: Optional[FileSeen]
    arguments: Mapping[str, str]
    unknown: tuple[str, ...]
    job_path_file: Optional[FileSeen] = None
    env_store_file: Optional[FileSeen] = None
    tested: tuple[tuple[int, int], ...] = ()  # the releases that the plugin's file says it knows


@dataclass(frozen=True)
class Plugstack:
    """plugstack.conf as this host sees it: its path, our line if there is one, pyxis if there."""

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
    """A script that slurm.conf names; `text` is None if it cannot be read here."""

    key: str
    value: str
    file: Optional[FileSeen]
    text: Optional[str]


@dataclass(frozen=True)
class Accounting:
    """QOS and associations as sacctmgr prints them, and the users with an admin level."""

    qos: tuple[Words, ...]
    associations: tuple[Words, ...]
    levels: Mapping[str, str]


@dataclass(frozen=True)
class TickSeen:
    """The lock of the tick, when the last one was completed, and what starts them.

    `silent_s` is the time since the last completed tick, None if there has been none.
    `timer` and `user` come from systemd, empty where there is none; `cron` is a file of cron's.
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


@dataclass(frozen=True)
class Textfile:
    """The file for Prometheus's node exporter: its directory, how old it is, None for no file."""

    directory: Optional[FileSeen]
    age_s: Optional[float]


@dataclass(frozen=True)
class LearnedSeen:
    """The file of what is learned of jobs, if there is one; how it is damaged, empty if it is not;
    whether a damaged one was moved aside; its file system, and what can be written there."""

    path: str
    file: Optional[FileSeen]
    trouble: str
    has_damaged: bool
    kind: str
    room_mib: float  # 0 where it is mounted read-only


@dataclass(frozen=True)
class SharedDirectory:
    """What happened when files were made and linked in a directory of the job's kind."""

    path: str
    kind: str  # of the file system, as the kernel names it
    options: str
    trouble: str  # what link() did wrong, empty if all went well
    winners: int = 1  # how many of those who linked at once to one name were told they had it
    no_locks: str = ""  # why a lock (fcntl) was refused, empty if it was not
    met: int = 1  # tasks of this step, on other nodes as a rule, that were seen there
    of: int = 1


@dataclass(frozen=True)
class PythonSeen:
    """What an interpreter says of itself."""

    path: str
    version: tuple[int, ...]
    torch: str = ""  # version, empty without torch
    has_rendezvous: bool = False
    handlers: tuple[str, ...] = ()  # entry points that torchrun would find with the job path
    job_path: str = ""


@dataclass(frozen=True)
class JobSeen:
    """One job: the lines of `explain`, its script and the end of its log where readable.

    `lacks` are those that say why it has fewer nodes than it needs.
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
    """Everything that checks may look at."""

    host: Host
    settings: Settings = field(default_factory=Settings)
    settings_path: str = ""
    settings_faults: tuple[str, ...] = ()
    slurm: Union[SlurmSays, Unread] = NOT_ASKED
    silence: str = ""  # what was seen instead, where slurmctld did not answer
    conf: Union[tuple[Line, ...], Unread] = NOT_ASKED
    submission: Union[Submission, Unread] = NOT_ASKED
    plugstack: Union[Plugstack, Unread] = NOT_ASKED
    cgroups: Union[Cgroups, Unread] = NOT_ASKED
    hooks: Union[tuple[Hook, ...], Unread] = NOT_ASKED
    accounting: Union[Accounting, Unread] = NOT_ASKED
    tick: Union[TickSeen, Unread] = NOT_ASKED
    textfile: Union[Textfile, Unread] = NOT_ASKED
    learned: Union[LearnedSeen, Unread] = NOT_ASKED
    shared: Union[SharedDirectory, Unread] = NOT_ASKED
    has_setpriv: Union[bool, Unread] = NOT_ASKED
    milp: Union[str, Unread] = NOT_ASKED  # the solver that a tick finds, empty without one
    strange_users: Union[tuple[str, ...], Unread] = NOT_ASKED  # in mode.users, not of this host
    python: Union[PythonSeen, Unread] = NOT_ASKED
    job: Union[JobSeen, Unread] = NOT_ASKED
