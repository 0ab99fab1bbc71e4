"""A fragment's reports to the reconciler, and the way in which a leaver puts itself back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from programs import write_programs
from slurm_hooks.elastic.agent.membership import Membership
from slurm_hooks.elastic.batch import comment_writer, job_comment, remark
from slurm_hooks.elastic.batch import own_element as module
from slurm_hooks.elastic.batch.comment_writer import Stand
from slurm_hooks.elastic.batch.expected import ArrayFacts
from slurm_hooks.elastic.batch.lease import Lease
from slurm_hooks.elastic.batch.own_element import OwnElement
from slurm_hooks.elastic.batch.progress_entry import Progress, ToldRate
from slurm_hooks.elastic.batch.progress_entry import entry as entry_of
from slurm_hooks.elastic.batch.standing import element, is_noticed, is_reporter, run_of
from slurm_hooks.elastic.liveness.heartbeat import Heartbeat
from slurm_hooks.elastic.mailbox import Mailbox
from slurm_hooks.elastic.rendezvous.directory import SharedDirectory
from slurm_hooks.elastic.rendezvous.rounds import Limits, form
from slurm_hooks.elastic.rendezvous.state import (
    Admission,
    Member,
    Outcome,
    fail,
    join,
    restart,
    succeed,
)
from slurm_hooks.elastic.script.progress import Reporter
from slurm_hooks.elastic.signals import SignalListener, end_quietly
from slurm_hooks.protocol.comment import Loss, Standing, parse
from waiting import wait_until

from .gang import Gang
from .processes import launch

at_night = partial(pytest.param, marks=pytest.mark.nightly)
ENV = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3", "SLURM_RESTART_COUNT": "2"}

# A Comment in a file. Requeue is refused while there is a file `refuse`, and hangs while there
# is a file `hang`. Elements are listed if there is a file `knows-all`.
SQUEUE = """#!/bin/sh
echo "$*" >> {place}/looked
case "$*" in
*RestartCnt*) cat {place}/run ;;
*PriorityLong*) [ -e {place}/held ] && echo 0 ;;
*--array*)
    [ -e {place}/knows-all ] || exit 1
    echo "2|RUNNING|9|1|1790000000|4000000000|None|(null)"
    echo "3|RUNNING|9|1|1790000000|4000000900|None|$(cat {place}/comment)" ;;
*) cat {place}/comment ;;
esac
"""
SCONTROL = """#!/bin/sh
echo "$*" >> {place}/asked
case "$1" in
requeue)
    [ ! -e {place}/hang ] || exec sleep 600
    [ ! -e {place}/refuse ] || { echo Access/permission denied >&2; exit 1; }
    touch {place}/requeued ;;
uhold) [ ! -e {place}/held ] || { echo Requested partition configuration >&2; exit 1; } ;;
update) [ ! -e {place}/refuse ] && printf %s "${3#Comment=}" > {place}/comment ;;
esac
"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_programs(tmp_path, {"squeue": SQUEUE, "scontrol": SCONTROL})
    (tmp_path / "comment").write_text("(null)")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for name in ("CONFIRM_S", "LOOK_S"):
        monkeypatch.setattr(module, name, 0.2)
        monkeypatch.setattr(comment_writer, name, 0.2)
    monkeypatch.setattr(comment_writer, "AGAIN_S", 0.3)
    monkeypatch.setattr(module, "AGAIN_S", 0.3)
    monkeypatch.setattr(module, "SPREAD_S", 0.0)
    return tmp_path


def test_characters_that_no_command_takes_are_left_out_of_the_comment(slurm: Path) -> None:
    writer = comment_writer.writer_of("7_3")
    writer.write("standing", Stand(Standing.JOINED, 0), before="mi\0ne")
    assert says(slurm, "joined{0};mine")()


def says(place: Path, text: str) -> Callable[[], bool]:
    return lambda: (place / "comment").read_text() == text


