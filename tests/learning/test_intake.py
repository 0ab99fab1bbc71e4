"""New reports of a job: hostile clocks, floods and lies."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from build import make_fragment, make_job, make_request
from rate_tellers import rate, teller
from slurm_hooks.learning.store.family import family_of
from slurm_hooks.learning.store.intake import GAP_S, SIZES, JobReport, in_turn, news, report_of
from slurm_hooks.model import FragmentState, Needs, Rate, Slot, Telemetry
from slurm_hooks.model.gpu_types import GpuTypes
from slurm_hooks.model.resources import GPU

NOW = 1_800_000_000
rates = st.builds(
    Rate,
    st.integers(1, 40),
    st.floats(1e-9, 1e15),
    st.floats(0, 1e6),
    st.integers(-(2**40), 2**40),
    st.floats(0, 1e15),
)


@given(st.lists(st.lists(rates, max_size=4), max_size=9), st.integers(1, 4))
def test_any_report_counts_with_a_limit_and_only_from_the_past(
    tellings: list[list[Rate]], unit: int
) -> None:
    request = make_request(unit, 8 * unit, unit)
    kept: list[Rate] = []
    for step, telling in enumerate(tellings):
        fragment = make_fragment(
            0, FragmentState.RUNNING, ["n1"], telemetry=Telemetry(tuple(telling))
        )
        report = report_of(make_job(fragment, request=request))
        assert report is not None
        now_s = NOW + 10 * step
        new = news(report, kept, now_s).rates
        assert len(new) <= SIZES
        assert all(r.nodes % unit == 0 and r.nodes <= 8 * unit for r in new)
        assert all(r.at <= now_s for r in new)
        kept += new
    for nodes in {r.nodes for r in kept}:
        times = [r.at for r in kept if r.nodes == nodes]
        assert times == sorted(times)
        assert len(times) <= 1 + 10 * len(tellings) / GAP_S + 1


def test_sizes_that_the_job_cannot_have_are_left_out() -> None:
    telemetry = Telemetry((rate(4, NOW), rate(6, NOW), rate(8, NOW)))
    fragment = make_fragment(0, FragmentState.RUNNING, ["n1"], telemetry=telemetry)
    for request, sizes in ((make_request(4, 4, 4), [4]), (make_request(3, 6, 3), [6])):
        report = report_of(make_job(fragment, request=request))
        assert report is not None
        assert [r.nodes for r in report.rates] == sizes


def test_a_rate_at_17_gpus_counts_for_a_job_that_may_have_them() -> None:
    telemetry = Telemetry((rate(17, NOW), rate(16, NOW)))
    fragment = make_fragment(0, FragmentState.RUNNING, ["n1"], telemetry=telemetry)
    for unit, sizes in ((1, [16, 17]), (2, [16])):
        request = replace(make_request(4, 64, unit), slot=Slot(GPU))
        report = report_of(make_job(fragment, request=request))
        assert report is not None
        assert [r.nodes for r in report.rates] == sizes


def test_workers_of_another_kind_are_another_family() -> None:
    """A fragment asks for 1 GPU or for 3, which makes no difference."""

    def family(slot: Slot | None, gpus: int = 1) -> str:
        request = replace(make_request(1, 8), slot=slot)
        fragment = make_fragment(0, FragmentState.HELD, request=request)
        job = replace(make_job(fragment, request=request), needs=Needs("ib", gres=((GPU, gpus),)))
        return family_of(job, GpuTypes(()).of(job)).needs

    assert family(Slot(GPU), 1) == family(Slot(GPU, cpus=8), 3) == "ib;slot:gpu"
    kinds = [None, Slot(GPU), Slot("gpu:a100"), Slot(cpus=4)]
    assert len({family(kind) for kind in kinds}) == len(kinds)


def test_a_clock_that_was_set_back_does_not_silence_a_job() -> None:
    kept = [rate(2, NOW)]
    report = JobReport((rate(2, NOW - 3600, per_s=50.0),))
    (new,) = news(report, kept, NOW + 60).rates
    assert (new.at, new.per_s) == (NOW + 60, 50.0)


def test_a_clock_that_is_ahead_counts_as_now() -> None:
    (new,) = news(JobReport((rate(2, NOW + 10**9),)), [], NOW).rates
    assert new.at == NOW


def test_a_report_that_is_too_soon_is_taken_later() -> None:
    kept = [rate(2, NOW)]
    report = JobReport((rate(2, NOW + 5, per_s=50.0),))
    soon = news(report, kept, NOW + 10)
    assert (soon.rates, soon.is_all) == ((), False)
    assert news(report, kept, NOW + GAP_S).is_all


def test_a_repeated_report_is_new_only_if_measured_again() -> None:
    kept = [rate(2, NOW)]
    for at in (NOW - 3600, NOW, NOW + 10**6):
        assert news(JobReport((rate(2, at),)), kept, NOW + 99).rates == ()
    assert news(JobReport((rate(2, NOW + 90),)), kept, NOW + 99).rates == (rate(2, NOW + 90),)


def test_no_job_reports() -> None:
    assert report_of(teller(1)) is None


def test_users_take_turns() -> None:
    waiting = ["a1", "a2", "a3", "b1", "c1", "b2"]
    assert in_turn(waiting, lambda job: job[0]) == ["c1", "b1", "a1", "b2", "a2", "a3"]
