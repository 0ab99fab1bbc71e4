"""A wish from the submit host: the element that gets it, and whether it is kept there."""

from __future__ import annotations

import json

import pytest

from fake_parts import START, Script
from fake_slurm import FakeSlurm
from slurm_hooks.cli import main
from slurm_hooks.errors import NotAllowed, RetryLater, UsageError
from slurm_hooks.model import Wish
from slurm_hooks.slurm.gateway import read_job, read_jobs
from slurm_hooks.slurm.text import Command
from slurm_hooks.slurm.wish import wish

POOL = "malleable{min=0,max=4,unit=1,engine=pool,frags=4,lease=600,hole=120}"
GANG = "malleable{min=1,max=4,unit=1,engine=torchrun,frags=4,lease=600,hole=120}"


class Comments(FakeSlurm):
    """A Slurm that answers and obeys commands about Comment. An agent may overwrite it."""

    agent_writes = False

    def ask(self, command: Command) -> str:
        if "--format=%k" in command.argv:
            return f"{self.elements[command.argv[2].partition('=')[2]].comment or '(null)'}\n"
        if command.argv[:2] == ("scontrol", "update"):
            job, comment = (word.partition("=")[2] for word in command.argv[2:])
            self.elements[job].comment = "joined{0}" if self.agent_writes else comment
            return ""
        return super().ask(command)


def cluster(mark: str = POOL) -> Comments:
    slurm = Comments({"n1": "", "n2": ""})
    slurm.submit(1, 4, mark, script=Script(joins=False))
    return slurm


def asked(slurm: Comments, job_id: int, size: int) -> Wish:
    return wish(slurm, read_job(slurm, ("malleable",), job_id), size, START)


def test_a_wish_is_in_a_single_element_and_never_above_max() -> None:
    slurm = cluster()
    slurm.elements["1_0"].comment = "joined{3};mine"
    assert asked(slurm, 1, 9).nodes == 4
    (job,) = read_jobs(slurm, ["malleable"])
    assert {f.id.index: f.wish.nodes for f in job.fragments if f.wish} == {0: 4}
    assert slurm.elements["1_0"].comment == f"joined{{3}};wish{{4,{START}}};mine"


def test_an_agent_that_overwrites_a_wish_repeatedly() -> None:
    slurm = cluster()
    slurm.agent_writes = True
    with pytest.raises(RetryLater, match="keeps overwriting the wish"):
        asked(slurm, 1, 2)


def test_a_job_that_cannot_wish_gets_a_message() -> None:
    with pytest.raises(UsageError, match="is a gang"):
        asked(cluster(GANG), 1, 2)
    with pytest.raises(UsageError, match="no malleable job 7"):
        asked(cluster(), 7, 2)


def test_a_job_of_another_user_is_left_alone() -> None:
    class Strangers(Comments):
        def ask(self, command: Command) -> str:
            if command.argv[:2] == ("scontrol", "update"):
                raise NotAllowed("`scontrol update ...` failed with exit code 1: Invalid user id")
            return super().ask(command)

    slurm = Strangers({"n1": "", "n2": ""})
    slurm.submit(1, 4, POOL, script=Script(joins=False))
    with pytest.raises(NotAllowed, match=r"^job 1 belongs to \w+: ask as that user$"):
        asked(slurm, 1, 2)


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        (POOL, "job 1: wishes for at most 2 nodes"),
        (POOL.replace("}", ",slot=gpu}"), "job 1: wishes for at most 2 GPUs"),
        (POOL.replace("}", ",slot=cpu:4}"), "job 1: wishes for at most 2 tasks"),
    ],
)
def test_the_command_names_the_unit_of_the_job(
    mark: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("slurm_hooks.commands.wish.live", lambda settings: cluster(mark))
    assert main(["wish", "1", "2"]) == 0
    assert capsys.readouterr().out == f"{said}\n"
    assert main(["wish", "1", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unit"] in ("node", "gpu", "task")
