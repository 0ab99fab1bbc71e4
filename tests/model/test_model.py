"""The real tick against the usual events, at any moment and in any order.

`world` has the rules that must hold. This module has the events.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Optional

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fake_parts import Booking, Element, Rigid, Script
from model.training import Training
from model.world import World
from planning import whole_ticks
from slurm_hooks.settings.values import Settings

SIZES = st.sampled_from([(1, 3, 1), (2, 3, 1), (2, 2, 1), (1, 2, 2)])
PICK = st.integers(0, 11)
FATES = st.lists(
    st.sampled_from(["refused", "dropped", "unanswered", "cut", "silent", ""]),
    min_size=1,
    max_size=3,
)
SCRIPTS = st.builds(
    Script,
    joins=st.sampled_from([True, True, True, False]),
    ignores_notice=st.sampled_from([False, False, False, True]),
)
CORES = st.sampled_from([0, 0, 1, 2])
LARGEST = 3  # jobs; so all can run at once on the existing nodes


def settings_in(place: Path) -> Settings:
    """As shipped, but a node is avoided for minutes: an hour of ticks for each life is too slow."""
    plain = whole_ticks.settings_in(place)
    return replace(plain, failures=replace(plain.failures, avoid_s=300))


class Cluster(RuleBasedStateMachine):
    """Users, administrators, Slurm, the weather, and ticks."""

    def __init__(self) -> None:
        super().__init__()
        self.place = tempfile.TemporaryDirectory()
        self.world = World(settings_in(Path(self.place.name)))
        self.slurm = self.world.slurm

    # -- the chosen job

    def some_job(self, pick: int) -> Training:
        jobs = list(self.world.trainings.values())
        return jobs[pick % len(jobs)]

    def some_element(self, pick: int) -> Optional[Element]:
        elements = list(self.slurm.elements.values())
        return elements[pick % len(elements)] if elements else None

    def running(self, pick: int) -> Optional[Element]:
        elements = [e for e in self.slurm.elements.values() if e.state == "RUNNING"]
        return elements[pick % len(elements)] if elements else None

    def has_running(self) -> bool:
        return self.running(0) is not None

    def some_nodes(self, pick: int, count: int) -> frozenset[str]:
        names = sorted(self.slurm.nodes)
        return frozenset(names[(pick + i) % len(names)] for i in range(count))

    # -- time

    @rule(ticks=st.integers(1, 4))
    def ticks_run(self, ticks: int) -> None:
        for _ in range(ticks):
            self.world.tick()

    @rule(fates=FATES)
    def a_tick_whose_commands_fail(self, fates: list[str]) -> None:
        self.slurm.fates = list(fates)
        self.world.tick()

    @rule(seconds=st.sampled_from([20, 150, 1200, 3600]))
    def ticks_stop(self, seconds: int) -> None:
        self.world.wait(seconds)

    @rule(seconds=st.sampled_from([-3600, -600, 600, 3600]))
    def the_clock_steps(self, seconds: int) -> None:
        self.world.step_clock(seconds)

    # -- users

    @initialize(sizes=SIZES, script=SCRIPTS, core=CORES, ends_all=st.booleans())
    def the_first_job(
        self, sizes: tuple[int, int, int], script: Script, core: int, ends_all: bool
    ) -> None:
        self.world.submit(sizes, replace(script), core, ends_all)

    @precondition(lambda self: len(self.world.trainings) < LARGEST)
    @rule(sizes=SIZES, script=SCRIPTS, core=CORES, ends_all=st.booleans())
    def another_job(
        self, sizes: tuple[int, int, int], script: Script, core: int, ends_all: bool
    ) -> None:
        self.world.submit(sizes, replace(script), core, ends_all)

    @precondition(lambda self: len(self.world.trainings) < LARGEST)
    @rule(
        sizes=SIZES,
        script=SCRIPTS,
        core=CORES,
        code=st.sampled_from([1, -9]),
        age_s=st.integers(1, 200),
    )
    def a_job_that_fails(
        self, sizes: tuple[int, int, int], script: Script, core: int, code: int, age_s: int
    ) -> None:
        """At any age, it makes no progress."""
        training = self.world.submit(sizes, replace(script, train_s=1_000_000), core)
        training.code, training.age_s = code, age_s

    @rule(pick=PICK)
    def a_user_cancels_a_job(self, pick: int) -> None:
        self.world.cancel(self.some_job(pick), None)

    @rule(pick=PICK)
    def a_user_cancels_a_job_while_a_tick_runs(self, pick: int) -> None:
        training = self.some_job(pick)
        self.world.tick(lambda: self.world.cancel(training, None))

    @rule(pick=PICK)
    def a_user_cancels_an_element(self, pick: int) -> None:
        if element := self.some_element(pick):
            self.world.cancel(self.world.of(element), element)

    @rule(pick=PICK, verb=st.sampled_from(["hold", "requeue", "requeuehold", "release"]))
    def a_user_tries_scontrol(self, pick: int, verb: str) -> None:
        """Cancelled elements are left out: a user who revives an element wants it to run."""
        element = self.some_element(pick)
        if element and element.name not in self.world.of(element).gone:
            self.slurm.does(f"scontrol {verb} {element.name}", "nobody")

    @rule(pick=PICK, throttle=st.integers(0, 2))
    def a_user_sets_a_throttle(self, pick: int, throttle: int) -> None:
        job = self.some_job(pick).job
        self.slurm.does(f"scontrol update jobid={job} ArrayTaskThrottle={throttle}", "nobody")

    @rule(pick=PICK, on=st.sampled_from(["", "afterok:99"]))
    def a_dependency_is_set(self, pick: int, on: str) -> None:
        self.slurm.does(f"scontrol update jobid={self.some_job(pick).job} Dependency={on}")

    # -- admins

    @rule(pick=PICK, is_whole=st.booleans())
    def an_admin_holds(self, pick: int, is_whole: bool) -> None:
        if element := self.some_element(pick):
            self.world.hold(self.world.of(element), None if is_whole else element)

    @rule(pick=PICK)
    def an_admin_releases(self, pick: int) -> None:
        self.world.release(self.some_job(pick))

    @rule(pick=PICK, verb=st.sampled_from(["suspend", "resume"]))
    def an_operator_suspends_or_resumes(self, pick: int, verb: str) -> None:
        if element := self.some_element(pick):
            self.slurm.does(f"scontrol {verb} {element.name}")

    @precondition(has_running)
    @rule(pick=PICK)
    def an_operator_raises_a_limit(self, pick: int) -> None:
        element = self.running(pick)
        assert element is not None
        self.world.raise_limit(element)

    @rule(is_off=st.booleans())
    def an_admin_switches_off_or_on(self, is_off: bool) -> None:
        self.world.switch(is_off)

    @rule(is_wanted=st.booleans())
    def the_site_wants_no_growth_or_some(self, is_wanted: bool) -> None:
        self.world.want_no_growth(is_wanted)

    @rule()
    def an_admin_switches_off_and_waits(self) -> None:
        self.world.switch(is_off=True)
        for _ in range(5):
            self.world.tick()

    @rule(pick=PICK, flags=st.sampled_from(["", "+DRAIN"]))
    def a_node_is_drained_or_resumed(self, pick: int, flags: str) -> None:
        (name,) = self.some_nodes(pick, 1)
        self.slurm.nodes[name] = flags

    @rule(pick=PICK, count=st.integers(1, 3), ahead_s=st.integers(60, 900), force=st.booleans())
    def an_admin_reserves(self, pick: int, count: int, ahead_s: int, force: bool) -> None:
        """Slurm refuses to reserve nodes that are busy then, unless asked to ignore jobs."""
        nodes, start = self.some_nodes(pick, count), self.slurm.now + ahead_s
        if force or all((e.end or 0) <= start for e in self.slurm.ours_on(nodes)):
            name = f"r{len(self.slurm.bookings)}"
            booking = Booking(name, nodes, self.slurm.now, start, start + 600)
            self.slurm.bookings.append(booking)

    # -- Slurm, and others' jobs

    @rule(pick=PICK, count=st.integers(1, 4), ahead_s=st.sampled_from([0, 0, 200, 400]))
    def others_need_nodes(self, pick: int, count: int, ahead_s: int) -> None:
        now, number = self.slurm.now, 100 + len(self.slurm.rigid)
        nodes = self.some_nodes(pick, count)
        self.slurm.rigid.append(Rigid(number, nodes, now, now + ahead_s, 300))

    @rule(pick=PICK)
    def a_node_fails(self, pick: int) -> None:
        (name,) = self.some_nodes(pick, 1)
        self.slurm.fail_node(name)

    # -- actions of scripts

    @precondition(has_running)
    @rule(pick=PICK, code=st.sampled_from([0, 1, 85, -9]))
    def a_fragment_ends(self, pick: int, code: int) -> None:
        element = self.running(pick)
        assert element is not None
        self.world.of(element).exits[element.name] = code
        self.slurm.advance(2)

    @rule(pick=PICK)
    def a_training_is_finished(self, pick: int) -> None:
        training = self.some_job(pick)
        if not training.is_failing:
            training.script.is_done = True

    @rule(pick=PICK, is_mute=st.booleans())
    def slurm_cannot_be_reached_from_a_job(self, pick: int, is_mute: bool) -> None:
        self.some_job(pick).script.is_mute = is_mute

    # -- the rules that must hold

    @invariant()
    def nobody_is_wronged(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        try:
            self.world.settle()
        finally:
            self.place.cleanup()


fast = settings(
    max_examples=40,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
thorough = settings(fast, max_examples=int(os.environ.get("LIVES", "600")), stateful_step_count=40)


def test_no_job_is_wronged() -> None:
    run_state_machine_as_test(Cluster, settings=fast)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_job_is_wronged_in_many_lives() -> None:
    run_state_machine_as_test(Cluster, settings=thorough)
