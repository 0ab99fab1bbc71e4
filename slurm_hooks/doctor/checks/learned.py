"""Whether what jobs tell of their speed can be kept between ticks."""

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
            advice="the next tick moves it aside and begins anew; if that happens again, look at "
            "the disk",
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
            advice="they still hold what users' jobs told",
        )


def _place(seen: LearnedSeen) -> Iterator[Finding]:
    if seen.kind in NOT_LOCAL:
        yield warning(
            f"{seen.path} lies on {seen.kind}, where SQLite's log does not keep ticks apart",
            advice="name a directory on a local disk in tick.state_dir",
        )
    if seen.room_mib < LEAST_MIB:
        yield error(
            f"{seen.room_mib:.0f} MiB can be written where {seen.path} lies: the file system is "
            "full, or mounted read-only",
            advice="make room there, or name another directory in tick.state_dir",
        )


TABLE = (
    Check(
        "learned-file",
        Category.TICK,
        "what jobs tell of their speed can be kept, in learned.sqlite on a local disk",
        "Ticks go on without it, but know nothing of jobs that do not tell anything now, and "
        "families have to be learned again.",
        _learned,
        is_ours=True,
    ),
)
