"""Checks that only a compute node can make: its shared directory, the needs of the Epilog."""

from __future__ import annotations

import re
from collections.abc import Iterator

from slurm_hooks.doctor.facts import CannotLook, Facts, SharedDirectory, known
from slurm_hooks.doctor.finding import Category, Check, Finding, error, note, warning

LOCAL = ("ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "ramfs", "overlay", "zfs", "f2fs", "jfs")
NO_LINKS = ("vfat", "exfat", "msdos", "fuse.sshfs", "fuse.s3fs", "fuse.goofys", "fuse.rclone")
LONG_CACHE_S = 60


def _link(facts: Facts) -> Iterator[Finding]:
    seen = known(facts.shared)
    if seen.trouble or seen.winners != 1:
        why = seen.trouble or f"{seen.winners} writers succeeded, but only 1 may"
        yield error(
            f"{seen.path} ({seen.kind}): hard links do not work as they should: {why}",
            advice="name a file system with hard links in dir= of plugstack.conf, such as NFS, "
            "Lustre, GPFS or BeeGFS",
        )
    elif seen.kind in NO_LINKS:
        yield error(
            f"{seen.path} is {seen.kind}",
            advice="name a file system with hard links in dir= of plugstack.conf",
        )


def _shared(facts: Facts) -> Iterator[Finding]:
    seen = known(facts.shared)
    if seen.kind in LOCAL and not 1 < seen.of == seen.met:
        yield warning(
            f"{seen.path} is {seen.kind}, which other nodes do not see",
            advice="submit from a directory on a file system that all nodes mount, or name such a "
            "directory in dir= of plugstack.conf; `--directory DIR` checks another directory",
        )
    elif seen.kind.startswith("nfs"):
        yield from _nfs(seen)
    elif seen.kind == "lustre" and "localflock" in seen.options:
        yield note(
            f"{seen.path}: lustre mounted with localflock",
            advice="you need to do nothing: locks only keep the queue of writers short",
        )


def _nfs(seen: SharedDirectory) -> Iterator[Finding]:
    options = dict(pair.partition("=")[::2] for pair in seen.options.split(","))
    longest = max(_seconds(options, "acdirmax", 60), _seconds(options, "actimeo", 0))
    if longest > LONG_CACHE_S:
        yield warning(
            f"{seen.path}: NFS with acdirmax={longest}: changes by other nodes show that late",
            advice="mount it with acdirmax=30 or less",
        )
    if "soft" in options:
        yield warning(
            f"{seen.path}: NFS mounted soft: a short delay of the server causes an error",
            advice="mount it hard",
        )
    if options.get("lookupcache") == "all":
        yield note(f"{seen.path}: NFS with lookupcache=all, the default")


def _seconds(options: dict[str, str], name: str, default: int) -> int:
    text = options.get(name, "")
    return int(text) if re.fullmatch(r"\d{1,9}", text, re.ASCII) else default


def _setpriv(facts: Facts) -> Iterator[Finding]:
    if not known(facts.has_setpriv):
        yield warning(
            "setpriv is not on this host, so our Epilog has no effect",
            advice="install util-linux",
        )


def _met(facts: Facts) -> Iterator[Finding]:
    seen = known(facts.shared)
    if seen.of == 1:
        raise CannotLook("try it on several nodes: srun --nodes=2 malleable doctor --node")
    if seen.met < seen.of:
        yield error(
            f"{seen.path}: only {seen.met} of {seen.of} tasks of this step were seen in time",
            advice="submit from a directory on a file system that all nodes mount, or name such a "
            "directory in dir= of plugstack.conf",
        )


def _locks(facts: Facts) -> Iterator[Finding]:
    seen = known(facts.shared)
    if seen.no_locks:
        yield note(
            f"{seen.path} ({seen.kind}) has no locks: {seen.no_locks}",
            advice="small jobs do not need them; for jobs of many fragments mount Lustre with "
            "flock, or switch locks on in BeeGFS (tuneUseGlobalFileLocks)",
        )


TABLE = (
    Check(
        "locks",
        Category.NODE,
        "the shared directory supports locks",
        "Agents do not need locks. But with locks the queue of writers is short when many "
        "fragments start at once.",
        _locks,
    ),
    Check(
        "hard-links",
        Category.NODE,
        "link() works in the shared directory, and only a single writer succeeds",
        "The members and rounds of a job are numbered files. Agents make them with link(), which "
        "fails if the name exists. So two agents never write the same revision.",
        _link,
    ),
    Check(
        "shared-directory",
        Category.NODE,
        "all nodes see changes in the shared directory soon enough",
        "Agents read there which other agents take part. In a directory that only a single node "
        "sees, each fragment would train alone.",
        _shared,
    ),
    Check(
        "nodes-meet",
        Category.NODE,
        "nodes see each other's files in the shared directory",
        "Agents that do not see each other train alone.",
        _met,
    ),
    Check(
        "setpriv",
        Category.NODE,
        "setpriv is installed for the Epilog",
        "Our Epilog switches to the job's user with setpriv before it looks for processes.",
        _setpriv,
    ),
)
