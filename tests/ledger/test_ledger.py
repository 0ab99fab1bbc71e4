"""The ledger: its rows, and that no trouble with it ever fails a tick."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Optional

import pytest

from build import make_request
from fake_parts import START, Part, resources
from fake_slurm import FakeSlurm
from ledger.books import busy_slurm, one_tick, settings_in
from slurm_hooks.history.database import VERSION, Damaged, Unusable, reading, writing
from slurm_hooks.history.harvest.derive import record_of
from slurm_hooks.history.harvest.events import LONGEST, done
from slurm_hooks.history.harvest.jobs import LOOP_S, Interruptions, Loop, Loss, loop_of, moments_of
from slurm_hooks.history.harvest.totals import Query, Ticks, Totals
from slurm_hooks.history.harvest.values import Cost, Delay, Event, Forgotten, JobFacts, Record, Seen
from slurm_hooks.history.ledger import AT_ONCE, DAY_S, prune, write
from slurm_hooks.history.place import MOST_ASIDE, aside
from slurm_hooks.history.questions import interruptions_of, loop_in, standing, totals
from slurm_hooks.model import FragmentId, Intent, Plan, Slot, Verb, Why
from slurm_hooks.report.harvest_json import harvest_data
from slurm_hooks.report.harvest_text import tables
from slurm_hooks.report.lost_work import loop_lines
from slurm_hooks.settings.values import Settings
from slurm_hooks.tick.bookkeeping import keep_books
from slurm_hooks.tick.reconcile import tick

ROOT = Path(__file__).parents[2]
BEGIN = datetime.fromtimestamp(START, timezone.utc)
ALL = Query(BEGIN - timedelta(days=1), BEGIN + timedelta(days=400))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_in(tmp_path)


def path_of(settings: Settings) -> Path:
    return Path(settings.tick.state_dir) / "ledger.sqlite"


GPUS = (
    "malleable{min=2,max=12,unit=1,engine=torchrun,frags=6,lease=3600,hole=120,not=-,slot=gpu,"
    "name=train}"
)


def totals_of(settings: Settings, query: Query = ALL) -> Totals:
    with reading(path_of(settings)) as ledger:
        return totals(ledger, query)


def test_a_job_that_counts_gpus_has_its_sizes_in_them(settings: Settings) -> None:
    lanes = ("malleable", "parts")
    parts = replace(settings, site=replace(settings.site, partitions=lanes, part_nodes="parts"))
    sizes = dict.fromkeys(("n1", "n2"), resources(32, 256_000, 8))
    slurm = FakeSlurm(dict.fromkeys(sizes, ""), lanes=lanes, sizes=sizes)
    slurm.submit(7, 6, GPUS, limit_min=60, part=Part(1, cpus=4, memory_mib=32_000))
    for _ in range(10):
        one_tick(slurm, parts)
        slurm.advance(10)
    sums = totals_of(parts)
    (job,) = sums.jobs
    assert (job.unit, job.most, job.max_nodes) == ("gpu", 12, 12)
    words = [word for table in tables(sums) for row in table.rows for word in row]
    assert f"{job.least}-12 GPUs" in words
    with reading(path_of(parts)) as ledger:
        assert interruptions_of(ledger, 7) == Interruptions(0, 90.0)
    assert job.summary.endswith(f"{job.least}-12 GPUs")


def test_nodes_lost_at_once_are_a_single_interruption() -> None:
    assert moments_of([]) == 0
    assert moments_of([5.0, 6.0, 30.0, 59.0, 90.0, 500.0]) == 3


def test_the_rows_of_a_busy_hour(settings: Settings) -> None:
    slurm = busy_slurm()
    for step in range(60):
        _, warnings = one_tick(slurm, settings)
        assert warnings == ()
        if step == 30:
            slurm.preempt("1_0")
        slurm.advance(10)
    with reading(path_of(settings)) as ledger:
        assert interruptions_of(ledger, 1) == Interruptions(
            1, 590.0
        )  # at most: since a tick first saw it
        assert interruptions_of(ledger, 2) == Interruptions(
            0, 589.0
        )  # its 2 nodes began a second later
        assert interruptions_of(ledger, 3) is None
    sums = totals_of(settings)
    assert sums.ticks.count == 60
    assert sums.span_s == 590
    assert 590 * 5 < sums.node_s <= 590 * 6
    assert sums.node_s + sums.idle_node_s <= 590 * 6
    assert sums.efficiency is not None
    assert sums.efficiency > 0.9
    assert [(u.name, u.jobs, u.interruptions) for u in sums.users] == [("nobody", 2, 1)]
    assert sums.users[0].node_s == sums.node_s == sum(job.node_s for job in sums.jobs)
    assert [(e.kind.value, e.count) for e in sums.interruptions] == [("preempted", 1)]
    assert (sums.caused, sums.unseen_s) == ((), 0)
    assert len(sums.samples) == 60


def test_a_job_that_is_preempted_repeatedly_is_in_a_loop(settings: Settings) -> None:
    """The loop counts by the partition with most preemptions, at four moments within two hours."""
    slurm = busy_slurm()
    loops = []
    for step in range(60):
        if step % 8 == 4:
            slurm.preempt("1_0")
        one_tick(slurm, settings)
        slurm.advance(10)
        with reading(path_of(settings)) as ledger:
            loops.append(loop_in(ledger, 1, slurm_time(slurm)))
    assert loops[27] is None
    assert [loop.count for loop in loops if loop is not None][:1] == [4]
    with reading(path_of(settings)) as ledger:
        assert loop_in(ledger, 1, slurm_time(slurm) + timedelta(hours=3)) is None
        assert loop_in(ledger, 2, slurm_time(slurm)) is None


def slurm_time(slurm: FakeSlurm) -> datetime:
    return datetime.fromtimestamp(slurm.now, timezone.utc)


def test_a_loop_names_the_user_with_the_most_nodes() -> None:
    losses = [Loss(100.0 * n, "gpu" if n != 2 else "cpu", (f"n{n}",)) for n in range(4)]
    assert loop_of(losses) == Loop(4, LOOP_S, "gpu", ("n0", "n1", "n3"))
    assert loop_of(losses[:3]) is None
    assert loop_of([replace(loss, at_s=0.0) for loss in losses]) is None  # the same moment
    unknown = loop_of([replace(loss, taker="") for loss in losses])
    assert unknown == Loop(4, LOOP_S, "", ())
    request = make_request(2, 8)
    (line,) = loop_lines(loop_of(losses), request)
    assert line == (
        "preempted 4 times in 2 h, mostly by jobs of gpu on n[0-1,3]: prefer=2 or core=2 in "
        "--malleable may help"
    )
    for slot, is_known in ((Slot("gpu"), False), (Slot("gpu", 4, 100), True)):
        (line,) = loop_lines(unknown, replace(request, slot=slot))
        assert ("core=2" in line) is is_known  # a core has no share of a node
    rid = replace(request, preferred=2, core=2, lane="lane")
    assert loop_lines(unknown, rid) == ("preempted 4 times in 2 h",)
    assert loop_lines(None, request) == ()


def test_a_part_of_the_ledger(settings: Settings) -> None:
    slurm = busy_slurm()
    for _ in range(3):
        one_tick(slurm, settings)
        slurm.advance(10)
    assert totals_of(settings, replace(ALL, user="somebody")).node_s == 0
    assert totals_of(settings, replace(ALL, user="nobody")).node_s > 0
    assert totals_of(settings, replace(ALL, account="physics")).users == ()
    assert totals_of(settings, replace(ALL, since=BEGIN + timedelta(days=1))).first is None


def test_months_that_follow_each_other_add_up(settings: Settings) -> None:
    """This also holds for a question by user, thus by whole hours, and for a tick at midnight."""
    slurm = busy_slurm()
    midnight = START + 3600
    slurm.now = midnight - 300
    for _ in range(60):
        one_tick(slurm, settings)
        slurm.advance(10)
    turn = datetime.fromtimestamp(midnight, timezone.utc)
    for whose in ("", "nobody"):
        before, after, both = (
            totals_of(settings, asked).node_s
            for asked in (
                replace(ALL, until=turn, user=whose),
                replace(ALL, since=turn, user=whose),
                replace(ALL, user=whose),
            )
        )
        assert 6 * 300 >= before > 0
        assert 6 * 300 >= after > 0
        assert before + after == both


def test_the_share_of_a_user_is_a_share_of_all_idle_nodes(settings: Settings) -> None:
    slurm = busy_slurm()
    for _ in range(30):
        one_tick(slurm, settings)
        slurm.advance(10)
    with closing(sqlite3.connect(path_of(settings))) as ledger, ledger:
        ledger.execute("UPDATE job SET user = CASE job_id WHEN 1 THEN 'ann' ELSE 'bob' END")
    whole = totals_of(settings).used_share
    ann, bob = (totals_of(settings, replace(ALL, user=name)).used_share for name in ("ann", "bob"))
    assert whole is not None
    assert ann is not None
    assert bob is not None
    assert 0.3 < bob < 0.4
    assert 0.6 < ann < 0.7
    assert ann + bob == pytest.approx(whole)


def test_a_short_span_of_a_user_counts_that_span(settings: Settings) -> None:
    slurm = busy_slurm()
    for _ in range(30):
        one_tick(slurm, settings)
        slurm.advance(10)
    half = Query(BEGIN + timedelta(seconds=200), BEGIN + timedelta(seconds=300), "nobody")
    sums = totals_of(settings, half)
    assert sums.first == BEGIN + timedelta(seconds=210)
    assert sums.node_s == sums.all_node_s == 6 * 90


def test_a_tick_that_only_observed_has_no_actions(settings: Settings) -> None:
    slurm = busy_slurm()
    for _ in range(2):
        report = tick(slurm, settings, is_dry=True)
        assert report.plan.actions
        assert keep_books(report, settings, slurm) == ()
        slurm.advance(10)
    sums = totals_of(settings)
    assert (sums.ticks.count, sums.done, sums.node_s) == (2, (), 0)
    assert sums.idle == {Why.STARTING: 60}


def test_accounts_are_asked_once_and_for_all_jobs_together(settings: Settings) -> None:
    slurm = busy_slurm()
    for _ in range(3):
        one_tick(slurm, settings)
        slurm.advance(10)
    asked = [c for c in slurm.commands if "Account" in " ".join(c.argv)]
    assert len(asked) == 1
    assert [(a.name, a.jobs) for a in totals_of(settings).accounts] == [("", 2)]


def test_a_site_without_a_ledger_writes_no_file(settings: Settings) -> None:
    off = replace(settings, ledger=replace(settings.ledger, enabled=False))
    assert one_tick(busy_slurm(), off)[1] == ()
    assert not path_of(settings).exists()


@pytest.mark.parametrize(
    "damage", ["text", "torn", "earlier", "later", "memory", "columns", "foreign"]
)
def test_a_damaged_ledger_is_moved_aside_and_replaced(settings: Settings, damage: str) -> None:
    slurm, path = busy_slurm(), path_of(settings)
    for _ in range(5):
        one_tick(slurm, settings)
        slurm.advance(10)
    if damage == "text":
        path.write_text("not a database, but longer than the header of one " * 100)
    elif damage == "torn":
        os.truncate(path, path.stat().st_size // 2)
    else:
        change = {
            "earlier": "PRAGMA user_version=1",
            "later": "PRAGMA user_version=999",
            "memory": "UPDATE last SET seen='{}'",
            "columns": "ALTER TABLE event ADD COLUMN another",
            "foreign": "PRAGMA application_id=7",
        }[damage]
        with closing(sqlite3.connect(path)) as ledger, ledger:
            ledger.execute(change)
    _, (line,) = one_tick(slurm, settings)
    assert "was damaged" in line
    (kept,) = aside(path)
    assert f"moved to {kept}" in line
    slurm.advance(10)
    assert one_tick(slurm, settings)[1] == ()
    assert totals_of(settings).ticks.count == 2


def test_each_damaged_ledger_is_kept_up_to_a_bound(settings: Settings) -> None:
    slurm, path = busy_slurm(), path_of(settings)
    one_tick(slurm, settings)
    texts = [f"damaged {number} " * 1000 for number in range(MOST_ASIDE + 2)]
    for count, text in enumerate(texts, start=1):
        path.write_text(text)
        one_tick(slurm, settings)
        assert [kept.read_text() for kept in aside(path)] == texts[:count][-MOST_ASIDE:]


def test_a_ledger_damaged_after_the_clock_went_back_is_kept_too(settings: Settings) -> None:
    slurm, path = busy_slurm(), path_of(settings)
    one_tick(slurm, settings)
    for number in range(MOST_ASIDE):
        path.with_name(f"{path.name}.damaged-2999010{number}T000000.000000Z").touch()
    path.write_text("damaged " * 1000)
    one_tick(slurm, settings)
    assert "damaged " * 1000 in [kept.read_text() for kept in aside(path)]
    assert len(aside(path)) == MOST_ASIDE


def test_another_process_holds_the_ledger(settings: Settings) -> None:
    slurm = busy_slurm()
    one_tick(slurm, settings)
    with closing(sqlite3.connect(path_of(settings), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        _, (line,) = one_tick(slurm, settings)
        assert "not in the ledger" in line
        assert "locked" in line
    assert one_tick(slurm, settings)[1] == ()


def test_a_reader_sees_a_single_moment_and_stops_no_tick(settings: Settings) -> None:
    slurm = busy_slurm()
    one_tick(slurm, settings)
    with reading(path_of(settings)) as ledger:
        before = totals(ledger, ALL).ticks.count
        for _ in range(3):
            slurm.advance(10)
            assert one_tick(slurm, settings)[1] == ()
        assert totals(ledger, ALL).ticks.count == before == 1
    assert totals_of(settings).ticks.count == 4


def test_a_directory_that_others_can_write_to_is_not_used(settings: Settings) -> None:
    directory = Path(settings.tick.state_dir)
    directory.mkdir()
    directory.chmod(0o777)
    _, (line,) = one_tick(busy_slurm(), settings)
    assert "others can write" in line
    directory.chmod(0o755)
    (directory / "ledger.sqlite").symlink_to(directory / "elsewhere")
    _, (line,) = one_tick(busy_slurm(), settings)
    assert "symbolic link" in line
    assert not (directory / "elsewhere").exists()


def test_a_directory_in_its_place(settings: Settings) -> None:
    path_of(settings).mkdir(parents=True)
    report, (line,) = one_tick(busy_slurm(), settings)
    assert "not in the ledger" in line
    assert report.plan.actions


def test_an_older_program_does_not_read_a_later_ledger(settings: Settings) -> None:
    one_tick(busy_slurm(), settings)
    with closing(sqlite3.connect(path_of(settings))) as ledger, ledger:
        ledger.execute(f"PRAGMA user_version={VERSION + 1}")
    with pytest.raises(Damaged):
        totals_of(settings)


def ticking(directory: Path, ticks: int, before: str = "") -> list[str]:
    """A command that ticks on its own machine, after shell words that may confine it."""
    code = f"{before} exec {sys.executable} {ROOT}/tests/ledger/books.py {directory} {ticks}"
    return ["sh", "-c", code]


ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/tests"}


def lines_of(command: list[str]) -> list[str]:
    done = subprocess.run(
        command, env=ENVIRONMENT, capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def small_disk(tmp_path: Path) -> list[str]:
    """Words that run a shell with a disk of 1 MiB at `tmp_path`/disk."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("a disk of its own needs root")
    place = tmp_path / "disk"
    place.mkdir()
    words = ["unshare", "--mount", "sh", "-c"]
    mount = f"mount -t tmpfs -o size=1m,mode=755 tmpfs {place} || exit 77; "
    probe = subprocess.run([*words, mount], check=False, capture_output=True)
    if probe.returncode:
        pytest.skip("no disk can be mounted here")
    return [*words, mount]


