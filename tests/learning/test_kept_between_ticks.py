"""Learned curves between ticks are kept, shared and dropped, and never make a tick fail."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from build import after, make_fragment, make_job, make_node, make_request
from planning.whole_ticks import settings_in
from rate_tellers import (
    ERROR,
    TRUE,
    moment,
    one_tick,
    rate,
    seen_at,
    tell,
    teller,
)
from slurm_hooks.learning.store import drop, relearn, tick, write
from slurm_hooks.learning.store.codec import fit_text
from slurm_hooks.learning.store.connect import learned_path, reading, writing
from slurm_hooks.learning.store.drop import forget
from slurm_hooks.learning.store.read import family_profiles, job_profile, job_profiles
from slurm_hooks.model import (
    Counts,
    FragmentState,
    Learned,
    MalleableJob,
    Rate,
    Slot,
    Snapshot,
    Telemetry,
)
from slurm_hooks.settings.values import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_in(tmp_path)


def anew() -> None:
    """The next tick, in another process."""
    tick._held.clear()


def count(settings: Settings, table: str) -> int:
    with reading(settings) as database:
        return int(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def test_reports_make_the_curve_of_the_next_tick(settings: Settings) -> None:
    tell(settings, 0, 7, 1, 2, 8)
    anew()
    learned, _ = one_tick(settings, 30, teller(7, rate(1)))
    curve = learned[7].curve
    assert curve is not None
    assert learned[7].sizes_seen == (1, 2, 8)
    for nodes in (2, 4, 8):
        assert curve(nodes) / curve(1) == pytest.approx(TRUE(nodes) / TRUE(1), rel=0.1)


def test_a_single_size_gives_no_curve_and_no_size_gives_no_record(settings: Settings) -> None:
    tell(settings, 0, 7, 4)
    learned, _ = one_tick(settings, 30, teller(7), teller(8, name="other"))
    assert learned[7].curve is None
    assert learned[7].sizes_seen == (4,)
    assert learned[8] == Learned()


def test_jobs_of_a_family_that_never_reports_are_not_waited_for(settings: Settings) -> None:
    for seconds in range(0, 7200, 600):
        learned, _ = one_tick(settings, seconds, teller(7), teller(8, user="bob"))
    assert 7 not in learned
    tell(settings, 7200, 7, 1)
    learned, _ = one_tick(settings, 7230, teller(7), teller(8, user="bob"), teller(9))
    assert learned[7].sizes_seen == (1,)
    assert 8 not in learned
    assert 9 in learned


def test_a_repeated_report_is_not_new(settings: Settings) -> None:
    job = teller(7, rate(1, moment(0)), rate(2, moment(10)))
    for seconds in range(20, 620, 30):
        one_tick(settings, seconds, job)
    assert count(settings, "sample") == 2


@pytest.mark.parametrize("later", [-7200.0, 0.0])
def test_a_clock_of_slurmctld_that_is_set_back_or_stands_still_silences_no_job(
    settings: Settings, later: float
) -> None:
    tell(settings, 0, 7, 1, 2)
    newest = rate(8, moment(later))
    one_tick(settings, later, teller(7, newest))
    learned, _ = one_tick(settings, later + 30, teller(7, newest))
    assert learned[7].sizes_seen == (1, 2, 8)
    half = rate(8, moment(later + 60), per_s=TRUE(8) / 2, batch=8.0)
    one_tick(settings, later + 60, teller(7, half))
    with reading(settings) as database:
        profile = job_profile(database, 7)
    assert profile is not None
    assert profile.rates[-1] == half


def test_a_flood_of_rates_pushes_out_no_other_size(settings: Settings) -> None:
    tell(settings, 0, 7, 1, 2)
    for minute in range(1, 30):
        one_tick(settings, 60 * minute, teller(7, rate(8, moment(60 * minute - 5))))
    with reading(settings) as database:
        profile = job_profile(database, 7)
    assert profile is not None
    assert sorted({r.nodes for r in profile.rates}) == [1, 2, 8]
    assert len(profile.rates) == 2 + write.OF_A_SIZE
    for size in range(1, 65):
        sample = rate(size, moment(5000 + size), per_s=float(size))
        one_tick(settings, 5000 + 40 * size, teller(7, sample, most=64))
    with reading(settings) as database:
        profile = job_profile(database, 7)
    assert profile is not None
    assert {r.nodes for r in profile.rates} == set(range(65 - write.SIZES, 65))


def test_a_number_that_slurm_uses_again_is_another_job(settings: Settings) -> None:
    tell(settings, 0, 7, 1, 2, 8)
    anew()
    learned, _ = one_tick(settings, 30, teller(7, user="bob"))
    assert learned[7] == Learned()
    learned, _ = one_tick(settings, 60, teller(7, user="bob"))
    assert learned[7].curve is None


def test_jobs_of_a_family_begin_with_its_curve(settings: Settings) -> None:
    for job_id in (1, 2):
        tell(settings, 10.0 * job_id, job_id, 1, 2, 8, name=f"trial-{job_id}")
    anew()
    new = teller(3, name="trial-3", most=6)
    others = teller(4, name="trial"), teller(5, name="trial-5", user="bob")
    learned, _ = one_tick(settings, 60, new, *others)
    curve = learned[3].curve
    assert learned[3].is_shared
    assert curve is not None
    assert curve.points[-1][0] == 6
    assert curve(6) / curve(1) == pytest.approx(TRUE(6) / TRUE(1), rel=0.15)
    assert learned[4].is_shared
    assert learned[5] == Learned()


def test_a_single_job_speaks_for_no_family(settings: Settings) -> None:
    tell(settings, 0, 1, 1, 2, 8)
    learned, _ = one_tick(settings, 60, teller(2))
    assert learned[2].curve is None
    assert not learned[2].is_shared


def test_node_seconds_count_between_ticks(settings: Settings) -> None:
    def node_s() -> float:
        with reading(settings) as database:
            return float(database.execute("SELECT node_s FROM job").fetchone()[0])

    job = teller(7, rate(1), rate(4))
    for seconds in (0, 30, 60):
        one_tick(settings, seconds, job)
    assert node_s() == 4 * 60
    one_tick(settings, 60 + 7200, job)
    assert node_s() == 4 * (60 + write.LONGEST_S)


def test_steps_and_samples_are_not_compared(settings: Settings) -> None:
    tell(settings, 0, 7, 1, 2, 8)
    in_steps = Telemetry((rate(1, moment(50), per_s=3.0),), Counts.STEPS)
    job = teller(7)
    first = replace(job.fragments[0], telemetry=in_steps)
    one_tick(settings, 60, replace(job, fragments=(first, *job.fragments[1:])))
    learned, _ = one_tick(settings, 90, job)
    assert learned[7].sizes_seen == (1,)


@pytest.mark.parametrize(
    "damage", ["text", "torn", "earlier", "later", "foreign", "learned", "rate", "fit"]
)
def test_a_damaged_file_is_moved_aside_and_present_reports_count(
    settings: Settings, damage: str
) -> None:
    job = teller(7, rate(1, moment(0)), rate(2, moment(1)), rate(8, moment(2)))
    one_tick(settings, 10, job)
    path = learned_path(settings)
    if damage == "text":
        path.write_text("not a database, but longer than the header of one " * 100)
    elif damage == "torn":
        os.truncate(path, 4096 + 100)
    else:
        change = {
            "earlier": "PRAGMA user_version=1",
            "later": "PRAGMA user_version=999",
            "foreign": "PRAGMA application_id=7",
            "learned": "UPDATE job SET learned='{}'",
            "rate": "UPDATE sample SET per_s=-1",
            "fit": "UPDATE family SET fit='1 2 x'",
        }[damage]
        with closing(sqlite3.connect(path)) as database, database:
            database.execute(change)
    anew()
    more = teller(8, rate(1, moment(20)), rate(4, moment(21)), name="other")
    again = replace(job.fragments[0], telemetry=Telemetry((rate(16, moment(25)),)))
    both = (replace(job, fragments=(again, *job.fragments[1:])), more)
    learned, lines = one_tick(settings, 30, *both)
    assert 8 in learned
    (line,) = lines
    assert "was damaged" in line
    assert f"moved to {path}.damaged-" in line
    anew()
    learned, lines = one_tick(settings, 60, job, more)
    assert lines == ()
    assert learned[8].curve is not None


def test_a_missing_file_costs_no_curve_of_jobs_that_still_report(settings: Settings) -> None:
    job = teller(7, rate(1, moment(0)), rate(2, moment(1)), rate(8, moment(2)))
    one_tick(settings, 10, job)
    before, _ = one_tick(settings, 40, job)
    for path in learned_path(settings).parent.glob("learned.sqlite*"):
        path.unlink()
    anew()
    after, lines = one_tick(settings, 70, job)
    assert lines == ()
    assert before[7].curve is not None
    assert after[7].curve is not None
    assert after[7].curve(8) == pytest.approx(before[7].curve(8), rel=0.02)


def test_another_process_holds_the_file(settings: Settings) -> None:
    tell(settings, 0, 7, 1, 2, 8)
    with closing(sqlite3.connect(learned_path(settings), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        learned, (line,) = one_tick(settings, 30, teller(7, rate(16, moment(20))))
        assert "locked" in line
        assert learned[7].curve is not None
    assert one_tick(settings, 60, teller(7))[1] == ()


def test_a_loop_that_cannot_read_goes_on_with_its_own_curves(settings: Settings) -> None:
    tell(settings, 0, 7, 1, 2, 8)
    before, _ = one_tick(settings, 30, teller(7))
    learned_path(settings).rename(learned_path(settings).with_name("elsewhere"))
    learned, _ = one_tick(settings, 60, teller(7))
    assert learned[7].curve == before[7].curve


def test_a_fault_in_learning_fails_no_tick(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Learned:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(tick, "learn", broken)
    monkeypatch.setattr(tick, "refit", broken)
    learned, (line,) = one_tick(settings, 0, teller(7, rate(1, moment(0))))
    assert learned == {7: Learned()}
    assert "ZeroDivisionError: a fault" in line


def test_a_user_that_reports_under_many_names_does_not_speak_for_all(settings: Settings) -> None:
    tell(settings, 0, 1, 1, 2, 8, user="bob")
    one_tick(settings, 1, *(teller(100 + n, name=f"n{n}x") for n in range(450)))
    with writing(settings) as database:
        (fit,) = database.execute("SELECT fit FROM family WHERE user = 'bob'").fetchone()
        database.execute("UPDATE family SET fit = '0 0 0 0', fit_at = 9e9 WHERE user = 'ada'")
        database.row_factory = sqlite3.Row
        fits = relearn.Others(database).without(0)
    assert len(fits) == relearn.FITS_OF_ONE_USER + 1
    assert fit_text(fits[-1]) == fit


def test_a_directory_that_others_can_write_to_is_not_used(settings: Settings) -> None:
    directory = learned_path(settings).parent
    directory.mkdir()
    directory.chmod(0o777)
    _, (line,) = one_tick(settings, 0, teller(7, rate(1)))
    assert "others can write" in line
    assert list(directory.iterdir()) == []


def test_learning_that_is_switched_off_reads_and_writes_no_file(settings: Settings) -> None:
    tell(settings, 0, 7, 1, 2, 8)
    off = replace(settings, learn=replace(settings.learn, enabled=False))
    assert one_tick(off, 30, teller(7, rate(16, moment(20)))) == ({}, ())
    assert count(settings, "sample") == 3


def test_the_readers_of_the_file(settings: Settings) -> None:
    hidden = replace(settings, learn=replace(settings.learn, public=False))
    before = os.umask(0o027)
    try:
        for each, mode in ((settings, 0o644), (hidden, 0o640), (settings, 0o644)):
            tell(each, 0, 7, 1)
            assert learned_path(settings).stat().st_mode & 0o777 == mode
    finally:
        os.umask(before)


def test_forgetting(settings: Settings) -> None:
    for job_id, name in ((1, "a.sh"), (2, "a.sh"), (3, "b.sh")):
        tell(settings, job_id, job_id, 1, 2, name=name)
    tell(settings, 4, 4, 1, 2, user="bob", name="a.sh")
    with writing(settings) as database:
        assert forget(database, "ada", "a.sh") == 2
    with reading(settings) as database:
        assert {p.job_id for p in job_profiles(database)} == {3, 4}
        assert {str(p.family) for p in family_profiles(database)} == {"ada/b.sh", "bob/a.sh"}
    with writing(settings) as database:
        assert forget(database, "ada") == 1
        assert forget(database, "nobody") == 0
    with reading(settings) as database:
        assert {p.job_id for p in job_profiles(database)} == {4}
    assert count(settings, "sample") == 2


def test_long_unseen_jobs_are_dropped(settings: Settings) -> None:
    tell(settings, 0, 1, 1, 2)
    day = 86_400
    one_tick(settings, 89 * day, teller(2, rate(1), name="other"))
    assert count(settings, "job") == 2
    one_tick(settings, 91 * day, teller(2, rate(1), name="other"))
    assert count(settings, "job") == count(settings, "family") == 1
    assert count(settings, "sample") == 1


def test_a_full_file_loses_its_oldest_jobs_and_goes_on(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drop, "AT_ONCE", 5)
    small = replace(settings, learn=replace(settings.learn, max_mib=4))
    for job_id in range(1, 21):
        tell(small, job_id, job_id, 1, 2, name=f"n{job_id}x")
    monkeypatch.setattr(drop, "FULL", 0.0)
    assert one_tick(small, 60, teller(50, rate(1, moment(50))))[1] == ()
    assert count(small, "job") == 21  # no job has been absent for long
    assert one_tick(small, drop.GONE_S + 10, teller(50))[1] == ()
    with reading(small) as database:
        assert {p.job_id for p in job_profiles(database)} == {*range(6, 21), 50}


def test_a_file_that_cannot_grow_is_a_line_of_warning(settings: Settings) -> None:
    small = replace(settings, learn=replace(settings.learn, max_mib=4))
    tell(small, 0, 7, 1, 2, 8)
    with closing(sqlite3.connect(learned_path(settings))) as database, database:
        database.execute("CREATE TABLE junk AS SELECT zeroblob(4100000) AS bytes")
    # Fifty kilobytes are left, less than these rows alone: how many are fitted depends on the host.
    many = [teller(n, rate(1, moment(20)), name=f"n{n}x") for n in range(100, 400)]
    learned, (line,) = one_tick(small, 30, teller(7), *many)
    assert "full" in line
    assert learned[7].curve is not None


def test_a_user_with_very_many_jobs_pushes_out_only_own_jobs(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "USER_JOBS", 10)
    tell(settings, 0, 1, 1, 2, user="bob")
    for number in range(30):
        tell(settings, 1 + number, 100 + number, 1, 2, name=f"n{number}x")
    with reading(settings) as database:
        assert job_profile(database, 1) is not None
        assert len(job_profiles(database, user="ada")) <= 10
        assert len(family_profiles(database, user="ada")) <= 10


def test_more_jobs_at_once_than_are_kept_of_a_user_push_out_no_other_user_s(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "USER_JOBS", 5)
    for step in range(4):
        at = 60 * step
        crowd = [
            teller(n, rate(1, moment(at), per_s=90.0 + step), rate(2, moment(at)), name=f"n{n}x")
            for n in range(100, 110)
        ]
        bob = teller(200, rate(1, moment(at), per_s=95.0 + step), rate(2, moment(at)), user="bob")
        assert one_tick(settings, at, *crowd, bob)[1] == ()
    with reading(settings) as database:
        assert {p.job_id for p in job_profiles(database, user="ada")} == set(range(100, 105))
        (kept,) = job_profiles(database, user="bob")
    assert [r.per_s for r in kept.rates if r.nodes == 1] == [95.0, 96.0, 97.0, 98.0]


def test_many_jobs_report_at_once_and_all_are_learned_in_the_end(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tick, "REFIT_S", 0.0)
    monkeypatch.setattr(tick, "AT_ONCE_S", 0.0)
    jobs = [teller(n, rate(1, moment(0)), rate(4, moment(1)), name=f"n{n}x") for n in range(1, 6)]
    for step in range(6):
        learned, _ = one_tick(settings, 10 + 5 * step, *jobs)
        assert sum(each.curve is not None for each in learned.values()) == min(step, 5)


def test_a_user_with_many_reporting_jobs_delays_no_other_user(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tick, "REFIT_S", 0.0)
    monkeypatch.setattr(tick, "AT_ONCE_S", 0.0)
    for step in range(4):
        at = [moment(60 * step - 9), moment(60 * step - 8)]
        crowd = [
            teller(n, rate(1, at[0], per_s=90.0 + step), rate(4, at[1]), name=f"n{n}x")
            for n in range(1, 9)
        ]
        other = teller(9, rate(1, at[0]), rate(4, at[1]), user="bob")
        learned, _ = one_tick(settings, 60 * step, *crowd, other)
    assert learned[9].curve is not None


def test_ticks_and_readers_at_the_same_time(settings: Settings) -> None:
    tell(settings, 0, 7, 1)
    faults: list[object] = []

    def ticks(first: int) -> None:
        for step in range(5):
            job_id = first + step
            job = teller(job_id, rate(1, moment(step)), rate(2, moment(step + 1)))
            faults.extend(one_tick(settings, 10 + step, job)[1])

    def looks() -> None:
        for _ in range(20):
            with reading(settings, patience_s=5) as database:
                for each in job_profiles(database):
                    if {rate.nodes for rate in each.rates} not in ({1}, {1, 2}):
                        faults.append(each)

    runs = [threading.Thread(target=ticks, args=(100 * n,)) for n in (1, 2)]
    runs += [threading.Thread(target=looks) for _ in range(2)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert faults == []
    assert count(settings, "job") == 11


def test_a_clock_that_is_set_back_keeps_no_tick_from_learning(settings: Settings) -> None:
    day = 86_400
    tell(settings, day, 7, 1, 2, 8)
    half = [rate(n, moment(n), per_s=TRUE(n) / 2, batch=16.0) for n in (1, 2)]
    one_tick(settings, 60, teller(7, *half))
    assert one_tick(settings, 100, teller(7, *half))[1] == ()
    with reading(settings) as database:
        profile = job_profile(database, 7)
    assert profile is not None
    assert profile.newest[2].per_s == TRUE(2) / 2
    learned, _ = one_tick(settings, 130, teller(7))
    curve = learned[7].curve
    assert curve is not None
    assert curve(1) == pytest.approx(TRUE(1) / 2, rel=0.05)


def test_a_profile_shows_the_reports_and_the_rates_that_count(settings: Settings) -> None:
    tell(settings, 0, 7, 1, 2, 8)
    with reading(settings) as database:
        profile = job_profile(database, 7)
        (family,) = family_profiles(database, "train.sh")
        assert job_profile(database, 8) is None
    assert profile is not None
    assert [r.nodes for r in profile.rates] == [1, 2, 8]
    assert profile.newest[8].per_s == TRUE(8)
    assert profile.newest[8].error == ERROR
    assert (family.jobs, family.speaking, family.most) == (1, 1, 16)


def test_a_changed_batch_starts_a_new_curve(settings: Settings) -> None:
    first = [rate(n, moment(n), batch=32.0 * n) for n in (1, 2, 8)]
    one_tick(settings, 60, teller(7, *first))
    half = rate(8, moment(200), per_s=TRUE(8) / 3, batch=16.0 * 8)
    one_tick(settings, 210, teller(7, *first[:2], half))
    with reading(settings) as database:
        profile = job_profile(database, 7)
    assert profile is not None
    assert len(profile.rates) == 4
    assert profile.counted == (half,)
    seen = tick.recall(seen_at(240, teller(7)), settings)
    assert seen.learned[7].curve is None


def on_gpus(name: str, start_s: float, *rates: Rate) -> MalleableJob:
    """A gang of 4 GPUs on a node with that name, which reports these rates."""
    request = replace(make_request(1, 8), slot=Slot("gpu"), name="train.sh")
    fragment = make_fragment(
        0,
        FragmentState.RUNNING,
        [name],
        request=request,
        slots=4,
        telemetry=Telemetry(rates),
        start=after(start_s),
    )
    return make_job(fragment, request=request)


GPU_NODES = tuple(
    make_node(name, gres=(("gpu", 8), (f"gpu:{name}", 8)), partitions=frozenset({"malleable"}))
    for name in ("a100", "h100")
)


def test_a_gang_that_changes_its_type_of_gpu_has_a_curve_on_each(settings: Settings) -> None:
    slow = [rate(n, moment(100 + n), per_s=10.0 * n) for n in (1, 2, 4)]
    fast = [rate(n, moment(700 + n), per_s=99.0 * n**0.5) for n in (1, 2)]

    def seen(seconds: float, job: MalleableJob) -> Snapshot:
        return replace(seen_at(seconds, job), nodes=GPU_NODES)

    tick.remember(seen(200, on_gpus("a100", 0, *slow)), settings)
    first = tick.recall(seen(230, on_gpus("a100", 0, *slow)), settings).learned[7]
    assert first.sizes_seen == (1, 2, 4)
    moved = on_gpus("h100", 600, *slow)  # the agent remembers its earlier report
    assert tick.recall(seen(610, moved), settings).learned[7].sizes_seen == ()
    tick.remember(seen(640, moved), settings)
    assert count(settings, "sample") == 3
    tick.remember(seen(800, on_gpus("h100", 600, *fast, slow[2])), settings)
    second = tick.recall(seen(830, on_gpus("h100", 600, *fast)), settings).learned[7]
    assert second.sizes_seen == (1, 2)
    assert first.curve is not None
    assert second.curve is not None
    assert first.curve(2) / first.curve(1) > 1.2 * second.curve(2) / second.curve(1)
    back = tick.recall(seen(900, on_gpus("a100", 890)), settings).learned[7]
    assert back == first


def test_a_job_begins_with_its_family_s_curve_for_its_type_of_gpu(settings: Settings) -> None:
    rates = [rate(n, moment(100 + n)) for n in (1, 2, 4)]
    tick.remember(replace(seen_at(200, on_gpus("h100", 0, *rates)), nodes=GPU_NODES), settings)
    for name, is_known in (("h100", True), ("a100", False)):
        job = replace(on_gpus(name, 290), job_id=99)
        seen = replace(seen_at(300, job), nodes=GPU_NODES)
        assert bool(tick.recall(seen, settings).learned[99].plausible) is is_known
