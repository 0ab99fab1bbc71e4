"""What agents of versions that replaced one file by rename() have left in a directory.

They kept the state in one file, state.json, and neither see our revisions nor we theirs. A job
that runs while its site is upgraded gets agents of both kinds, and they must not train beside
each other on one checkpoint. Once the older ones are gone their file is a left-over.
"""

from __future__ import annotations

from pathlib import Path

from slurm_hooks.elastic.liveness.probe import Answer, probe_all
from slurm_hooks.elastic.log import debug
from slurm_hooks.elastic.private_directory import DirectoryError, read_file
from slurm_hooks.elastic.rendezvous.codec import StateFormatError, decode
from slurm_hooks.elastic.rendezvous.revisions import MAX_BYTES
from slurm_hooks.elastic.rendezvous.state import Outcome, Phase

FILE = "state.json"


def refuse_older(directory: Path) -> None:
    """Raises DirectoryError if agents of an older version may be at work in the directory."""
    try:
        text = read_file(directory, FILE, MAX_BYTES).decode("ascii", "replace")
    except FileNotFoundError:
        return
    except OSError as error:
        debug(f"reading {FILE} of older versions in {directory}", error)
        return
    if _may_live(text):
        raise DirectoryError(
            f"fragments of this job that started before an upgrade are at work in {directory}, "
            "and later ones cannot join them; cancel the job and submit it again"
        )


def _may_live(text: str) -> bool:
    """Whether an agent of those in `text`, a state of theirs, may still be at work. Takes half
    a second at most."""
    try:
        state = decode(text)
    except StateFormatError as error:
        debug(f"understanding {FILE} of older versions", error)
        return False
    if state.outcome is not Outcome.OPEN:
        return False
    addresses = [
        (m.host, m.probe_port, m.token) for m in state.members if m.phase is not Phase.DONE
    ]
    return any(answer is not Answer.GONE for answer in probe_all(addresses).values())
