"""Reads all inputs of a tick into a snapshot: Slurm, the switches, and the learned rates.

Answers of slurmdbd are kept for an hour: it may be down, and a tick need not ask it each time.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Optional

from slurm_hooks.errors import CommandRefused, MissingProgram, RetryLater
from slurm_hooks.history.place import make_place
from slurm_hooks.learning.learned import learned_by
from slurm_hooks.model import Counted, Learned, MalleableJob, Snapshot
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.limits import limit_waiters
from slurm_hooks.settings.values import Settings, Site
from slurm_hooks.slurm.gateway import observe, with_charges
from slurm_hooks.slurm.live import Port
from slurm_hooks.slurm.rights import needs_qos, with_rights
from slurm_hooks.slurm.terms import terms_command
from slurm_hooks.slurm.text import Command
from slurm_hooks.tick.switch import with_switches

_log = logging.getLogger(__name__)
KEPT_S = 3_600.0
DENIED_S = 300.0  # until it is seen that a user has been given the QOS


def observe_all(port: Port, settings: Settings, is_reading: bool) -> Snapshot:
    """The whole snapshot, with all that a plan needs.

    Raises SettingsError if the switches cannot be read. A caller that only reads (`is_reading`)
    gets a line about that instead.
    """
    site, state = settings.site, settings.tick.state_dir
    database = Hourly(port, state, is_reading)
    read_terms = partial(database.ask, terms_command())
    seen = observe(port, site.partitions, site.part_nodes, site.qos, read_terms)
    seen = with_switches(seen, state, is_reading)
    if needs_charges(Ground(seen, settings)):
        seen = with_charges(port, seen)
    seen = with_kept_rights(database, seen, site)
    return with_learned(seen) if settings.learn.enabled else seen


def with_learned(seen: Snapshot) -> Snapshot:
    """The snapshot with the knowledge of how its jobs scale.

    If the reports of a user cannot be judged, only that user's jobs have no entry.
    """
    by_user: dict[str, list[MalleableJob]] = defaultdict(list)
    for job in seen.jobs:
        by_user[job.user].append(job)
    learned: dict[int, Learned] = {}
    for user, jobs in by_user.items():
        try:
            learned.update(learned_by(jobs, seen.now.timestamp()))
        except Exception:  # a bug here must not fail a tick
            _log.debug("the reports of %s's jobs were not judged", user, exc_info=True)
    return replace(seen, learned=learned)


def with_kept_rights(database: Hourly, seen: Snapshot, site: Site) -> Snapshot:
    """As with_rights. An answer that denies somebody the QOS counts for a shorter time."""
    known = with_rights(database, seen, site)
    if known.without_qos:
        return with_rights(replace(database, kept_s=DENIED_S), seen, site)
    return known


def needs_charges(ground: Ground) -> bool:
    """Tell whether a tick has to ask Slurm for accounts and QOS too.

    It has to in each of these cases:

    * A QOS limits the nodes or GPUs of an account.
    * A job waits for a limit that may count fragments.
    * Fragments are to get the site's QOS.

    It does not while malleable jobs are switched off, or without jobs.
    """
    seen = ground.seen
    if seen.off is not None or not seen.jobs:
        return False
    if any(limit.of == "account" for terms in seen.terms for limit in terms.limits):
        return True
    if any(needs_qos(job, ground.settings.site, seen.slurm) for job in seen.jobs):
        return True
    users = {job.user for job in seen.jobs}
    of_user = (Counted.USER, Counted.QOS_USER)
    return any(w.counted not in of_user or w.user in users for w in limit_waiters(ground))


@dataclass
class Hourly:
    """A Port that runs the same question of sacctmgr once an hour.

    Each kind of question has a file in the state directory. A caller that only reads
    (`is_reading`) writes no file. An answer counts for `kept_s`.
    """

    port: Port
    directory: str
    is_reading: bool
    kept_s: float = KEPT_S

    def __post_init__(self) -> None:
        self.asked = self.port.asked

    def ask(self, command: Command) -> str:
        """Return the kept answer, or run the command once that is old. See Port."""
        path = kept_in(self.directory, command)
        kept = _kept(path, command)
        with contextlib.suppress(OSError):
            if kept is not None and 0 <= time.time() - path.stat().st_mtime < self.kept_s:
                return kept
        try:
            text = self.port.ask(command)
        except (CommandRefused, RetryLater, MissingProgram):
            if kept is not None:
                return kept  # an old answer is better than no answer
            raise
        if text.strip() and not self.is_reading:
            _keep(path, _head(command) + text)
        return text


def kept_in(directory: str, command: Command) -> Path:
    """The file for answers to this kind of question, named after what sacctmgr is to show."""
    return Path(directory) / f"sacctmgr-{command.argv[command.argv.index('show') + 1]}"


def _head(command: Command) -> str:
    return " ".join(command.argv) + "\n"


def _kept(path: Path, command: Command) -> Optional[str]:
    """Return the kept answer. None if there is none, or it answers another question."""
    head = _head(command)
    with contextlib.suppress(OSError, ValueError):
        text = path.read_text()
        return text[len(head) :] if text.startswith(head) else None
    return None


def _keep(path: Path, text: str) -> None:
    """Write the answer. If the disk is full, the next tick asks again."""
    with contextlib.suppress(OSError, ValueError):
        new = make_place(path).with_name(f"{path.name}.new")
        new.write_text(text)
        os.replace(new, path)
