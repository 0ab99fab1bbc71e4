"""The rate of a training from its processes' counts, with any delays."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_hooks.elastic.agent.stretches import Stretches
from slurm_hooks.elastic.agent.throughput import LOOK_S
from slurm_hooks.elastic.script.clean_time import SPAN, CleanTime
from slurm_hooks.elastic.script.reported_samples import ReportedSamples
from slurm_hooks.elastic.script.waiting_share import NOT_SEEN, waiting_share
from slurm_hooks.elastic.speed import Speed
from slurm_hooks.elastic.steady import KEPT, Steady, Stretch, extended, steady

many = settings(deadline=None)
BATCH = 32


class Training:
    """Steps of `step_s` seconds under a separate clock, and the agent that watches them."""

    def __init__(self, step_s: float = 0.1) -> None:
        self.now, self.step_s = 500.0, step_s
        self.clean, self.stretches = CleanTime(), Stretches()
        self.first: Optional[Steady] = None  # the agent's first report
        self._looked_at = self.now

    def train(self, steps: int, waited_s: float = 0.0, source: int = 1) -> None:
        for _ in range(steps):
            self.clean.draw(source, BATCH)
            self.now += self.step_s + waited_s
            self.clean.step(self.now)
            if abs(self.now - self._looked_at) > LOOK_S:
                self._looked_at = self.now
                counts = (self.clean.seconds, self.clean.steps, self.clean.samples)
                self.stretches.see({0: Speed(1.0, *counts)}, 1)
                self.first = self.first or self.stretches.steady()

    @property
    def per_s(self) -> float:
        """Samples a second, as the agent reports them."""
        rate = self.stretches.steady()
        assert rate is not None
        return rate.per_s


def stall(training: Training) -> None:
    training.train(1, waited_s=3.0)


def save(training: Training) -> None:
    training.clean.pause()
    training.now += 2.0


def evaluate(training: Training) -> None:
    for _ in range(20):
        training.clean.draw(7, 0.0)
        training.now += 0.1


def evaluate_at_once(training: Training) -> None:
    """Evaluate much faster than a step, with gradients on, as transformers' Trainer does."""
    for _ in range(10):
        training.clean.draw(7, BATCH)
        training.now += 0.001


def evaluate_unseen(training: Training) -> None:
    training.now += 4.0


def go_on(training: Training) -> None:
    """Do not delay the step."""


