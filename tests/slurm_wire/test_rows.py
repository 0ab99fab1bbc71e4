"""Rows of squeue are read, also with odd content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fake_answers import row as squeue_row
from slurm_hooks.model import FragmentState, MalleableJob, Needs, Resources, Said
from slurm_hooks.slurm.jobs import Jobs, exit_code, fragment_state, parse_jobs
from slurm_hooks.slurm.rows import (
    JOB_FIELDS,
    RECORD_END,
    SAID_WIDTH,
    jobs_command,
)

MARK = "malleable{min=1,max=6,unit=1,engine=torchrun,frags=6,lease=120,hole=60}"


@pytest.mark.parametrize(
    ("text", "priority", "state"),
    [
        ("PENDING", "0", FragmentState.HELD),
        ("PENDING", "4294901750", FragmentState.PENDING),
        ("REQUEUED", "0", FragmentState.HELD),
        ("REQUEUE_HOLD", "0", FragmentState.HELD),
        ("SPECIAL_EXIT", "0", FragmentState.SPECIAL),
        ("RUNNING", "0", FragmentState.RUNNING),  # `scontrol hold` on a running job, 22.05
        ("RUNNING", "1", FragmentState.RUNNING),
        ("CONFIGURING", "1", FragmentState.RUNNING),
        ("COMPLETING", "1", FragmentState.ENDING),
        ("STAGE_OUT", "1", FragmentState.ENDING),
        ("COMPLETED", "1", FragmentState.DONE),
        ("TIMEOUT", "1", FragmentState.TIMED_OUT),
        ("PREEMPTED", "1", FragmentState.TIMED_OUT),
        ("NODE_FAIL", "1", FragmentState.LOST),
        ("BOOT_FAIL", "1", FragmentState.LOST),
        ("SUSPENDED", "0", FragmentState.SUSPENDED),
        ("CANCELLED", "0", FragmentState.CANCELLED),
        ("DEADLINE", "0", FragmentState.CANCELLED),
        *[
            (word, "1", FragmentState.FAILED)
            for word in [
                "FAILED",
                "OUT_OF_MEMORY",
            ]
        ],
        *[
            (word, "1", FragmentState.UNKNOWN)
            for word in ("STOPPED", "RESIZING", "SIGNALING", "REVOKED", "NEW", "")
        ],
    ],
)
def test_fragment_states(text: str, priority: str, state: FragmentState) -> None:
    assert fragment_state(text, priority) is state


def read(*lines: str, lanes: Sequence[str] = ("malleable",)) -> Jobs:
    return parse_jobs("".join(f"{line}\n" for line in lines), lanes)


def row(job: str = "7_0", comment: str = MARK, said: str = "(null)", **values: object) -> str:
    values.setdefault("Partition", "malleable")
    values.setdefault("State", "PENDING")
    values.setdefault("PriorityLong", 0)
    return squeue_row(
        JobArrayID=job, UserName="nobody", admin_comment=comment, comment=said, **values
    )


def test_no_word_of_a_user_is_asked_for() -> None:
    written_by_users = {"Name", "Comment", "Command", "WorkDir", "Licenses", "WCKey"}
    assert not written_by_users & set(JOB_FIELDS)
    assert "--array" in jobs_command().argv


def test_the_bytes_of_a_comment_come_last_and_cannot_hold_an_end_of_a_row() -> None:
    assert JOB_FIELDS[-2:] == ("admin_comment", "comment")
    assert jobs_command().argv[-1].endswith(f",admin_comment:|,comment:{SAID_WIDTH}{RECORD_END}")
    assert len(RECORD_END) > SAID_WIDTH + 1


@pytest.mark.parametrize(
    ("comment", "said", "has_agent"),
    [
        ("joined{2};my own text", Said.JOINED, True),
        ("finished{2}", Said.FINISHED, True),
        ("started{2};x", Said.STARTED, True),
        ("joined{1};", Said.NOTHING, True),  # of the run before
        ("trained{2};h{12};", Said.TRAINED, True),
        ("trained{2};h{123456};", Said.TRAINED, True),
        ("trained{2,h=12}", Said.NOTHING, False),
        ("joined{2", Said.NOTHING, False),
        ("my own joined{2}", Said.NOTHING, False),
        ("d\u00e9j\u00e0 vu|a|b|c", Said.NOTHING, False),
        ("", Said.NOTHING, False),
        ("(null)", Said.NOTHING, False),
    ],
)
def test_words_of_the_agent_are_read(comment: str, said: Said, has_agent: bool) -> None:
    (job,) = read(row(State="RUNNING", restartcnt=2, said=comment)).malleable
    assert (job.fragments[0].said, job.fragments[0].has_agent) == (said, has_agent)
    assert job.fragments[0].note == "\0"


@pytest.mark.parametrize(
    ("comment", "loss_s"),
    [
        ("trained{2};h{0};x", 0.0),
        ("joined{2};h{99999}", 99999.0),
        ("joined{2};h{600}r;x", 600.0),
        ("finished{9999};h{99999}", None),  # of another run, as is the next
        ("trained{1};h{5}", None),
        ("trained{2}", None),
        ("trained{2};own;h{5}", None),
        ("trained{2};h{-1}", None),
        ("trained{2};h{1.5}", None),
        ("trained{2};h{123456}", None),
    ],
)
def test_words_of_the_agent_about_interruptions_are_read(
    comment: str, loss_s: Optional[float]
) -> None:
    (job,) = read(row(State="RUNNING", restartcnt=2, said=comment)).malleable
    assert job.loss_s == job.fragments[0].loss_s == loss_s


@pytest.mark.parametrize(
    ("comment", "redoes"),
    [
        ("trained{2};h{600}r", True),
        ("finished{9999};h{99999}r", False),  # of another run
        ("trained{2};h{600};r", False),
        ("trained{2}r", False),
    ],
)
def test_a_planned_change_may_cost_as_much_as_an_interruption(comment: str, redoes: bool) -> None:
    (job,) = read(row(State="RUNNING", restartcnt=2, said=comment)).malleable
    assert job.redoes is redoes


def test_words_of_a_waiting_fragment_are_of_its_last_run() -> None:
    (job,) = read(row(restartcnt=2, said="trained{1}")).malleable
    assert job.fragments[0].said is Said.TRAINED
    requeued = {"PriorityLong": 9, "restartcnt": 1, "EligibleTime": 1_900_000_000}
    (job,) = read(row(said="leaving{0}", **requeued)).malleable
    assert job.fragments[0].said is Said.LEAVING


@pytest.mark.parametrize("restarts", [0, 1])
def test_words_of_an_ending_fragment_are_of_this_run_also_after_a_requeue(restarts: int) -> None:
    """Slurm counts a restart before the end of the run (22.05)."""
    ending = {"State": "COMPLETING", "restartcnt": restarts}
    (job,) = read(row(said="trained{0};h{5}", **ending)).malleable
    assert job.fragments[0].said is Said.TRAINED
    assert job.loss_s == 5.0


@pytest.mark.parametrize("said", ["a\nb", "\n", "\n\n\n", "x\x0by", "a\r", "\x85", "|\n|", "a\n7|"])
def test_a_users_comment_of_several_lines_is_no_news(said: str) -> None:
    others = squeue_row(JobArrayID="5", State="RUNNING", Partition="main", comment=said)
    queue = read(others, row(State="RUNNING", said="trained{0};h{7}\nmine"), others)
    assert (queue.records, queue.unknown) == (3, ())
    (job,) = queue.malleable
    assert (job.fragments[0].said, job.fragments[0].loss_s) == (Said.TRAINED, 7.0)


FORGED = "|".join(["8_0", "RUNNING", "9", "malleable", "root", *[""] * 8, "n1", *[""] * 7])


def as_seen(job: MalleableJob) -> tuple[Any, ...]:
    """The row without its user's words."""
    return (job.job_id, [replace(f, said=Said.NOTHING, telemetry=None) for f in job.fragments])


