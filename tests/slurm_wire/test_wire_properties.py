"""Any output of Slurm is read, or reported as unknown, without a crash."""

from __future__ import annotations

from datetime import datetime, timezone

from hypothesis import example, given, settings
from hypothesis import strategies as st

from fake_answers import row
from slurm_hooks.model import NodeState
from slurm_hooks.slurm.cluster import Cluster, node_state, parse_cluster
from slurm_hooks.slurm.jobs import parse_jobs

many = settings(max_examples=100, deadline=None)
MARK = "malleable{min=1,max=6,unit=1,engine=torchrun,frags=6,lease=120,hole=60}"
ODD = st.sampled_from(
    [
        *("", "0", "-1", "N/A", "(null)", "None", "Unknown", "UNLIMITED", "1800000000", "7"),
        *("99999999999999999999", "9" * 400, "1e9", "1.5", "\u00b2", "\u0663", "n1", "n[1-3]"),
        *("n[1-", "n[3-1]", "@all", "n1,,n2", "n[1-3]!n2", "1-00:00:00", "1:2:3:4", "999999999-0"),
        *("RUNNING", "PENDING", "idle", "a b", "=", "malleable{", MARK),
    ]
) | st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\n"), max_size=12)


@st.composite
def job_rows(draw: st.DrawFn) -> str:
    """A row of ours with some fields that Slurm never prints, or no row at all."""
    usual = {
        "JobArrayID": f"{draw(st.integers(1, 3))}_{draw(st.integers(0, 3))}",
        "State": "RUNNING",
        "PriorityLong": 5,
        "Partition": "malleable",
        "UserName": "nobody",
        "TimeLimit": "10:00",
        "StartTime": 1_800_000_000,
        "EndTime": 1_800_000_600,
        "NodeList": "n1",
        "admin_comment": MARK,
    }
    names = [
        *usual,
        "SubmitTime",
        "EligibleTime",
        "restartcnt",
        "exit_code",
        "SchedNodes",
        "Reason",
    ]
    odd = draw(st.dictionaries(st.sampled_from([*names, "ReqNodes", "comment"]), ODD, max_size=4))
    return draw(st.just(row(**{**usual, **odd})) | st.just(row(**usual)) | ODD)


@many
@given(st.lists(job_rows(), max_size=6))
@example([row(JobArrayID="7_0", Partition="malleable", SubmitTime="soon", admin_comment=MARK)])
@example([row(JobArrayID="7_0", Partition="malleable", PriorityLong="\u00b2", admin_comment=MARK)])
@example([row(JobArrayID="7_0", Partition="malleable", TimeLimit="9" * 12, admin_comment=MARK)])
@example([row(JobArrayID="7_0", Partition="malleable", NodeList="@all", admin_comment=MARK)])
def test_any_answer_about_jobs_is_read(lines: list[str]) -> None:
    """An odd row costs only that row. Our rows are read or reported, and no row is dropped
    in silence.
    """
    good = row(JobArrayID="9_0", State="RUNNING", Partition="malleable", admin_comment=MARK)
    jobs = parse_jobs("\n".join([*lines, good]), ["malleable"])
    assert 9 in {job.job_id for job in jobs.malleable}
    assert all(job.fragments for job in jobs.malleable)
    read = sum(len(job.fragments) for job in jobs.malleable)
    ours = [line for line in lines if line.count("|malleable|") == 1 and MARK in line]
    assert read + len(jobs.unknown) >= len({line.split("|")[0] for line in ours})


CONFIG = "Configuration data as of 1800000000\nSLURM_VERSION = 22.05.8\nMinJobAge = {} sec"
NODE = "NodeName={} CPUTot={} RealMemory={} State={} Partitions=malleable,main ActiveFeatures={}"
BOOKING = "ReservationName=r StartTime={} EndTime={} Nodes={}"
PARTITION = "PartitionName={} PreemptMode={} State={}"


@st.composite
def cluster_lines(draw: st.DrawFn) -> str:
    form = draw(st.sampled_from([NODE, BOOKING, PARTITION, "{}", "{} = {}"]))
    return form.format(*(draw(ODD) for _ in range(form.count("{}"))))


def parsed(*lines: str) -> Cluster:
    return parse_cluster("\n".join((*lines, CONFIG.format(300))))


@many
@given(st.lists(cluster_lines(), max_size=6))
@example([BOOKING.format(1, 2, "n[1-")])
@example([BOOKING.format(1, 2, "@all")])
@example([BOOKING.format("9" * 400, 2, "n1")])
@example([NODE.format("n1", "9" * 5000, "1", "IDLE", "(null)")])
def test_any_answer_about_the_cluster_is_read(lines: list[str]) -> None:
    """With clock and version there is an answer. A good node beside odd lines is still known."""
    good = NODE.format("good", 2, 2000, "IDLE", "(null)")
    cluster = parsed(*lines, good, PARTITION.format("malleable", "REQUEUE", "UP"))
    assert "good" in {node.name for node in cluster.nodes}
    assert cluster.now == datetime.fromtimestamp(1_800_000_000, timezone.utc)
    odd = [node for node in cluster.nodes if node.state is NodeState.UNKNOWN]
    assert all(any(node.name in line for line in cluster.unknown) for node in odd)


@many
@given(st.lists(st.sampled_from(["IDLE", "DRAIN", "DOWN", "MIXED", "*", "~", "+", "X", "PLANNED"])))
def test_only_known_words_make_a_node_free(words: list[str]) -> None:
    if node_state("+".join(words)) is NodeState.FREE:
        assert set(words) <= {"IDLE", "PLANNED"}
        assert "IDLE" in words