@pytest.mark.parametrize(
    ("hold_up", "every"),
    [
        (stall, 100),
        (evaluate_unseen, 100),
        (go_on, 100),
        *((hold_up, 100) for hold_up in (save, evaluate, evaluate_at_once)),
        *((hold_up, 30) for hold_up in (save, evaluate, evaluate_at_once)),
    ],
)
def test_occasional_delays_of_a_training_are_left_out(
    hold_up: Callable[[Training], None], every: int
) -> None:
    training = Training()
    training.now += 30.0  # imports, compilation
    for _ in range(2000 // every):
        training.train(every)
        hold_up(training)
    assert training.per_s == pytest.approx(BATCH / 0.1, rel=0.01)


@pytest.mark.parametrize("step_s", [0.002, 0.1, 3.0, 60.0])
def test_first_steps_are_left_out(step_s: float) -> None:
    training = Training(step_s)
    training.step_s *= 20
    training.train(3)
    training.step_s /= 20
    training.train(30 + int(30 / step_s))
    assert training.first is not None
    assert training.first.per_s == pytest.approx(BATCH / step_s, rel=0.01)
    assert training.per_s == pytest.approx(BATCH / step_s, rel=0.01)


@pytest.mark.parametrize("burst", [2, 8, 16])
def test_a_training_that_always_waits_for_input_has_the_pace_of_its_input(burst: int) -> None:
    """Processes of a DataLoader that work at the same pace deliver at the same moment."""
    training = Training(0.01)
    for _ in range(400):
        training.train(burst - 1)
        training.train(1, waited_s=0.5 * burst)
    assert training.per_s == pytest.approx(BATCH / 0.51, rel=0.1)


def test_input_that_is_late_more_often_than_a_stretch_is_long_is_the_pace() -> None:
    training = Training(0.02)
    for _ in range(100):
        training.train(100)
        training.train(1, waited_s=2.0)
    assert training.per_s == pytest.approx(BATCH / (0.02 + 2.0 / 101), rel=0.05)


def test_a_device_that_works_behind_the_script() -> None:
    """The script queues twenty steps, and then waits until they are done."""
    training = Training(0.001)
    for _ in range(200):
        training.train(19)
        training.now += 20 * 0.05 - 19 * 0.001 - 0.001
        training.train(1)
    assert training.per_s == pytest.approx(BATCH / 0.05, rel=0.1)


@pytest.mark.parametrize(("step_s", "every_s"), [(0.02, 5.0), (0.3, 5.0), (0.3, 10.0)])
def test_a_checkpoint_while_a_device_works_behind_the_script(step_s: float, every_s: float) -> None:
    """The checkpoint waits for the queue, which has to fill again."""
    training, chance, free, queue = Training(0.001), random.Random(5), 0.0, [0.0] * 20
    saved = training.now
    while training.now < 800.0:
        free = max(free, training.now) + step_s * chance.gauss(1.0, 0.02)
        queue = [*queue[1:], free]
        training.now = max(training.now, queue[0])
        training.train(1)
        if training.now > saved + every_s:
            training.clean.pause()
            training.now = saved = max(training.now, free) + 2.0
    assert training.per_s == pytest.approx(BATCH / step_s, rel=0.02)


def test_a_pause_in_every_step_is_a_part_of_it() -> None:
    training = Training()
    for _ in range(500):
        save(training)
        training.train(1)
    assert training.clean.steps > 400
    assert training.per_s == pytest.approx(BATCH / 2.1, rel=0.01)


def test_data_of_two_loaders_in_every_step() -> None:
    training = Training()
    for _ in range(300):
        training.clean.draw(2, BATCH)
        training.train(1)
    assert training.per_s == pytest.approx(2 * BATCH / 0.1, rel=0.01)


def test_data_of_two_loaders_at_random() -> None:
    """Draw three more batches a step, each from a random loader of the two."""
    training, chance = Training(), random.Random(3)
    for _ in range(1000):
        for source in chance.choices([1, 2], k=3):
            training.clean.draw(source, BATCH)
        training.train(1)
    assert training.per_s == pytest.approx(4 * BATCH / 0.1, rel=0.01)
    assert training.clean.steps > 600


def test_each_epoch_has_its_own_iterator() -> None:
    training = Training()
    for epoch in range(100):
        training.train(4, source=100 + epoch)
    assert training.clean.steps > 300


def test_another_pace_is_known_soon() -> None:
    training = Training()
    training.train(300)
    training.step_s = 4.0
    training.train(6)
    assert training.per_s == pytest.approx(BATCH / 4.0, rel=0.01)


CALLS = st.one_of(
    st.tuples(st.just("step"), st.floats(allow_nan=True, allow_infinity=True)),
    st.tuples(st.just("step"), st.floats(-1e6, 1e6)),
    st.tuples(st.just("pause")),
    st.tuples(st.just("draw"), st.integers(0, 3), st.floats(0, 1e9)),
)


@many
@given(st.lists(CALLS, max_size=60))
def test_no_clock_makes_clean_time_of_a_delay(calls: list[tuple[str, float]]) -> None:
    """The clock runs backwards, jumps, or stands still."""
    clean, highest = CleanTime(), 0.0
    for name, *words in calls:
        before = (clean.seconds, clean.steps, clean.samples)
        getattr(clean, name)(*words)
        after = (clean.seconds, clean.steps, clean.samples)
        assert all(a >= b for a, b in zip(after, before))
        assert math.isfinite(clean.seconds)
        highest = max(highest, clean.seconds - before[0])
    assert highest < 86_400
    assert clean.steps <= sum(name == "step" for name, *_ in calls)
    assert clean._others.bit_length() <= SPAN


@many
@given(st.floats(0.05, 1.0), st.lists(st.floats(-10, 10), min_size=1, max_size=6))
def test_a_clock_that_is_set_now_and_then_does_little_harm(
    step_s: float, jumps: list[float]
) -> None:
    training = Training(step_s)
    training.train(int(30 / step_s))
    for jump in jumps:
        training.now += jump
        training.train(int(30 / step_s))
    assert training.per_s == pytest.approx(BATCH / step_s, rel=0.05)


def test_samples_by_the_word_of_the_script() -> None:
    samples = ReportedSamples()
    assert not samples.see(1000, 10)  # it resumes there
    assert samples.see(1640, 20)
    assert samples.per_step == 64
    assert not samples.see(1640, 21)
    assert not samples.see(100, 22)  # it has gone back
    assert samples.see(356, 24)
    assert samples.per_step == 128
    assert not samples.see(400, 24)  # twice in a step
    assert samples.see(484, 25)
    assert samples.per_step == 128


def test_each_report_is_a_step_where_steps_are_not_counted() -> None:
    samples = ReportedSamples()
    samples.see(0, 0)
    assert [samples.see(n * 64, 0) for n in range(1, 4)] == [True] * 3
    assert samples.per_step == 64


class Parallel:
    """Answers as torch's module would."""

    def __init__(self, **seen: object) -> None:
        self._seen = seen

    def _get_ddp_logging_data(self) -> dict[str, object]:
        return {f"{name}_time": value for name, value in self._seen.items()}


@pytest.mark.parametrize(
    ("forward", "backward", "exchange", "overlap", "share"),
    [
        (100, 200, 150, 50, 0.25),
        (100, 200, 50, 50, 0.0),
        (100, 200, 50, 70, 0.0),
        (0, 0, 0, 0, NOT_SEEN),
        (-5, 0, 9, 0, NOT_SEEN),
        ("x", 0, 9, 0, NOT_SEEN),
    ],
)
def test_the_share_of_a_step_that_waits(
    forward: object, backward: object, exchange: object, overlap: object, share: float
) -> None:
    seen = Parallel(
        forward_compute=forward,
        backward_compute=backward,
        backward_comm=exchange,
        backward_compute_comm_overlap=overlap,
    )
    assert waiting_share(seen) == pytest.approx(share)
    assert waiting_share(Parallel()) == waiting_share(None) == NOT_SEEN


# -- stretches


def history(*stretches: tuple[float, float, float]) -> tuple[Stretch, ...]:
    window: tuple[Stretch, ...] = ()
    for seconds, steps, batch in stretches:
        window = extended(window, Stretch(seconds, steps, batch))
    return window


def test_a_rate_needs_a_few_seconds() -> None:
    assert steady(()) is None
    assert steady(history((3.0, 30, 64))) is None
    rate = steady(history(*[(3.0, 30, 64)] * 3))
    assert rate is not None
    assert (rate.per_s, rate.batch) == (640.0, 64.0)
    assert rate.error == pytest.approx(0.03 / math.sqrt(3))
    steps = steady(history(*[(3.0, 30, 0)] * 3))
    assert steps is not None
    assert (steps.per_s, steps.batch) == (10.0, 0.0)


def test_a_single_slow_stretch_is_an_outlier() -> None:
    rate = steady(history(*[(3.0, 30, 64)] * 6, (3.0, 12, 64), *[(3.0, 30, 64)] * 3))
    assert rate is not None
    assert rate.per_s == pytest.approx(640)


def test_an_unsteady_training_has_no_rate() -> None:
    assert steady(history(*[(3.0, 30, 64), (3.0, 3, 64)] * 2)) is None


@pytest.mark.parametrize("after", [(3.0, 30, 128), (3.0, 20, 64), (3.0, 25, 70.4001)])
def test_a_lasting_change_is_another_training(after: tuple[float, float, float]) -> None:
    before = history(*[(3.0, 30, 64)] * 20, after)
    assert len(before) == 21
    window = history(*[(3.0, 30, 64)] * 20, after, after, after)
    assert len(window) == 3
    rate = steady(window)
    assert rate is not None
    assert rate.batch == pytest.approx(after[2])


ANY = st.floats(allow_nan=True, allow_infinity=True)


@many
@given(st.lists(st.builds(Stretch, ANY, ANY, ANY)))
def test_a_rate_is_a_number_for_any_measurement(stretches: list[Stretch]) -> None:
    window: tuple[Stretch, ...] = ()
    for stretch in stretches:
        window = extended(window, stretch)
        assert len(window) <= KEPT
        rate = steady(window)
        if rate is not None:
            assert 0 < rate.per_s < math.inf
            assert 0 < rate.error < math.inf
            assert 0 <= rate.batch < math.inf


@many
@given(
    st.floats(1e-3, 1e6),
    st.lists(st.floats(0.99, 1.01), min_size=6, max_size=KEPT),
    st.integers(0, 2),
    st.floats(0.0, 0.8),
)
def test_a_few_outliers_do_not_change_the_rate(
    rate: float, noise: list[float], outliers: int, slow: float
) -> None:
    stretches = [Stretch(3.0, 3.0 * rate * n) for n in noise]
    for place in range(outliers):
        stretches[1 + 3 * place] = Stretch(3.0, 3.0 * rate * max(slow, 1e-3))
    estimate = steady(tuple(stretches))
    assert estimate is not None
    assert estimate.per_s == pytest.approx(rate, rel=0.05)