def test_a_full_disk_costs_a_line_a_tick_and_no_tick(small_disk: list[str], tmp_path: Path) -> None:
    *words, mount = small_disk
    disk = tmp_path / "disk"
    fill = f"head -c 9M /dev/zero >{disk}/ballast 2>/dev/null; "
    parts = [ticking(disk, 5), ticking(disk, 20), ticking(disk, 5)]
    first, second, third = (f"({part[2]}) && " for part in parts)
    script = mount + first + f"{{ {fill} true; }} && " + second + f"rm {disk}/ballast && " + third
    lines = lines_of([*words, script + "true"])
    assert len(lines) == 30
    before, full, after = lines[:5], lines[5:25], lines[25:]
    assert [line.count("this tick is not in the ledger") for line in full] == [1] * 20, full
    assert "ledger" not in "".join(before + after)


def test_a_disk_without_writing_is_no_missing_right(small_disk: list[str], tmp_path: Path) -> None:
    *words, mount = small_disk
    disk = tmp_path / "disk"
    first, second = (f"({ticking(disk, 1)[2]})" for _ in range(2))
    closed = f"mount --bind {disk}/state {disk}/state && mount -o remount,bind,ro {disk}/state"
    lines = lines_of([*words, f"{mount}{first} && {closed} && {second}"])
    (warning,) = (line for line in lines if "not in the ledger" in line)
    assert "run this as" not in warning  # root does