@pytest.mark.parametrize("end", ["|", RECORD_END, RECORD_END[1:], "|=", "\n", ""])
@pytest.mark.parametrize("start", ["\n", "x\n", "\r\n", "\u2028", "\x85", "|(null)|\n", "|x|\n"])
def test_a_row_in_a_comment_is_no_row(start: str, end: str) -> None:
    whole = f"{start}{FORGED};|malleable{{min=1,max=6,unit=1,frags=6,lease=9,hole=6}}|{end}"
    honest = read(row("7_0", State="RUNNING"), row("7_1"))
    for said in (whole, f"{start}{whole[-SAID_WIDTH + len(start) :]}", start + "\n" + FORGED):
        jobs = read(row("7_0", State="RUNNING", said=said), row("7_1"))
        assert list(map(as_seen, jobs.malleable)) == list(map(as_seen, honest.malleable))
        assert (jobs.unknown, jobs.records) == ((), 2)


COMMENTS = st.text(st.sampled_from("\n\r\x0b\u2028|=;{}7_0 \u00e9malebRUNIG"), max_size=SAID_WIDTH)


@settings(deadline=None)
@given(
    st.lists(COMMENTS | COMMENTS.map(lambda text: "=" * SAID_WIDTH + text), max_size=3),
    st.integers(0, SAID_WIDTH),
)
def test_text_of_users_makes_no_rows(said: list[str], end: int) -> None:
    texts = [*said, "=" * end + "\n", "|" + "=" * end + "\n" + FORGED]
    jobs = read(*(row(f"{n}_0", said=text) for n, text in enumerate(texts, 1)))
    assert [job.job_id for job in jobs.malleable] == list(range(1, len(texts) + 1))
    assert (jobs.unknown, jobs.records) == ((), len(texts))


