"""An observation holds all facts that a plan uses, with the fewest questions to Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest

from captured_slurm import Recorded, recorded
from planning.whole_ticks import settings_in
from slurm_hooks.model import Snapshot
from slurm_hooks.slurm.text import Command
from slurm_hooks.tick.observe import observe_all
from slurm_hooks.tick.switch import switch_off

PLACE = "PreemptExemptTime       = 00:00:00"
ON_RECORD = "AccountingStorageType   = accounting_storage/slurmdbd"


class Charging(Recorded):
    """A Slurm that also names the account of every job."""

    def ask(self, command: Command) -> str:
        answer = super().ask(command)
        if command.argv[0] != "squeue" or "Account" not in command.argv[-1]:
            return answer
        return "".join(f"{job}|ml{' ' * 62}|normal{' ' * 58}|\n" for job in range(1, 200))


def observed(limit: str, directory: Path) -> tuple[Snapshot, int]:
    """The snapshot, and the number of questions that it took. The lane's QOS may have a limit."""
    answers = dict(recorded("running").answers)
    if limit:
        shown = str(answers["scontrol show"]).replace("QoS=N/A", "QoS=spare")
        assert PLACE in shown
        answers["scontrol show"] = shown.replace(PLACE, f"{PLACE}\n{ON_RECORD}")
        answers["sacctmgr"] = f"spare|00:00:00||{limit}|\n"
    port = Charging(answers)
    seen = observe_all(port, settings_in(directory), is_reading=False)
    assert seen.jobs
    return seen, len(port.asked)


@pytest.mark.parametrize(
    ("limit", "account", "questions"), [("", "", 2), ("node=4|", "", 3), ("|node=4", "ml", 4)]
)
def test_accounts_are_read_where_they_matter(
    limit: str, account: str, questions: int, tmp_path: Path
) -> None:
    seen, asked = observed(limit, tmp_path)
    assert {job.account for job in seen.jobs} == {account}
    assert asked == questions
    assert seen.off is None
    assert seen.learned.keys() == {job.job_id for job in seen.jobs}


def test_accounts_are_not_read_while_jobs_are_switched_off(tmp_path: Path) -> None:
    off = switch_off(str(tmp_path / "state"), "fire")
    seen, asked = observed("|node=4", tmp_path)
    assert (seen.off, asked) == (off, 3)
    assert {job.account for job in seen.jobs} == {""}
