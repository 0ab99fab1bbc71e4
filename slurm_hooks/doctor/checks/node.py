"""What only a compute node can say: its shared directory, what the Epilog needs."""

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
        why = seen.trouble or f"{seen.winners} writers were told that they were first"
        yield error(
            f"{seen.path} ({seen.kind}): hard links do not work as they should: {why}",
            advice="let dir= of plugstack.conf name a file system with hard links, such as NFS, "
            "Lustre, GPFS or BeeGFS",
        )
    elif seen.kind in NO_LINKS:
        yield error(
            f"{seen.path} is {seen.kind}",
            advice="let dir= of plugstack.conf name a file system with hard links",
        )


def _shared(facts: Facts) -> Iterator[Finding]:
    seen = known(facts.shared)
    if seen.kind in LOCAL and not 1 < seen.of == seen.met:
        yield warning(
            f"{seen.path} is {seen.kind}, which other nodes do not see",
            advice="submit from a directory on a file system that all nodes mount, or let dir= of "
            "plugstack.conf name one; `--directory DIR` looks at another",
        )
    elif seen.kind.startswith("nfs"):
        yield from _nfs(seen)
    elif seen.kind == "lustre" and "localflock" in seen.options:
        yield note(
            f"{seen.path}: lustre mounted with localflock",
            advice="locks only keep the queue of writers short; nothing to do",
        )


def _nfs(seen: SharedDirectory) -> Iterator[Finding]:
    options = dict(pair.partition("=")[::2] for pair in seen.options.split(","))
    longest = max(_seconds(options, "acdirmax", 60), _seconds(options, "actimeo", 0))
    if longest > LONG_CACHE_S:
        yield warning(
            f"{seen.path}: NFS with acdirmax={longest}: news of others come that late",
            advice="mount it with acdirmax=30 or less",
        )
    if "soft" in options:
        yield warning(
            f"{seen.path}: NFS mounted soft: a server that is slow for a moment looks like an "
            "error",
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
            "setpriv is not on this host, so our Epilog does nothing",
            advice="install util-linux",
        )


def _met(facts: Facts) -> Iterator[Finding]:
    seen = known(facts.shared)
    if seen.of == 1:
        raise CannotLook("try it on several nodes: srun --nodes=2 malleable doctor --node")
    if seen.met < seen.of:
        yield error(
            f"{seen.path}: {seen.met} of {seen.of} tasks of this step were seen within seconds",
            advice="submit from a directory on a file system that all nodes mount, or let dir= of "
            "plugstack.conf name one",
        )


def _locks(facts: Facts) -> Iterator[Finding]:
    seen = known(facts.shared)
    if seen.no_locks:
        yield note(
            f"{seen.path} ({seen.kind}) gives no locks: {seen.no_locks}",
            advice="nothing to do for small jobs; for those of many fragments mount Lustre with "
            "flock, or switch locks on in BeeGFS (tuneUseGlobalFileLocks)",
        )


TABLE = (
    Check(
        "locks",
        Category.NODE,
        "the shared directory gives locks",
        "Agents do not need them, but with them the queue of writers stays short when many "
        "fragments start at once.",
        _locks,
    ),
    Check(
        "hard-links",
        Category.NODE,
        "link() works in the shared directory, and only one of many can win",
        "The members and rounds of a job are numbered files made by link(), which fails if the "
        "name is taken: that is what keeps two agents from writing the same revision.",
        _link,
    ),
    Check(
        "shared-directory",
        Category.NODE,
        "the shared directory is on a file system that all nodes see, soon enough",
        "Agents on other nodes read there who takes part. In a directory that only one node sees, "
        "each fragment would train alone.",
        _shared,
    ),
    Check(
        "nodes-meet",
        Category.NODE,
        "what one node writes in the shared directory the others see",
        "Agents that do not see each other each train alone.",
        _met,
    ),
    Check(
        "setpriv",
        Category.NODE,
        "setpriv is there for the Epilog",
        "Our Epilog takes the rights of the job's user with it before it looks at processes.",
        _setpriv,
    ),
)