def test_a_row_that_is_cut_off_is_no_row() -> None:
    whole = row(said=f"x\n{row('8_0')}")
    for size in range(1, len(whole), 7):
        assert parse_jobs(whole[:-size], ["malleable"]).malleable == ()


def test_lines_before_a_row_are_no_part_of_it() -> None:
    jobs = read(f"squeue: some trouble\n\n{row()}", row("7_1"))
    assert [f.id.index for f in jobs.malleable[0].fragments] == [0, 1]
    assert (len(jobs.unknown), jobs.records) == (2, 4)


def test_a_line_break_in_the_comment_of_an_operator_ends_it() -> None:
    (job,) = read(row(comment=f"{MARK} note\nmore", State="RUNNING", said="joined{0}")).malleable
    assert job.fragments[0].note == "\0 note"
    assert job.fragments[0].said is Said.JOINED


@pytest.mark.parametrize("features", ["a&b", "a|b", "[a|b]", "(a|b)&c", "a*2"])
def test_features_may_hold_a_separator(features: str) -> None:
    (job,) = read(row(Feature=features)).malleable
    assert job.needs.features == features


def test_the_job_s_request_of_a_node_is_read() -> None:
    line = row(MinMemory="2G", MinCPUs=4, **{"tres-per-node": "gres:gpu:a100:2"})
    (job,) = read(line).malleable
    assert job.needs == Needs("", 2048, 4, (("gpu", 2), ("gpu:a100", 2)))


SLOTS = f"{MARK[:-1]},slot=gpu:a100+cpu:3,slots=4}}"
CORES = f"{MARK[:-1]},slot=cpu:3,slots=4}}"


@pytest.mark.parametrize("prefix", ["gres:", "gres/"])
def test_the_resources_of_a_fragment_that_counts_slots_are_read(prefix: str) -> None:
    """Two columns give the processors. A run with hyperthreads has a processor more than it
    asked for.
    """
    sizes = {"MinCPUs": 3, "NumCPUs": 4, "MinMemory": "9G"}
    gres = {"tres-per-node": f"{prefix}gpu:a100:1,{prefix}tmp:5"}
    waits = row(comment=SLOTS, **sizes, **gres)
    runs = row("7_1", comment=SLOTS, State="RUNNING", NodeList="n1", **sizes, **gres)
    (job,) = read(waits, runs).malleable
    gpu = (("gpu", 1), ("gpu:a100", 1))
    assert [f.asks for f in job.fragments] == [Resources(n, 9216, gpu) for n in (3, 4)]


@pytest.mark.parametrize(("mark", "text"), [(SLOTS, "gpu:a100:4"), (SLOTS, "N/A"), (CORES, "x:2")])
def test_gpus_that_slurm_does_not_give(mark: str, text: str) -> None:
    """Slurm (22.05) shows `gpu:4` after an update that it does not obey."""
    (job,) = read(row(comment=mark, MinCPUs=12, NumCPUs=12, **{"tres-per-node": text})).malleable
    assert job.fragments[0].asks == Resources(12)


def test_a_job_that_counts_slots_needs_features_only() -> None:
    """Its fragments differ in all other values."""
    sizes = {"MinCPUs": 12, "NumCPUs": 12, "MinMemory": "9G", "tres-per-node": "gres:gpu:4"}
    (job,) = read(row(comment=SLOTS, Feature="ib", **sizes)).malleable
    assert job.needs == Needs("ib")
    (job,) = read(row(**sizes)).malleable
    assert job.fragments[0].asks == Resources()


