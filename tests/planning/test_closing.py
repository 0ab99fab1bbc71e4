"""The line that sums up a job's end, and the fragment whose mark gets it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from build import NOW, make_fragment, make_job, make_mark, make_snapshot
from slurm_hooks.history.harvest.jobs import JobLine
from slurm_hooks.model import FragmentId, FragmentState, Intent, Plan, Snapshot, Verb, Why
from slurm_hooks.model.job import NODE
from slurm_hooks.planning.check import Half
from slurm_hooks.planning.plan import ending_jobs, with_summaries
from slurm_hooks.slurm.actions import commands
from slurm_hooks.slurm.mark import format_mark, parse_mark, with_summary


def summary(node_s: float, interruptions: int, least: int, most: int, unit: str = NODE) -> str:
    """The line of a job with such a life."""
    sizes = (node_s, interruptions, least, most)
    return JobLine(7, "ann", "", *sizes, 1, most, NOW, NOW, unit=unit).summary


LINE = summary(44_280, 4, 2, 9)
RUNNING, DONE = FragmentState.RUNNING, FragmentState.DONE


def closing(job_id: int = 7) -> Plan:
    return Plan(tuple(Intent(FragmentId(job_id, i), Why.FINISHED, Verb.CANCEL) for i in (2, 3)))


def seen() -> Snapshot:
    job = make_job(make_fragment(0, DONE, ["n1"]), make_fragment(1, RUNNING, ["n2"]), held=2)
    return make_snapshot(job)


def lines(plan: Plan) -> list[tuple[str, str]]:
    return [(str(a.fragment), a.summary) for a in plan.actions if a.summary]


def test_a_single_running_fragment_gets_the_line() -> None:
    assert LINE == "malleable: 12.3 node-h, 4 interruptions, 2-9 nodes"
    assert lines(with_summaries(closing(), seen(), {7: LINE})) == [("7_1", LINE)]


def test_the_line_shares_the_mark_that_is_written_anyway() -> None:
    """A notice has such a line too, and no later write may undo it."""
    for verb in (Verb.STAY, Verb.NOTICE):
        mark = make_mark(is_finished=True)
        intent = Intent(FragmentId(7, 1), Why.FINISHED, verb, mark=mark)
        plan = with_summaries(Plan((intent, *closing().actions)), seen(), {7: LINE})
        (first, *_) = commands(Half.FIRST.of(plan.actions), {})
        assert " ".join(first.argv).endswith(format_mark(mark, summary=LINE))
        assert [a.verb for a in plan.actions if a.summary] == [verb]


def test_without_a_running_fragment_the_first_waiting_fragment_gets_the_line() -> None:
    only = make_snapshot(make_job(make_fragment(0, DONE, ["n1"]), held=3))
    assert lines(with_summaries(closing(), only, {7: LINE})) == [("7_1", LINE)]


def test_a_job_without_open_or_known_fragments_gets_no_line() -> None:
    over = make_snapshot(make_job(make_fragment(0, DONE, ["n1"])))
    assert with_summaries(closing(), over, {7: LINE}) == closing()
    assert with_summaries(closing(), seen(), {8: LINE}) == closing()
    assert with_summaries(Plan(), seen(), {7: LINE}) == Plan()
    assert ending_jobs(closing()) == {7}


def test_the_line_takes_a_command_more_and_precedes_the_cancel() -> None:
    plan = with_summaries(closing(), seen(), {7: LINE})
    first, second = commands(plan.actions, {FragmentId(7, 1): "ticket 42 \0 x"})
    assert first.argv[:3] == ("scontrol", "update", "jobid=7_1")
    assert first.argv[3].startswith("AdminComment=ticket 42 malleable{")
    assert first.argv[3].endswith(f" x {LINE}")
    assert second.argv[0] == "scancel"


@given(
    st.text(st.characters(blacklist_characters="{}|\0\n"), max_size=20),
    st.floats(0, 1e9),
    st.integers(0, 10**6),
    st.integers(0, 10**5),
    st.sampled_from(["node", "gpu", "task"]),
)
def test_the_line_is_replaced_and_the_site_s_own_text_is_kept(
    text: str, node_s: float, interruptions: int, most: int, unit: str
) -> None:
    rest = f"{text}\0"
    first = with_summary(rest, LINE)
    line = summary(node_s, interruptions, 0, most, unit)
    assert with_summary(with_summary(rest, line), LINE) == first
    again = with_summary(first, line)
    assert again == f"{rest} {line}"
    read_back = parse_mark(format_mark(make_mark(), first, line))
    assert read_back == (make_mark(), again)