def test_the_element_and_the_run_of_a_report() -> None:
    assert element(ENV) == "7_3"
    assert element({"SLURM_JOB_ID": "7"}) == ""
    assert run_of(ENV) == 2
    assert [run_of({"SLURM_RESTART_COUNT": text}) for text in ("", "x", "²")] == [0, 0, 0]
    assert all(is_reporter({"SLURM_PROCID": rank} if rank else {}) for rank in ("", "0"))
    assert not is_reporter({"SLURM_PROCID": "1"})


@pytest.mark.parametrize(
    ("answer", "is_so"),
    [
        ("1790000000    site malleable{min=1,at=1,leave=1790000009,run=2} more", True),
        ("1790000000    malleable{leave=1790000009}", True),
        ("1790000000    malleable{min=1,leave=1789999999}", False),  # in an earlier run
        ("1790000000    malleable{min=1} leave=1790000009", False),
        ("N/A           malleable{min=1,leave=1790000009}", False),
        ("", False),
    ],
)
def test_the_mark_says_whether_this_run_was_asked_to_leave(answer: str, is_so: bool) -> None:
    assert is_noticed(answer) is is_so


def test_the_report_of_an_agent_is_written_at_once(slurm: Path) -> None:
    own_element = OwnElement(ENV, SignalListener())
    own_element.report_started()
    assert says(slurm, "started{2}")()
    own_element.report_started()
    own_element.report(Standing.JOINED)
    wait_until(says(slurm, "joined{2}"))
    own_element.report_started()  # its earlier words are kept
    own_element.report(Standing.LEAVING)
    wait_until(says(slurm, "leaving{2}"))
    own_element.report_started()
    assert says(slurm, "leaving{2}")()
    assert [line.rpartition("=")[2] for line in asked(slurm)] == [
        "started{2}",
        "joined{2}",
        "leaving{2}",
    ]


def looked(place: Path) -> list[str]:
    path = place / "looked"
    return path.read_text().splitlines() if path.exists() else []


def test_a_start_is_a_question_and_a_change(slurm: Path) -> None:
    (slurm / "comment").write_text("mine")
    (slurm / "knows-all").touch()
    own_element = OwnElement(ENV, SignalListener())
    own_element.report_started()
    lease = Lease(ENV, 20.0, own_element.take_facts())
    assert (lease.ends, lease.wanted) == (4000000900, (2, 3))
    assert says(slurm, "started{2};mine")()
    assert len(looked(slurm)) == len(asked(slurm)) == 1


@pytest.mark.parametrize(
    "text", ["two\nlines", *(f"mine\n{n}|RUNNING|9|1|1|2|None|" for n in (2, 3)), "a\n\nb"]
)
def test_a_comment_that_looks_like_rows_is_kept_whole(slurm: Path, text: str) -> None:
    (slurm / "comment").write_text(text)
    (slurm / "knows-all").touch()
    OwnElement(ENV, SignalListener()).report_started()
    assert says(slurm, f"started{{2}};{text}")()