@pytest.mark.parametrize(("text", "mib"), [("2048K", 2), ("300", 300), ("62.50G", 64000)])
def test_memory_is_read_in_each_unit(text: str, mib: int) -> None:
    (job,) = read(row(MinMemory=text)).malleable
    assert job.needs.memory_mib == mib


def test_a_wait_for_other_jobs_is_read() -> None:
    (job,) = read(row(Dependency="afterany:3(unfulfilled)")).malleable
    assert job.fragments[0].depends
    (job,) = read(row(Dependency="(null)")).malleable
    assert not job.fragments[0].depends


@pytest.mark.parametrize("priority", ["\u00b2", "-1", "1e9", ""])
def test_an_odd_priority_or_time_stops_no_job(priority: str) -> None:
    jobs = read(row(PriorityLong=priority), row("8_0", SubmitTime="soon"), row("9_0"))
    assert 9 in [job.job_id for job in jobs.malleable]
    assert any("8" in line for line in jobs.unknown)


@pytest.mark.parametrize("note", ["|", "a|b||c", "x=1; ", "{}", "RUNNING|0|"])
def test_pipes_in_the_site_s_comment(note: str) -> None:
    (job,) = read(row(comment=note + MARK)).malleable
    assert job.fragments[0].note.startswith(note)
    assert job.fragments[0].note.count("|") == note.count("|")


def test_an_empty_queue_is_no_oddity() -> None:
    assert parse_jobs("", ["malleable"]).unknown == ()


def test_lines_that_are_no_rows() -> None:
    jobs = read("slurm_load_jobs error", "", row(), "7_1|RUNNING")
    assert len(jobs.malleable) == 1
    assert len(jobs.unknown) == 3
    assert read(f"7_1|RUNNING\n{row()}").malleable == ()  # it is unknown which is true


def test_elements_become_a_single_job_in_order() -> None:
    jobs = read(row("7_10"), row("8_0"), row("7_2"))
    assert [j.job_id for j in jobs.malleable] == [7, 8]
    assert [f.id.index for f in jobs.malleable[0].fragments] == [2, 10]


@pytest.mark.parametrize("comment", ["malleable{a=1}", MARK.replace("max=6", "max=0")])
def test_a_broken_mark_concerns_a_single_element(comment: str) -> None:
    jobs = read(row("7_0", comment), row("7_1"))
    assert [f.id.index for f in jobs.malleable[0].fragments] == [1]
    assert "7_0 left alone" in jobs.unknown[0]
    assert jobs.malleable[0].unread == 1  # it is there, so it was not cancelled


@pytest.mark.parametrize("damaged", ["7_0|RUNNING", "7_0", "RUNNING|n1|"])
def test_a_row_that_is_not_whole_may_be_an_element(damaged: str) -> None:
    (job,) = read(row("7_1"), damaged).malleable
    assert job.unread == 1


@pytest.mark.parametrize("element", ["123+0", "8_[0-3]", "8_[0-3]%2"])
def test_a_row_of_another_job_that_is_not_whole_concerns_that_job(element: str) -> None:
    (job,) = read(row("7_1"), f"{element}|PENDING|1").malleable
    assert job.unread == 0


def test_a_line_that_is_no_row_is_no_element() -> None:
    (job,) = read("slurm_load_jobs error", row("7_1")).malleable
    assert job.unread == 0


def test_an_element_in_another_partition_was_not_cancelled() -> None:
    (job,) = read(row("7_0"), row("7_1", Partition="main")).malleable
    assert job.unread == 1


def test_an_element_without_its_mark_was_not_cancelled_and_is_named() -> None:
    jobs = read(row("7_0"), row("7_1", "ticket 7"), row("8_0", ""))
    assert jobs.malleable[0].unread == 1
    assert jobs.unknown == (
        "squeue: job 7: 7_1 left alone: its AdminComment has lost the mark malleable{...}; write "
        "the mark of a waiting element of the job there",
    )
    assert read(row("7_0"), row("7_1", "", State="CANCELLED")).malleable[0].unread == 0


def test_a_mark_on_something_that_is_no_element() -> None:
    assert "not an array element" in read(row("7")).unknown[0]
    assert "not an array element" in read(row("7_[0-3]")).unknown[0]
    jobs = read(row("7_[1-3]", State="CANCELLED"), row(State="FAILED"))
    assert jobs.unknown == ()
    assert jobs.malleable[0].is_cut


