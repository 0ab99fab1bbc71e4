"""Check that ticks can keep the speeds that jobs report."""

from __future__ import annotations

from collections.abc import Iterator

from slurm_hooks.doctor.facts import Facts, LearnedSeen, known
from slurm_hooks.doctor.finding import Category, Check, Finding, Run, error, note, warning

NOT_LOCAL = frozenset(
    ("9p", "afs", "beegfs", "ceph", "cifs", "fuse.glusterfs", "fuse.sshfs", "gpfs", "lustre")
) | {"nfs", "nfs4", "orangefs", "pvfs2", "smb3", "wekafs"}
LEAST_MIB = 4.0


def _learned(facts: Facts) -> Iterator[Finding]:
    if not facts.settings.learn.enabled:
        return
    seen = known(facts.learned)
    yield from _place(seen)
    if seen.trouble:
        yield error(
            f"{seen.path} is damaged: {seen.trouble}",
            advice="the next tick moves it aside and starts a new file; if that happens again, "
            "check the disk",
        )
    user = known(facts.tick).user
    if seen.file and user not in ("", "root", seen.file.owner):
        yield error(
            f"{seen.path} belongs to {seen.file.owner}, the tick runs as {user}",
            Run(f"chown {user}: {seen.path}*", "root"),
        )
    if seen.has_damaged:
        yield note(
            f"{seen.path}.damaged-*: ticks moved damaged files, or files of another version, here",
            Run(f"rm {seen.path}.damaged-*", "root"),
            advice="they still contain the reports of users' jobs",
        )


def _place(seen: LearnedSeen) -> Iterator[Finding]:
    if seen.kind in NOT_LOCAL:
        yield warning(
            f"{seen.path} is on {seen.kind}, where SQLite's locks do not separate ticks",
            advice="name a directory on a local disk in tick.state_dir",
        )
    if seen.room_mib < LEAST_MIB:
        yield error(
            f"only {seen.room_mib:.0f} MiB can be written beside {seen.path}: the file system is "
            "full, or mounted read-only",
            advice="make room there, or name another directory in tick.state_dir",
        )


TABLE = (
    Check(
        "learned-file",
        Category.TICK,
        "ticks can keep the speeds of jobs, in learned.sqlite on a local disk",
        "Ticks work without it. But then they do not know the speed of jobs that do not report it "
        "now, and families are measured again.",
        _learned,
        is_ours=True,
    ),
)