def test_an_old_question_is_asked_again(slurm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_element = OwnElement(ENV, SignalListener())
    assert own_element.take_facts() is None  # never
    (slurm / "knows-all").touch()
    own_element.report_started()
    assert own_element.take_facts() is not None
    monkeypatch.setattr(module, "FRESH_S", 0.0)
    assert own_element.take_facts() is None


def test_words_soon_after_each_other_are_checked_once(
    slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_S", 30.0)
    own_element = OwnElement(ENV, SignalListener())
    own_element.report(Standing.JOINED)
    wait_until(says(slurm, "joined{2}"))
    own_element.report_trained()
    wait_until(says(slurm, "trained{2}"))
    own_element.report(Standing.LEAVING)
    wait_until(lambda: len(looked(slurm)) == 4)  # before each change, and after the last
    assert says(slurm, "leaving{2}")()


def test_a_leave_does_not_wait_for_an_old_refusal_of_slurm(
    slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_element = OwnElement(ENV, SignalListener())
    monkeypatch.setattr(comment_writer, "AGAIN_S", 60.0)
    (slurm / "refuse").touch()
    own_element.report(Standing.JOINED)
    wait_until(lambda: asked(slurm) != [])
    (slurm / "refuse").unlink()
    own_element.report(Standing.LEAVING)
    wait_until(says(slurm, "leaving{2}"), 20)


def test_fragments_of_a_larger_job_spread_their_reports_over_a_longer_time() -> None:
    def longest_s(fragments: int) -> float:
        own_element = OwnElement(ENV, SignalListener())
        own_element._facts = ArrayFacts(wanted=tuple(range(fragments)))
        return max(own_element._spread_s() for _ in range(500))

    assert 0.4 < longest_s(2) <= 0.5
    assert 6 < longest_s(32) <= 8
    assert 12 < longest_s(1000) <= 15
    assert 1.5 < longest_s(0) <= 2  # it is not known


def test_an_unexpected_error_does_not_end_the_reports(
    slurm: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    own_element, plain, failures = OwnElement(ENV, SignalListener()), job_comment.write, []

    def write(*words: Any) -> None:
        failures.append(words)
        if len(failures) < 3:
            raise ValueError("odd")
        plain(*words)

    monkeypatch.setattr(job_comment, "write", write)
    own_element.report(Standing.JOINED)
    wait_until(says(slurm, "joined{2}"))
    assert capfd.readouterr().err.count("ValueError: odd") == 1


def test_another_process_of_the_run_has_said_that_the_work_is_done(slurm: Path) -> None:
    """`malleable finish`, by the command that the agent runs."""
    agent = OwnElement(ENV, SignalListener())
    agent.report_started()
    (slurm / "comment").write_text("finished{2}")
    for later in (Standing.JOINED, Standing.LEAVING):
        seen = len(looked(slurm))
        agent.report(later)
        wait_until(lambda: len(looked(slurm)) > seen)  # noqa: B023
    agent.report_trained()
    time.sleep(0.5)
    assert says(slurm, "finished{2}")()
    assert [line.rpartition("=")[2] for line in asked(slurm)] == ["started{2}"]


def test_the_next_training_of_a_process_starts_without_old_words(slurm: Path) -> None:
    own_element = OwnElement(ENV, SignalListener())
    for word in ("joined", "trained"):
        own_element.report_started()
        assert says(slurm, "started{2}")()
        own_element.report(Standing.JOINED)
        wait_until(says(slurm, "joined{2}"))
        own_element.report_trained()
        wait_until(says(slurm, "trained{2}"))
        own_element.report_finished()
        assert says(slurm, "finished{2}")(), word


def test_slurm_that_takes_no_word_causes_no_long_delay(
    slurm: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "START_S", 1.0)
    (slurm / "refuse").touch()
    began = time.monotonic()
    OwnElement(ENV, SignalListener()).report_started()
    assert time.monotonic() - began > 0.8
    (slurm / "refuse").unlink()
    wait_until(says(slurm, "started{2}"))  # in the background
    (slurm / "comment").write_text("")
    path = os.environ["PATH"]
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(module, "START_S", 900.0)
    OwnElement(ENV, SignalListener()).report_started()
    monkeypatch.setattr(module, "START_S", 1.0)
    assert "squeue and scontrol not found in PATH" in capfd.readouterr().err
    monkeypatch.setenv("PATH", path)
    wait_until(says(slurm, "started{2}"))
    (slurm / "squeue").write_text("#!/bin/sh\nexec sleep 60\n")
    began = time.monotonic()
    OwnElement(ENV, SignalListener()).report_started()
    assert time.monotonic() - began < job_comment.TIMEOUT_S - 1  # the time of a single command
    assert capfd.readouterr() == ("", "")


BESIDE = """
import os, sys
import torch.distributed.run
import torch.distributed.elastic.rendezvous.registry
print("went on")
"""


@pytest.mark.torch
@pytest.mark.parametrize(
    ("command", "first", "has_remark"),
    [
        ("torchrun {script}", "started{2}", True),
        at_night("{python} -m torch.distributed.run {script}", "started{2}", True),
        ("{python} {launcher} {script}", "started{2}", True),
        ("torchrun --nproc-per-noda=1 {script}", "started{2}", False),
        at_night("torchrun --nproc-per-node=gpux {script} | cat", "started{2}", False),
        at_night("torchrun --help", "", False),
        at_night("{python} {script}", "", False),
        ("TORCHELASTIC_RUN_ID=7 {python} {script}", "", False),
    ],
)
def test_an_agent_that_gives_up_early_has_reported_itself(
    slurm: Path, gang: Gang, command: str, first: str, has_remark: bool
) -> None:
    """The shared directory is not the user's own. The script goes on."""
    taken(gang.shared)
    script = gang.work / "beside.py"
    script.write_text(BESIDE)
    launcher = Path(__file__).with_name("launch_as_accelerate.py")
    line = command.format(script=script, python=sys.executable, launcher=launcher)
    bins = f"{slurm}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    gang.extra = {**ENV, "PATH": bins, "MALLEABLE_ENGINE": "torchrun"}
    done = subprocess.run(
        ["/bin/sh", "-c", f"{line}; echo behind"],
        env={**gang.environment(3, "1:2"), **ENV},
        cwd=gang.work,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0
    assert "behind" in done.stdout
    assert ("went on" in done.stdout) is (not first and "help" not in command), said
    text = (slurm / "comment").read_text()
    assert _standing(text) == first, (text, said)
    assert ("remark{" in text) is has_remark, (text, said)
    assert bool(asked(slurm)) is bool(first)


def _standing(text: str) -> str:
    comment = replace(parse(text), loss=None, wish=None, progress="", remark="", rest="")
    return comment.text


def taken(place: Path) -> None:
    """A directory of another user, as far as the caller can make it."""
    if os.geteuid() == 0:
        place.mkdir()
        os.chown(place, 65534, 65534)
    else:
        place.write_text("")


def test_words_are_written_in_order_and_repeated_until_slurm_shows_them(slurm: Path) -> None:
    own_element = OwnElement(ENV, SignalListener())
    (slurm / "refuse").touch()
    own_element.report(Standing.JOINED)
    wait_until((slurm / "asked").exists)
    (slurm / "refuse").unlink()
    wait_until(says(slurm, "joined{2}"))
    own_element.report_trained()
    wait_until(says(slurm, "trained{2}"))
    (slurm / "comment").write_text("joined{2};progress{a=1}")  # by an agent that had read before
    wait_until(says(slurm, "trained{2};progress{a=1}"))
    own_element.report(Standing.LEAVING)
    wait_until(says(slurm, "leaving{2};progress{a=1}"))


def test_a_finish_is_reported_before_the_script_goes_on(
    slurm: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    own_element = OwnElement(ENV, SignalListener())
    (slurm / "refuse").touch()
    late = threading.Timer(1.0, (slurm / "refuse").unlink)
    late.start()
    own_element.report_finished()
    late.join()
    assert says(slurm, "finished{2}")()
    (slurm / "refuse").touch()
    (slurm / "comment").write_text("")
    monkeypatch.setattr(module, "FINISH_S", 1.0)
    own_element.report_finished()
    assert "the run may count as failed" in capfd.readouterr().err


def test_without_slurms_commands_a_finish_is_not_waited_for(
    slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = os.environ["PATH"]
    own_element = OwnElement(ENV, SignalListener())
    monkeypatch.setenv("PATH", "/nowhere")
    own_element.report_started()
    monkeypatch.setattr(module, "FINISH_S", 900.0)
    own_element.report_finished()
    monkeypatch.setenv("PATH", path)  # they were away for a while
    own_element.report_finished()
    assert says(slurm, "finished{2}")()


def test_only_the_first_node_speaks_and_only_in_an_array(slurm: Path) -> None:
    for env in ({**ENV, "SLURM_PROCID": "1"}, {"SLURM_JOB_ID": "7"}, {}):
        own_element = OwnElement(env, SignalListener())
        own_element.report(Standing.JOINED)
        own_element.report_finished()
    OwnElement({"SLURM_JOB_ID": "7"}, SignalListener()).put_back()  # returns: the script may go on
    assert not (slurm / "asked").exists()


GO = """
import os, sys
from slurm_hooks.elastic.batch import comment_writer, job_comment, remark
from slurm_hooks.elastic.batch import own_element as module
from slurm_hooks.elastic.signals import SignalListener
module.AGAIN_S = 0.3
job_comment.TIMEOUT_S = float(os.environ.get("TIMEOUT_S", job_comment.TIMEOUT_S))
signals = SignalListener()
signals.listen()
own_element = module.OwnElement(os.environ, signals)
if sys.argv[1:]:
    own_element._has_trained = True
print("going", flush=True)
own_element.put_back()
print("gone", flush=True)
"""


def going(slurm: Path, *words: str, **more: str) -> subprocess.Popen[str]:
    agent = launch([sys.executable, "-c", GO, *words], {**os.environ, **ENV, **more})
    assert agent.stdout is not None
    assert agent.stdout.readline() == "going\n"
    return agent


def asked(slurm: Path) -> list[str]:
    path = slurm / "asked"
    return path.read_text().splitlines() if path.exists() else []


def end(agent: subprocess.Popen[str]) -> None:
    assert agent.poll() is None  # it never lets the script go on by itself
    agent.send_signal(signal.SIGTERM)
    assert agent.communicate(timeout=150)[0] == "gone\n"
    assert agent.returncode == 0


def test_a_leaver_puts_itself_back_and_waits_for_its_end(
    slurm: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (slurm / "refuse").touch()
    agent = going(slurm)
    wait_until(lambda: asked(slurm).count("requeue 7_3") >= 2)  # refused: again
    (slurm / "refuse").unlink()
    wait_until((slurm / "requeued").exists)
    tried = asked(slurm)
    time.sleep(0.7)
    assert asked(slurm) == tried  # accepted: not repeated, because it could reach the next run
    assert set(tried) == {"uhold 7_3", "requeue 7_3"}
    end(agent)
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(
        "malleable: scontrol requeue 7_3 failed: Access/permission denied; retrying"
    )


def test_a_leaver_that_is_held_despite_a_refusal_puts_itself_back(slurm: Path) -> None:
    (slurm / "held").touch()
    agent = going(slurm)
    wait_until((slurm / "requeued").exists)
    end(agent)


def test_a_leaver_tries_again_after_a_scontrol_that_hangs(
    slurm: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (slurm / "hang").touch()
    agent = going(slurm, TIMEOUT_S="2")
    wait_until(lambda: asked(slurm).count("requeue 7_3") >= 2)
    (slurm / "hang").unlink()
    wait_until((slurm / "requeued").exists)
    end(agent)
    assert "did not answer within 2 s; retrying" in capfd.readouterr().err


def test_a_leaver_without_scontrol_waits_as_well(
    slurm: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    agent = going(slurm, PATH="/nowhere")
    time.sleep(1.0)
    end(agent)
    assert asked(slurm) == []
    (line,) = capfd.readouterr().err.splitlines()
    assert "scontrol uhold 7_3 failed: scontrol is not in PATH" in line


def test_a_leaver_that_has_trained_says_so_last(slurm: Path) -> None:
    (slurm / "comment").write_text("leaving{2};mine")
    agent = going(slurm, "trained")
    wait_until(lambda: asked(slurm)[-1:] == ["requeue 7_3"])
    assert says(slurm, "trained{2};mine")()
    end(agent)


@pytest.mark.parametrize("run", ["PENDING 2", "PENDING 3", "RUNNING 3"])
def test_a_leaver_never_ends_another_run(slurm: Path, run: str) -> None:
    """Its node was out of reach, so Slurm has ended its run, and perhaps begun the next."""
    (slurm / "run").write_text(f"{run}  \n")
    (slurm / "comment").write_text("started{3};mine")
    agent = going(slurm, "trained")
    wait_until(lambda: any("RestartCnt" in line for line in looked(slurm)))
    time.sleep(0.7)
    assert asked(slurm) == []
    end(agent)


@pytest.mark.parametrize("run", ["RUNNING 2", "COMPLETING 2", "", "\n", "slurm_load_jobs error: x"])
def test_a_leaver_of_this_run_puts_itself_back(slurm: Path, run: str) -> None:
    (slurm / "run").write_text(run)
    agent = going(slurm)
    wait_until(lambda: asked(slurm)[-1:] == ["requeue 7_3"])
    end(agent)


def test_an_agent_of_an_earlier_run_keeps_the_words_of_the_later(slurm: Path) -> None:
    (slurm / "comment").write_text("started{3};mine")
    own_element = OwnElement(ENV, SignalListener())
    own_element.report(Standing.JOINED)
    own_element.report_finished()
    assert says(slurm, "started{3};mine")()
    assert asked(slurm) == []


def test_an_earlier_scancel_is_not_undone(slurm: Path) -> None:
    signals = SignalListener()
    signals.is_terminated = True
    OwnElement(ENV, signals).put_back()
    assert asked(slurm) == []


def test_other_nodes_of_the_fragment_wait_without_a_word(slurm: Path) -> None:
    agent = going(slurm, SLURM_PROCID="1")
    time.sleep(1.0)
    end(agent)
    assert asked(slurm) == []


RATE = ToldRate(4, 1000.0, 0.01, 1_790_000_000, 64.0)


def test_the_rates_of_an_earlier_run_are_known_at_the_start(slurm: Path) -> None:
    (slurm / "knows-all").touch()
    for comment, known in (
        (f"trained{{1}};{entry_of(Progress((RATE,)))};mine", (RATE,)),
        ("mine", ()),
    ):
        (slurm / "comment").write_text(comment)
        own = OwnElement(ENV, SignalListener())
        own.report_started()
        assert (own.earlier_progress or Progress()).rates == known


def says_news(slurm: Path, *parts: str) -> Callable[[], bool]:
    return lambda: (slurm / "comment").read_text() == ";".join(parts)


@pytest.fixture
def joined(slurm: Path) -> OwnElement:
    """A fragment that has joined. Its user has written `mine`."""
    (slurm / "comment").write_text("mine")
    own_element = OwnElement(ENV, SignalListener())
    own_element.report(Standing.JOINED)
    wait_until(says(slurm, "joined{2};mine"))
    (slurm / "asked").unlink()
    return own_element


def test_news_of_the_training_follow_its_standing_in_the_same_change(
    slurm: Path, joined: OwnElement, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comment_writer, "EVERY_S", 1.5)
    joined.report_loss(Loss(60))
    joined.report_progress(Progress((RATE,)))
    first = entry_of(Progress((RATE,)))
    wait_until(says_news(slurm, "joined{2}", "h{60}", first, "mine"))
    assert len(asked(slurm)) == 1
    began = time.monotonic()
    wait_until(lambda: joined.told_progress == Progress((RATE,)) and joined.told_loss == Loss(60))
    for per_s in (1.0, 2.0, 3.0):
        joined.report_progress(Progress((replace(RATE, per_s=per_s),)))
    last = entry_of(Progress((replace(RATE, per_s=3.0),)))
    wait_until(says_news(slurm, "joined{2}", "h{60}", last, "mine"))
    assert time.monotonic() - began > 0.5
    assert len(asked(slurm)) == 2


def test_waiting_news_are_written_with_the_next_standing(slurm: Path, joined: OwnElement) -> None:
    """Without the standing they would have waited for EVERY_S."""
    joined.report_loss(Loss(60))
    wait_until(lambda: joined.told_loss == Loss(60))
    joined.report_loss(Loss(90))
    time.sleep(0.5)
    assert says_news(slurm, "joined{2}", "h{60}", "mine")()
    joined.report(Standing.LEAVING)
    wait_until(says_news(slurm, "leaving{2}", "h{90}", "mine"))
    assert len(asked(slurm)) == 2


def test_news_after_a_while_without_are_written_at_once(
    slurm: Path, joined: OwnElement, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comment_writer, "EVERY_S", 2.0)
    joined.report_loss(Loss(60))
    wait_until(lambda: joined.told_loss == Loss(60))
    time.sleep(2.0)
    monkeypatch.setattr(comment_writer, "EVERY_S", 900.0)
    joined.report_loss(Loss(90))
    wait_until(says_news(slurm, "joined{2}", "h{90}", "mine"))


def test_news_wait_their_turn_after_a_remark(
    slurm: Path, joined: OwnElement, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comment_writer, "EVERY_S", 2.0)
    remark.write_remark("flag", ENV)
    wait_until(says_news(slurm, "joined{2}", "mine", "remark{flag}"))
    began = time.monotonic()
    joined.report_loss(Loss(60))
    wait_until(says_news(slurm, "joined{2}", "h{60}", "mine", "remark{flag}"))
    assert time.monotonic() - began > 1.0


def test_the_cost_of_an_interruption_is_withdrawn_and_the_rest_kept(
    slurm: Path, joined: OwnElement
) -> None:
    first = entry_of(Progress((RATE,)))
    (slurm / "comment").write_text(f"joined{{2}};h{{1}};{first};mine")
    joined.report_loss(None)
    wait_until(says_news(slurm, "joined{2}", first, "mine"))
    wait_until(lambda: joined.told_loss is None)


def test_news_that_are_not_recorded_are_not_reported(
    slurm: Path, joined: OwnElement, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comment_writer, "EVERY_S", 0.5)
    (slurm / "refuse").touch()
    joined.report_progress(Progress((RATE,)))
    wait_until(lambda: asked(slurm) != [])
    time.sleep(1.5)
    assert joined.told_progress is None
    (slurm / "refuse").unlink()
    wait_until(lambda: joined.told_progress is not None)


def test_news_wait_where_no_thread_can_be_started(
    slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user may have as many processes as the node allows. The training goes on."""
    own = OwnElement(ENV, SignalListener())
    own.report_started()
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        own.report_progress(Progress((RATE,)))
        own.report(Standing.TRAINED)
    own.report_progress(Progress((RATE,)))
    wait_until(lambda: own.told_progress is not None)
    own.report(Standing.LEAVING)
    wait_until(lambda: (slurm / "comment").read_text().startswith("leaving{2}"))


def refuse(*_: object) -> None:
    raise RuntimeError("can't start new thread")


def test_outside_of_an_array_there_are_no_news(slurm: Path) -> None:
    OwnElement({"SLURM_JOB_ID": "7"}, SignalListener()).report_progress(Progress((RATE,)))
    time.sleep(0.5)
    assert asked(slurm) == []


def test_reports_reach_the_agent_too() -> None:
    mailbox = Mailbox()
    reporter = Reporter({**ENV, **mailbox.environment()}, every_s=0.0)
    reporter.report(12)
    assert mailbox.samples() == 12


def test_the_end_of_the_training_for_an_agent_that_has_finished(tmp_path: Path) -> None:
    """The agent may leave before the others have finished, and the next training may begin.

    Both may happen before it reads the state again.
    """
    directory = SharedDirectory(tmp_path / "job", "7")
    directory.open()
    others = Member("b" * 16, 2, 0, "1.0", "n2")
    me = Membership(
        Member("a" * 16, 1, 0, "1.0", "n1"),
        directory,
        Heartbeat(directory, "a" * 16, 1.0, 6.0),
        SignalListener(),
    )
    try:
        assert me.ask_in(0) is Admission.JOIN
        directory.update(lambda s: form(join(s, others), Limits(2, 2), "n1", 1, 1000))
        me.tell_success()
        assert me.outcome() is None
        late = threading.Timer(0.5, directory.update, [lambda s: succeed(s, others.token, 1001)])
        late.start()
        wait_until(lambda: me.outcome() is Outcome.FINISHED)
        late.join()
        assert me.outcome() is Outcome.FINISHED
        directory.update(lambda s: restart(s, 2))
        assert me.outcome() is Outcome.FINISHED
        directory.update(lambda s: fail(restart(s, 1), 1002))
        assert me.outcome() is Outcome.FAILED
    finally:
        me.fall_silent()


def test_a_finished_training_is_finished_also_for_late_readers(tmp_path: Path) -> None:
    """An agent that was done had to leave before the others had finished.

    Slurm put it back, and it starts as if the job had another run.
    """
    directory = SharedDirectory(tmp_path / "job", "7")
    directory.open()
    members = [
        Membership(
            Member(f"{n:016x}", n, 0, "1.0", "n1"),
            directory,
            Heartbeat(directory, f"{n:016x}", 1.0, 6.0),
            SignalListener(),
        )
        for n in (1, 2, 3)
    ]
    goes, waits, is_last = members
    back = Membership(
        replace(goes.me, token="b" * 16, incarnation="1.1"),
        directory,
        Heartbeat(directory, "b" * 16, 1.0, 6.0),
        SignalListener(),
    )
    try:
        for member in members:
            assert member.ask_in(0) is Admission.JOIN
        directory.update(lambda s: form(s, Limits(3, 3), "n1", 1, 1000))
        for member in (goes, waits):
            member.tell_success()
            assert member.outcome() is None
        goes.fall_silent()
        is_last.tell_success()
        assert back.ask_in(0) is Admission.RESTART
        assert [waits.outcome(), is_last.outcome()] == [Outcome.FINISHED] * 2
        assert back.outcome() is None  # its own goes on
    finally:
        for member in (*members, back):
            member.fall_silent()


def test_only_sigterm_ends_an_agent_without_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    class SignalException(Exception):
        pass

    shown: list[str] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: shown.append(kind.__name__))
    signals = SignalListener()
    end_quietly(signals, lambda: shown.append("one line"))
    sys.excepthook(SignalException, SignalException(), None)  # SIGINT: a person asks
    signals.is_terminated = True
    sys.excepthook(ValueError, ValueError(), None)
    sys.excepthook(SignalException, SignalException(), None)
    assert shown == ["SignalException", "ValueError", "one line"]


def test_an_agent_that_sigterm_ended_skips_the_teardown_but_not_the_exit_handlers() -> None:
    program = """
import atexit, sys
from slurm_hooks.elastic.signals import SignalListener, skip_teardown

class Freed:
    def __del__(self):
        print("freed", flush=True)

signals, kept = SignalListener(), Freed()
skip_teardown(signals)
atexit.register(print, "called")
signals.has_ended = len(sys.argv) > 1
"""
    said = [
        subprocess.run(
            [sys.executable, "-c", program, *words],
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        for words in ([], ["ended"])
    ]
    assert [(run.stdout.split(), run.returncode) for run in said] == [
        (["called", "freed"], 0),
        (["called"], 1),
    ]