def test_other_partitions_are_not_ours() -> None:
    assert read(row(Partition="main")).malleable == ()


def test_marked_elements_elsewhere_are_named_job_by_job() -> None:
    """They are not preempted there. It does not matter who moved them."""
    elsewhere = [row(f"7_{n}", Partition="main,malleable") for n in range(3)]
    runs = row("8_1", Partition="main", State="RUNNING", PriorityLong=9)
    ended = row("8_2", Partition="main", State="COMPLETED")
    jobs = read(*elsewhere, runs, ended, row("9_0", "site", Partition="main"), row("6_0"))
    assert [job.job_id for job in jobs.malleable] == [6]
    waiting, running = jobs.unknown
    assert waiting.startswith("job 7 of nobody waits with 3 elements in partition main,malleable, ")
    assert running.startswith("job 8 of nobody runs 1 element in partition main, which site.part")
    assert "`scontrol update jobid=7 Partition=malleable`" in waiting
    assert "do not come back" in running
    assert "scontrol" not in running, "Slurm moves no running job"


def test_a_moved_element_goes_back_to_the_lane_of_its_job() -> None:
    moved = [row(f"{job}_1", Partition="main") for job in (7, 8)]
    of_known, of_unknown = read(row("7_0", Partition="b"), *moved, lanes="ab").unknown
    assert "`scontrol update jobid=7 Partition=b`" in of_known
    assert of_unknown.endswith("`scontrol update jobid=8 Partition=LANE`, with a or b as LANE")


def test_a_core_in_its_user_s_partition_is_no_stray() -> None:
    core = MARK.replace("}", ",core=1,lane=malleable,hole=60}")
    jobs = read(row("7_0", core, Partition="main"), row("7_1", core))
    assert (len(jobs.malleable), jobs.unknown) == (1, ())


def test_a_core_starts_as_a_job_of_others_does() -> None:
    core = MARK.replace("}", ",core=1,lane=malleable,hole=60}")
    fields = {"State": "RUNNING", "StartTime": 1_800_000_300, "NodeList": "n1"}
    jobs = read(row("7_0", core, Partition="main", **fields), row("7_1", core, **fields))
    assert [(start.job_id, start.partition) for start in jobs.started] == [("7_0", "main")]


def test_an_ordinary_job_in_our_partition_can_have_a_planned_start() -> None:
    line = row("9", "(null)", StartTime=1_800_000_300, SchedNodes="n[1-2]", PriorityLong=5)
    (start,) = read(line).planned
    assert (start.job_id, start.nodes) == ("9", {"n1", "n2"})


@pytest.mark.parametrize(
    ("partition", "preempts"), [("malleable", False), ("main,malleable", False), ("main", True)]
)
def test_a_job_that_waits_in_the_lane_preempts_no_fragment(partition: str, preempts: bool) -> None:
    line = row("9", "(null)", StartTime=1_800_000_300, SchedNodes="n1", PriorityLong=5)
    (start,) = read(line.replace("|malleable|", f"|{partition}|")).planned
    assert start.preempts is preempts


def test_a_released_fragment_waits_for_its_node() -> None:
    (job,) = read(row(PriorityLong=9, ReqNodes="n3")).malleable
    assert job.fragments[0].nodes == {"n3"}
    assert job.fragments[0].is_tied
    assert not any(
        read(row(PriorityLong=9, ReqNodes=none)).malleable[0].fragments[0].is_tied
        for none in ("", "(null)")
    )
    (job,) = read(row(PriorityLong=0, ReqNodes="n3")).malleable
    assert job.fragments[0].nodes == frozenset()


def test_an_unreadable_host_list() -> None:
    jobs = read(row(State="RUNNING", NodeList="n[1-"), row("7_1"))
    assert "7_0 left alone" in jobs.unknown[0]
    assert len(jobs.malleable[0].fragments) == 1


# -- scontrol


@pytest.mark.parametrize(
    ("status", "code"),
    [("1792", "7:0"), ("9", "0:9"), ("7:0", "7:0"), *[(t, t) for t in ("", "\u00b2", "9" * 30)]],
)
def test_an_exit_code_is_read_or_left_as_text(status: str, code: str) -> None:
    assert exit_code(status) == code