def test_a_limit_of_file_size_is_as_good_as_a_full_disk(tmp_path: Path) -> None:
    lines = lines_of(ticking(tmp_path, 150, "ulimit -f 100;"))
    assert len(lines) == 150
    assert any("not in the ledger" in line for line in lines)
    assert "damaged" not in "".join(lines)


@pytest.mark.parametrize("ticks", [1, 3, 8])
def test_a_ledger_killed_at_any_moment_is_whole(tmp_path: Path, ticks: int) -> None:
    settings = settings_in(tmp_path)
    with subprocess.Popen(
        ticking(tmp_path, 10_000)[2].partition("exec ")[2].split(),
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        for _ in range(ticks):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    sums = totals_of(settings)
    assert sums.ticks.count >= ticks
    with closing(sqlite3.connect(path_of(settings))) as ledger:
        assert ledger.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert one_tick(busy_slurm(), settings)[1] == ()


def test_old_days_are_removed_and_counters_kept(settings: Settings) -> None:
    short = replace(settings, ledger=replace(settings.ledger, keep_days=1))
    slurm = busy_slurm()
    for _ in range(3):
        one_tick(slurm, short)
        slurm.advance(10)
    slurm.now += 2 * 86_400
    one_tick(slurm, short)
    assert totals_of(settings).ticks.count == 1
    with closing(sqlite3.connect(path_of(settings))) as ledger:
        assert ledger.execute("SELECT value FROM standing WHERE name='ticks'").fetchone() == (4,)


def test_the_events_of_a_day_become_sums_that_answer_the_same(settings: Settings) -> None:
    slurm, noon = busy_slurm(), BEGIN + timedelta(hours=1)
    for step in range(60):
        one_tick(slurm, settings)
        if step == 30:
            slurm.preempt("1_0")
        slurm.advance(60)
    spans = [replace(ALL, until=noon), replace(ALL, until=BEGIN + timedelta(minutes=30))]
    asked = [*spans, *(replace(span, user="nobody") for span in spans)]
    before, rows = [totals_of(settings, query) for query in asked], rows_of(settings)
    slurm.now += 86_400
    for _ in range(3):
        one_tick(slurm, settings)
        slurm.advance(30)
    after = [totals_of(settings, query) for query in asked]
    assert rows_of(settings) < rows / 3
    assert [len(sums.samples) for sums in (*before, *after)] == [60, 31, 60, 31, 3, 2, 3, 2]
    same = {"first": None, "samples": (), "jobs": (), "lanes": ()}
    for old, new in zip(before, after):
        assert replace(new, **same) == replace(old, **same)
        assert old.ticks.count == (60 if old.query.until == noon else 31)


def rows_of(settings: Settings) -> int:
    with closing(sqlite3.connect(path_of(settings))) as ledger:
        (count,) = ledger.execute("SELECT count(*) FROM event").fetchone()
        return int(count)


def record(at_s: float, *since: Event, jobs: Iterable[int] = ()) -> Record:
    """A tick so many seconds after BEGIN, in which each job has used 3 node-seconds."""
    at = BEGIN + timedelta(seconds=at_s)
    facts = tuple(JobFacts(job, "ann", 1, 2, 1, 3.0, 0) for job in jobs)
    return Record(at, facts, (), (), (), (Event("ticks", 1.0), *since), (), Seen(at))


def book(settings: Settings, *records: Record) -> None:
    """Write these ticks as a site of a hundred days' memory does."""
    path_of(settings).parent.mkdir(exist_ok=True)
    with writing(path_of(settings), 64) as ledger:
        for each in records:
            write(ledger, each, {})
            prune(ledger, each.at.timestamp(), 100 * DAY_S, 64)


def test_more_rows_of_a_single_tick_than_are_dropped_at_once_are_dropped(
    settings: Settings,
) -> None:
    book(settings, record(0, jobs=range(1, AT_ONCE + 10)))
    book(settings, *(record(101 * DAY_S + second) for second in range(3)))
    assert rows_of(settings) == 3


def test_the_report_names_an_action_of_two_words(settings: Settings) -> None:
    intents = (
        Intent(FragmentId(1, 0), Why.NOTICE_OVER, Verb.PUT_BACK),
        Intent(FragmentId(1, 1), Why.DIED, is_ended=True),
        Intent(FragmentId(1, 2), Why.HOLE_OPEN, Verb.GROW),
    )
    book(settings, record(0, *done(Plan(intents))))
    answer = harvest_data(totals_of(settings))["done"]
    assert sorted((each["verb"], each["cause"]) for each in answer) == [
        ("grow", "hole_open"),
        ("put back", "died"),
        ("put back", "notice_over"),
    ]


def test_an_unreadable_line_of_a_job_costs_only_that_line(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    book(settings, record(0, jobs=(7, 8)))
    with closing(sqlite3.connect(path_of(settings))) as ledger, ledger:
        ledger.execute("UPDATE job SET line = replace(line, 'null', '\"a later reason\"')")
    assert totals_of(settings).jobs == ()
    with reading(path_of(settings)) as ledger:
        assert interruptions_of(ledger, 7) is None
    gone = replace(record(30, jobs=(7,)), forgotten=(Forgotten(8, 2.0, Why.UNKNOWN),))
    book(settings, gone)
    sums = totals_of(settings)
    assert [(job.job_id, job.node_s) for job in sums.jobs] == [(7, 3)]
    assert [(user.name, user.jobs, user.node_s) for user in sums.users] == [("ann", 2, 9)]
    assert "a later reason" in caplog.text


@pytest.mark.parametrize("damage", ["more = '{x'", "more = '[]'", "value = 'abc'"])
def test_a_damaged_row_of_an_event_is_told_and_stops_no_tick(
    settings: Settings, damage: str
) -> None:
    late = Delay("71", BEGIN - timedelta(seconds=90), BEGIN, 40.0)
    book(settings, replace(record(0, Event("ticks", 1)), delays=(late,)))
    with closing(sqlite3.connect(path_of(settings))) as ledger, ledger:
        ledger.execute(f"UPDATE event SET {damage} WHERE name = 'delay_seconds'")
    with pytest.raises(Unusable, match=r"a row cannot be read .*move the file away"):
        totals_of(settings)
    book(settings, record(30))


def test_two_ticks_in_the_same_second_keep_their_values_apart(settings: Settings) -> None:
    """Slurm's clock has whole seconds."""
    late = [Delay(f"7{n}", BEGIN - timedelta(seconds=90), BEGIN, 40.0 + n) for n in (1, 0)]
    ticks = [
        replace(record(0, Event(LONGEST, cost_s), Event("tick_seconds", cost_s)), delays=(delay,))
        for cost_s, delay in zip((0.5, 0.25), late)
    ]
    book(settings, *ticks)
    sums = totals_of(settings)
    assert sums.delays == tuple(late)
    assert sums.ticks == Ticks(count=2, mean_s=0.375, longest_s=0.5)


def test_events_are_added_up_again_after_a_clock_was_ahead(settings: Settings) -> None:
    hours = (*range(27), *(24 * 30 + hour for hour in range(30)))
    book(settings, *(record(3600.0 * hour) for hour in hours))
    now_s = 27 * 3600
    book(settings, *(record(now_s + 600.0 * step) for step in range(6 * 48)))
    old = f"SELECT count(*) FROM event WHERE at BETWEEN {START + now_s} AND {START + now_s + DAY_S}"
    with closing(sqlite3.connect(path_of(settings))) as ledger:
        assert ledger.execute(old).fetchone()[0] < 60


def test_after_an_hour_a_job_has_a_row_for_five_minutes(settings: Settings) -> None:
    book(settings, *(record(20.0 * step, jobs=(7, 8)) for step in range(3 * 180 + 1)))
    with closing(sqlite3.connect(path_of(settings))) as ledger:
        rows = "SELECT count(*), sum(value) FROM event WHERE job > 0 AND at <= ?"
        assert ledger.execute(rows, (START + 2 * 3600,)).fetchone() == (2 * 25, 2 * 3 * 361)
    until = BEGIN + timedelta(minutes=45)
    sums = totals_of(settings, replace(ALL, until=until))
    assert (sums.node_s, sums.ticks.count, sums.last) == (2 * 3 * 136, 136, until)


FULL_TICKS = 166_000  # fill more than 0.9 of 4 MiB


def filled(directory: Path, slurm: FakeSlurm, *ahead: int) -> Settings:
    """A site whose ledger is nearly full of made-up ticks, a tick each second, some of them
    ahead.
    """
    settings = settings_in(directory, max_mib=4)
    one_tick(slurm, settings)
    moments = (*ahead, *range(START - FULL_TICKS, START))
    with closing(sqlite3.connect(path_of(settings))) as ledger, ledger:
        ledger.executemany(
            "INSERT INTO event VALUES (?, 'ticks', '', 0, 0, 1, '')", [(at,) for at in moments]
        )
    assert path_of(settings).stat().st_size > 0.9 * 4 * 2**20
    return settings


def test_the_file_is_kept_within_its_size(tmp_path: Path) -> None:
    """The ledger drops the oldest rows and goes on."""
    slurm = busy_slurm()
    settings = filled(tmp_path, slurm)
    for _ in range(10):
        slurm.advance(10)
        assert one_tick(slurm, settings)[1] == ()
    sums = totals_of(settings, replace(ALL, since=BEGIN - timedelta(days=3)))
    assert path_of(settings).stat().st_size <= 4 * 2**20
    assert sums.last == BEGIN + timedelta(seconds=100)
    assert sums.first is not None
    assert sums.first > BEGIN - timedelta(seconds=FULL_TICKS - 2000)
    assert sums.ticks.count > FULL_TICKS / 2


def test_a_file_that_has_become_too_large_gets_smaller(tmp_path: Path) -> None:
    slurm = busy_slurm()
    settings = filled(tmp_path, slurm)
    before = path_of(settings).stat().st_size
    smaller = replace(settings, ledger=replace(settings.ledger, keep_days=1))
    for _ in range(4):
        slurm.advance(86_400)
        assert one_tick(slurm, smaller)[1] == ()
    assert path_of(settings).stat().st_size < before - 50 * 4096


def test_a_tick_of_a_clock_that_was_ahead_costs_a_full_ledger_no_row(tmp_path: Path) -> None:
    slurm = busy_slurm()
    settings = filled(tmp_path, slurm, START + 10**9)
    for _ in range(3):
        slurm.advance(10)
        assert one_tick(slurm, settings)[1] == ()
    assert [job.first for job in totals_of(settings).jobs] == [BEGIN, BEGIN]


def test_a_job_that_outlived_a_long_gap_has_a_single_line(settings: Settings) -> None:
    slurm = busy_slurm()
    for _ in range(3):
        one_tick(slurm, settings)
        slurm.advance(10)
    slurm.now += 3 * 86_400
    one_tick(slurm, settings)
    sums = totals_of(settings)
    assert [(job.job_id, job.first) for job in sums.jobs] == [(1, BEGIN), (2, BEGIN)]


@pytest.mark.parametrize(
    ("endings", "kept"),
    [
        ((None, Why.FINISHED, Why.CANCELLED), Why.FINISHED),
        ((Why.ENDED, Why.FINISHED), Why.FINISHED),
        ((Why.FINISHED, Why.ENDED), Why.FINISHED),
        ((Why.ENDED, None), None),
    ],
)
def test_the_first_word_about_an_end_counts(
    settings: Settings, endings: tuple[Optional[Why], ...], kept: Optional[Why]
) -> None:
    """Slurm forgets the fragment that reported the end before the others."""
    report = one_tick(busy_slurm(), settings)[0]
    seen = report.snapshot
    record = record_of(None, seen, report.plan, Cost(0, 0, 0, 0, 0), settings)
    with writing(path_of(settings), 8) as ledger:
        for over in endings:
            write(ledger, replace(record, jobs=(replace(record.jobs[0], over=over),)), {})
    (line,) = (job for job in totals_of(settings).jobs if job.job_id == 1)
    assert line.over is kept


def test_a_job_that_slurm_has_forgotten_keeps_its_usage(settings: Settings) -> None:
    slurm = busy_slurm()
    for _ in range(2):
        one_tick(slurm, settings)
        slurm.advance(10)
    one_tick(slurm, settings)
    before = totals_of(settings)
    used = {job.job_id: job.node_s for job in before.jobs}
    for name in [name for name in slurm.elements if name.startswith("2_")]:
        del slurm.elements[name]
    slurm.advance(10)
    one_tick(slurm, settings)
    sums = totals_of(settings)
    lines = {job.job_id: (job.node_s, job.over) for job in sums.jobs}
    assert lines[2] == (used[2] + 2 * 5, Why.UNKNOWN)
    assert lines[1] == (used[1] + 4 * 10, None)
    assert sums.node_s == before.node_s + 4 * 10 + 2 * 5
    assert sums.users[0].node_s == sums.node_s
    assert sums.uncertain_node_s == 2 * 5
    with reading(path_of(settings)) as ledger:
        sums_so_far = standing(ledger)
    assert sums_so_far["harvested_node_seconds", "nobody"] == sums.node_s


def test_an_action_refused_for_want_of_rights_was_not_done(settings: Settings) -> None:
    report = replace(tick(busy_slurm(), settings), refused=("7_0: Access/permission denied",))
    assert any(action.verb is Verb.GROW for action in report.plan.actions)
    assert keep_books(report, settings, busy_slurm()) == ()
    one_tick(busy_slurm(), settings)
    assert sum(user.releases for user in totals_of(settings).users) == 6  # in the second tick


def test_a_pipe_in_its_place_keeps_no_reader_waiting(settings: Settings) -> None:
    path_of(settings).parent.mkdir()
    os.mkfifo(path_of(settings))
    with pytest.raises(Unusable, match="not a plain file"), reading(path_of(settings)):
        pass
