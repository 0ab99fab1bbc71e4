"""Remove the directories of old jobs beside the directory of this job.

A directory is old 30 days after its last change. It may hold a last step, which is as
large as the model and its optimizer. Only entries with our names are removed, and no link is
followed. A directory that holds any other entry stays.
"""

from __future__ import annotations

import os
import re
import stat
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from slurm_hooks.elastic.log import say, suppressed
from slurm_hooks.elastic.private_directory import DirectoryError, entered, job_directory

OLD_S = 30 * 86400.0  # since the last write there
_FILES = re.compile(
    r"lock|(state|draft)\.[0-9]+(\.[0-9a-f]+)?|state\.json|rounds\.jsonl"  # of the rendezvous
    r"|secret(\.[0-9a-f]+)?|remark\.[0-9a-f]+"
    r"|probe\.[0-9a-f]+(\.link)?|farewell-too-short|checkpoint\.lock"
    r"|imports-[0-9a-f]{8}\.json(\.[0-9]*\.[0-9]+)?"  # of warm workers
    r"|launch-[0-9a-f]+\.json(\.[0-9a-f]+)?"
    r"|(failed|left|again|looked|resting|late)-[0-9]+(\.[0-9]+)*|finished|given-up"  # selfservice
    r"|last-step(-[0-9]+)?\.pt(\.damaged|(\.[0-9]+){5}\.new)?"  # of Lightning and Trainer
)
_FOLDERS = re.compile(r"beats|stages|laid-out-[0-9]+")  # every file in them is ours
_GROUPS = re.compile(r"groups|[0-9]+")  # of torchft: groups/ has such a directory for each group
_MARKS = {"beats", "stages"}  # a job's directory has them from its beginning


def remove_old_jobs_in_background(env: Mapping[str, str]) -> None:
    """Remove them in a thread, for which the training does not wait. Does not raise."""
    with suppressed(RuntimeError, doing="starting a thread that removes old jobs"):
        threading.Thread(
            target=remove_old_jobs,
            args=(dict(env), time.time() - OLD_S),
            name="malleable-old-jobs",
            daemon=True,
        ).start()


def remove_old_jobs(env: Mapping[str, str], since: float) -> None:
    """Remove the directories of this user's other jobs beside the directory of this job, if they
    were last written to before `since` (epoch seconds). Does not raise.
    """
    place, job = job_directory(env), env.get("MALLEABLE_JOB_ID", "")
    if place is None or not job.isdigit():
        return
    before, number, after = place.name.rpartition(job)
    is_like = re.compile(f"{re.escape(before)}[0-9]+{re.escape(after)}").fullmatch
    errors = OSError, DirectoryError
    with suppressed(*errors, doing="looking for old jobs"), entered(place.parent) as above:
        names = filter(is_like, os.listdir(above)) if number else ()
        for path in (place.with_name(name) for name in names if name != place.name):
            with suppressed(*errors, doing=f"removing {path}"):
                _remove_job(path, above, since)


def _remove_job(path: Path, above: int, since: float) -> None:
    if os.stat(path.name, dir_fd=above, follow_symlinks=False).st_mtime > since:
        return
    with entered(path, above) as handle:
        if not set(os.listdir(handle)) >= _MARKS or max(_written(path, handle)) > since:
            return
        _empty(path, handle)
    os.rmdir(path.name, dir_fd=above)
    say(f"removed {path}: its last change was {OLD_S / 86400:.0f} days ago or more")


def _written(path: Path, handle: int) -> Iterator[float]:
    """Yield when each entry was last written to."""
    for name in os.listdir(handle):
        status = os.stat(name, dir_fd=handle, follow_symlinks=False)
        yield status.st_mtime
        if stat.S_ISDIR(status.st_mode):
            with entered(path / name, handle) as inner:
                yield from _written(path / name, inner)


def _empty(path: Path, handle: int, is_all_ours: bool = False) -> None:
    for name in os.listdir(handle):
        mode = os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode
        if stat.S_ISREG(mode) and (is_all_ours or _FILES.fullmatch(name)):
            os.unlink(name, dir_fd=handle)
        elif stat.S_ISDIR(mode) and (_FOLDERS.fullmatch(name) or _GROUPS.fullmatch(name)):
            with entered(path / name, handle) as inner:
                _empty(path / name, inner, bool(_FOLDERS.fullmatch(name)))
            with suppressed(OSError, doing=f"removing {path / name}"):
                os.rmdir(name, dir_fd=handle)
