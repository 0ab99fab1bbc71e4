"""An observation holds all facts that a plan uses, with the fewest questions to Slurm."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from captured_slurm import recorded
from planning.whole_ticks import settings_in
from slurm_hooks.model import Snapshot
from slurm_hooks.settings.values import Mode
from slurm_hooks.slurm.recorded import Recorded
from slurm_hooks.slurm.text import Command
from slurm_hooks.tick.observe import observe_all
from slurm_hooks.tick.switch import switch_off

ORDINARY, BY_ACCOUNT = Mode(), Mode(max_nodes_per_account=4)


@dataclass
class Charging(Recorded):
    """A Slurm that also names the account of every job."""

    def ask(self, command: Command) -> str:
        answer = super().ask(command)
        if "Account" not in command.argv[-1]:
            return answer
        return "".join(f"{job}|ml{' ' * 62}|normal{' ' * 58}|\n" for job in range(1, 200))


def observed(mode: Mode, directory: Path) -> tuple[Snapshot, int]:
    """The snapshot, and the number of questions that it took."""
    port = Charging(recorded("running").answers)
    seen = observe_all(port, replace(settings_in(directory), mode=mode), is_reading=False)
    assert seen.jobs
    return seen, len(port.asked)


@pytest.mark.parametrize(
    ("mode", "account", "questions"),
    [(ORDINARY, "", 2), (BY_ACCOUNT, "ml", 3)],
)
def test_accounts_are_read_where_they_matter(
    mode: Mode, account: str, questions: int, tmp_path: Path
) -> None:
    seen, asked = observed(mode, tmp_path)
    assert {job.account for job in seen.jobs} == {account}
    assert asked == questions
    assert seen.off is None
    assert seen.learned.keys() == {job.job_id for job in seen.jobs}


def test_accounts_are_not_read_while_jobs_are_switched_off(tmp_path: Path) -> None:
    off = switch_off(str(tmp_path / "state"), "fire")
    seen, asked = observed(BY_ACCOUNT, tmp_path)
    assert (seen.off, asked) == (off, 2)
    assert {job.account for job in seen.jobs} == {""}
