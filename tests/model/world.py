"""A cluster with people in it, and the rules that must hold whatever they do.

The truth is kept here: cancels, training fragments, and holds of administrators. The real tick has
only Slurm's reports.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from fake_parts import FINISHED, LIVE_STATES, MAIN, REQUEUE_WAIT_S, REQUEUED_HELD, Element, Script
from fake_slurm import FakeSlurm
from model.training import ENDED, RACE_S, Training
from slurm_hooks.errors import RetryLater
from slurm_hooks.settings.values import Settings
from slurm_hooks.slurm.text import Command
from slurm_hooks.tick.reconcile import tick
from slurm_hooks.tick.switch import NO_GROWTH, find_no_growth, find_off, switch_off, switch_on

TICK_S = 30
NODES = 6
KNOWN_AHEAD_S = 180  # a claim that an undisturbed tick has seen so long before is kept
PATIENCE_TICKS = 160
OFF_TICKS = 4
RAISED_MIN = 600
CORE_MIN = 20  # the --time of a core, above any lease
CORE_ENDS_S = 120  # so long before its end a run may count as the whole time of a core
WAITS = frozenset({"PENDING", "SUSPENDED"}) | LIVE_STATES


@dataclass
class World:
    """The fake Slurm, its people, and the real tick. `faults` lists broken rules."""

    settings: Settings
    slurm: FakeSlurm = field(init=False)
    trainings: dict[int, Training] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    admin_held: set[str] = field(default_factory=set)  # and squeue says so
    admin_released: set[str] = field(default_factory=set)  # so the admin answers for their leases
    admin_started: set[str] = field(default_factory=set)  # in their present run, wherever it is
    suspended: set[str] = field(default_factory=set)  # and for where they are when resumed
    faults: list[str] = field(default_factory=list)
    is_ticking: bool = False
    was_set_back: bool = False  # slurmctld's clock
    is_off: bool = False  # and a tick has seen it since
    is_calm: bool = False  # the site wants no growth, and a tick has seen that since
    calm_off_ticks: int = 0  # undisturbed ticks in a row, all while it was off
    core_ends: dict[str, int] = field(default_factory=dict)  # of running core elements
    read: int = 0  # lines of the history

    def __post_init__(self) -> None:
        self.slurm = FakeSlurm({f"n{i}": "" for i in range(1, NODES + 1)})
        self.slurm.min_job_age_s = 300
        self.slurm.outcome = self._outcome
        self.slurm.watch = self._watch
        self.slurm.started = self._started

    def _outcome(self, element: Element, ran_s: int) -> Optional[int]:
        """Where no agent has ever reported, exit code 0 is a script's end."""
        has_agent = any(e.comment for e in self.slurm.of(element.job))
        return self.of(element).outcome(element, ran_s, has_agent)

    def of(self, element: Element) -> Training:
        return self.trainings[element.job]

    def submit(
        self, sizes: tuple[int, int, int], script: Script, core: int = 0, ends_all: bool = False
    ) -> Training:
        """Submit a job. `sizes` are the least and the most fragments, and the nodes of a fragment.

        `core` is the number of fragments for the ordinary queue, as far as there are so many.
        """
        low, high, unit = sizes
        job, core = len(self.trainings) + 1, min(core, high) * unit
        training = Training(job, low * unit, high * unit, unit, script, core, core > 0 and ends_all)
        self.trainings[job] = training
        own = f"core={core}{',end=finish' if ends_all else ''},lane=malleable," if core else ""
        lease_s = 600 if core else 3600  # a move brings the lease of the mark
        mark = (
            f"malleable{{min={low * unit},max={high * unit},unit={unit},engine=torchrun,{own}"
            f"frags={high},lease={lease_s},hole=120{'' if job % 3 == 0 else ',not=-'}}}"
        )  # each third has an --exclude that is too long for its mark
        place = {"partition": MAIN, "limit_min": CORE_MIN} if core else {}
        self.slurm.submit(job, high, mark, script=script, **place)
        for element in self.slurm.of(job):
            element.count = unit
        return training

    # -- time

    def tick(self, meanwhile: Optional[Callable[[], None]] = None) -> None:
        """Let half a minute pass, then run the real tick, against the fates if there are any.

        `meanwhile` runs after its first questions and before its last.
        """
        self.slurm.advance(TICK_S)
        is_disturbed = bool(self.slurm.fates) or meanwhile is not None
        self.slurm.before = _once(meanwhile) if meanwhile else lambda command: None
        self.is_ticking = True
        try:
            tick(self.slurm, self.settings)
        except RetryLater:
            is_disturbed = True
        finally:
            self.is_ticking = False
            self.slurm.fates.clear()
            self.slurm.dropped.clear()
            self.slurm.before = lambda command: None
        if is_disturbed:
            self.calm_off_ticks = 0
            self._forgive_requeues()
        else:
            self._after_tick()

    def wait(self, seconds: int) -> None:
        """Let time pass without a tick. Cancels in a race with the last tick are forgotten
        in this time.
        """
        self.slurm.advance(seconds)
        if seconds > self.slurm.min_job_age_s:
            for training in self.trainings.values():
                if training.cancelled_at is not None:
                    self._forget_cancel(training)

    def step_clock(self, seconds: int) -> None:
        """Let the clock jump. No job can keep a claim that a clock brings nearer.

        A clock set back lets Slurm forget newer cancels before older ends. Then it is unknown that
        the whole job was cancelled.
        """
        self.slurm.step_clock(seconds)
        self.known.clear()
        self.was_set_back |= seconds < 0
        for training in self.trainings.values() if self.was_set_back else ():
            self._forget_cancel(training)

    # -- people

    def cancel(self, training: Training, element: Optional[Element]) -> None:
        """Cancel the whole job, or an element, as its user."""
        hit = [element] if element else self.slurm.of(training.job)
        cancelled = {e.name for e in hit if e.state not in ENDED}
        training.cancelled |= cancelled
        training.cancelled_at = self.slurm.now if cancelled else training.cancelled_at
        training.is_cancelled |= element is None and cancelled != set()
        others = (e for e in self.slurm.of(training.job) if e not in hit)
        training.seems_cancelled |= cancelled != set() and not any(map(self._is_alive, others))
        if self.was_set_back:
            self._forget_cancel(training)
        self.slurm.does(f"scancel {element.name if element else training.job}", "nobody")

    def _forget_cancel(self, training: Training) -> None:
        """Forget that the whole job was cancelled, because Slurm does not show it any more."""
        training.seems_cancelled |= training.is_cancelled
        training.is_cancelled = False

    def _is_alive(self, element: Element) -> bool:
        """Elements put back in these seconds look as if they were put back after the cancel."""
        back = (element.eligible or 0) - REQUEUE_WAIT_S
        is_new = element.state == "PENDING" and abs(self.slurm.now - back) <= RACE_S
        return element.state not in ENDED and not is_new

    def hold(self, training: Training, element: Optional[Element]) -> None:
        """Hold as an administrator. The hold counts where squeue shows it."""
        self.slurm.does(f"scontrol hold {element.name if element else training.job}")
        self.admin_held |= {e.name for e in self.slurm.of(training.job) if _is_shown_held(e)}

    def release(self, training: Training) -> None:
        """Release held elements as an administrator, with scontrol. After `off`, switch
        ticks on again.
        """
        self.calm_off_ticks = 0
        for element in self.slurm.of(training.job):
            if element.hold == "admin" or element.description == REQUEUED_HELD:
                self.admin_held.discard(element.name)
                self.admin_released.add(element.name)
                self.slurm.does(f"scontrol release {element.name}")

    def raise_limit(self, element: Element) -> None:
        """Raise a limit. The operator is responsible until a tick has seen it."""
        self.slurm.does(f"scontrol update jobid={element.name} TimeLimit={RAISED_MIN}")
        self.admin_released.add(element.name)
        self.known.clear()
        if element.name in self.core_ends and element.end is not None:
            self.core_ends[element.name] = element.end

    def switch(self, is_off: bool) -> None:
        """Switch malleable jobs off, or on again, as an administrator."""
        place = self.settings.tick.state_dir
        if is_off:
            switch_off(place, "a test")
        else:
            switch_on(place)
            self.is_off = False

    def want_no_growth(self, is_wanted: bool) -> None:
        """Write the file as the site's cron, or remove it."""
        file = Path(self.settings.tick.state_dir) / NO_GROWTH
        if is_wanted:
            file.parent.mkdir(exist_ok=True)
            file.touch()
        else:
            file.unlink(missing_ok=True)
            self.is_calm = False

    # -- the rules that must hold

    def _watch(self, verb: str, element: Element, user: str) -> None:
        is_hidden = element.state in ("FAILED", "TIMEOUT") or (verb, user) == (
            "requeuehold",
            "nobody",
        )
        self._read_history()
        if verb == "requeue" and user != "root":
            self.of(element).requeued_by_user[element.name] = self.slurm.now
            if element.state in FINISHED:  # a user who asks for that answers for its next run
                self.of(element).must_be_spent.discard(element.name)
                self.admin_released.add(element.name)
        if verb == "suspend":
            self.suspended.add(element.name)
        if is_hidden or verb == "resume":
            self.admin_held.discard(element.name)  # from then on Slurm does not show it
        if not self.is_ticking or user != "root":
            return
        if verb == "release" and element.state == "PENDING":
            self._check_nodes(element)
            if self.is_calm:
                self.faults.append(f"{element.name} is released while the site wants no growth")
        if verb == "scancel":
            training, left = self.of(element), self.slurm.of(element.job)
            if not training.is_over and not training.may_be_ended(left):
                self.faults.append(f"the tick cancelled {element.name}, and it was to go on")
            training.is_over = True
            training.ended.add(element.name)
        if verb not in ("update", "scancel") and self._is_core_run(element):
            self.faults.append(f"{verb} of {element.name}, which runs as a core")

    def _is_core(self, element: Element) -> bool:
        """True if the element is at a place where its job's core may be."""
        training = self.of(element)
        return element.partition == MAIN and element.index * training.unit < training.core

    def _is_core_run(self, element: Element) -> bool:
        is_spent = element.name in self.of(element).spent
        return self._is_core(element) and element.state == "RUNNING" and not is_spent

    def _read_history(self) -> None:
        """Read which elements have used up their time in the ordinary queue."""
        for line in self.slurm.history[self.read :]:
            at, name, what = line.split(" ")
            ends = self.core_ends.pop(name, None) if what != "RUNNING" else None
            element = self.slurm.elements.get(name)
            if element and ends is not None and int(at) >= ends - CORE_ENDS_S:
                training = self.of(element)
                training.spent.add(name)
                has_left = what == "REQUEUE" and element.comment.startswith("leaving{")
                if what == "TIMEOUT" or has_left:
                    training.must_be_spent.add(name)
        self.read = len(self.slurm.history)

    def _forgive_requeues(self) -> None:
        """An ended element can only be held after its requeue, and a requeue had no effect."""
        for element in self.slurm.elements.values():
            if element.state == "PENDING" and not element.is_held:
                self.of(element).must_be_spent.discard(element.name)

    def _check_nodes(self, given: Element) -> None:
        """Check that the nodes that the tick gives to an element are used by no other element.

        The nodes of a group are also free of its other elements, until there are too few nodes.
        Where Slurm has silently dropped an update, the element has other nodes than the tick gave
        it.
        """
        if any(f"jobid={given.job}_" in command.stdin for command in self.slurm.dropped):
            return
        others = [e for e in self.slurm.elements.values() if e is not given]
        taken = given.asked & frozenset(n for e in others for n in _claimed(e))
        self.faults += [f"{name} is given to {given.name} too" for name in sorted(taken)]
        fellows = [e for e in others if (e.job, e.barred) == (given.job, given.barred)]
        waiting = [e for e in fellows if _is_released(e)]
        left = self._open_to(given) - frozenset(n for e in others for n in _claimed(e))
        if given.barred and len(left) < given.count * (len(waiting) + 1):
            self.faults.append(f"{given.name} and its group have too few nodes: {sorted(left)}")

    def _open_to(self, element: Element) -> frozenset[str]:
        """The nodes that an element is not excluded from."""
        return frozenset(self.slurm.nodes) - element.barred

    def _started(self, element: Element) -> None:
        self.admin_started.discard(element.name)
        self.admin_started |= {element.name} & self.admin_released
        if element.name in self.admin_held:
            self.faults.append(f"{element.name} started, which an admin holds")
        if self.of(element).is_cancelled or element.name in self.of(element).cancelled:
            self.faults.append(f"{element.name} started, which its user had cancelled")
        if element.name in self.of(element).ended:
            self.faults.append(f"{element.name} started, which the tick had cancelled")
        if element.partition == MAIN:
            self._started_in_main(element)
            return
        if self.is_off and element.name not in self.admin_released:
            self.faults.append(f"{element.name} started while malleable jobs are switched off")
        if element.name not in self.admin_released and 60 * element.limit_min > self.longest_s:
            self.faults.append(f"{element.name} started for {element.limit_min} minutes")

    def _started_in_main(self, element: Element) -> None:
        self._read_history()
        assert element.end is not None
        self.core_ends[element.name] = element.end
        if element.name in self.admin_released:
            return
        if not self._is_core(element):
            self.faults.append(f"{element.name} started outside the lane")
        if element.name in self.of(element).must_be_spent:
            self.faults.append(f"{element.name} started, and its time as a core is over")
        if element.limit_min not in (CORE_MIN, RAISED_MIN):
            self.faults.append(f"{element.name} is a core of {element.limit_min} minutes")

    @property
    def longest_s(self) -> int:
        return self.settings.lease.length_s + 60

    def _after_tick(self) -> None:
        """Check the state after an undisturbed tick."""
        slurm = self.slurm
        claims = [(b.name, b.seen, b.start) for b in slurm.bookings]
        claims += [(str(r.job), r.seen, r.start) for r in slurm.rigid]
        self.known |= {n for n, seen, start in claims if seen <= slurm.now <= start - KNOWN_AHEAD_S}
        for element in slurm.elements.values():
            if self._is_core_run(element):
                self._check_core(element)
            elif not self._is_core(element):
                self._check_lease(element)
            if self.of(element).is_cancelled and element.state == "PENDING":
                self.faults.append(f"{element.name} waits, though its user cancelled the job")
        self.admin_released.clear()
        self._check_off(find_off(self.settings.tick.state_dir) is not None)
        self.is_calm = find_no_growth(self.settings.tick.state_dir) is not None
        for training in self.trainings.values():
            if all(e.state != "COMPLETING" for e in slurm.of(training.job)):
                training.cancelled_at = None  # it has been seen

    def _check_off(self, is_off: bool) -> None:
        """The first tick asks all to leave, the next puts back the rest, the third sees the end."""
        self.is_off, before = is_off, self.calm_off_ticks
        self.calm_off_ticks = before + 1 if is_off else 0
        if self.calm_off_ticks >= OFF_TICKS:
            running = (e for e in self.slurm.elements.values() if e.state == "RUNNING")
            lent = (e for e in running if not self._is_core(e))
            left = [e.name for e in lent if e.name not in self.suspended]
            self.faults += [f"{name} runs though all was switched off long ago" for name in left]

    def _check_core(self, element: Element) -> None:
        if element.signalled is not None:
            self.faults.append(f"{element.name} is asked to leave, and runs as a core")
        if element.end != self.core_ends.get(element.name, element.end):
            self.faults.append(f"{element.name} has another end, and runs as a core")

    def _check_places(self, training: Training) -> None:
        """Check that no more elements than the core are released, or run, outside the lane."""
        there = [e for e in self.slurm.of(training.job) if e.partition == MAIN]
        asked = self.admin_released | self.admin_started
        out = [e for e in there if e.state == "RUNNING" or _is_released(e)]
        lent = [e.name for e in out if not self._is_core(e) and e.name not in asked]
        self.faults += [f"{name} is released outside the lane" for name in lent]

    def _check_lease(self, element: Element) -> None:
        """A start in the future, by a clock that was set back, allows no shorter limit.

        The tick asks such a fragment to leave.
        """
        left_s = (element.end or 0) - self.slurm.now
        goes = self.was_set_back and element.signalled is not None
        if element.state == "RUNNING" and left_s > self.longest_s and not goes:
            self.faults.append(f"{element.name} has a lease of {left_s} s")

    def check(self) -> None:
        """Raise AssertionError if a rule was broken."""
        self._read_history()
        for training in self.trainings.values():
            self._check_places(training)
        for element in self.slurm.elements.values():
            if element.name in self.of(element).cancelled and element.state in (
                "PENDING",
                "RUNNING",
            ):
                self.faults.append(f"{element.name} is back, which its user had cancelled")
        others_doing = self.suspended | self.admin_started
        self.faults += [
            str(v)
            for v in self.slurm.violations
            if (not v.whose or v.whose in self.known) and v.element not in others_doing
        ]
        self.slurm.violations.clear()  # a tick is not blamed for facts that Slurm did not show
        if self.faults:
            raise AssertionError("; ".join(dict.fromkeys(self.faults)))

    # -- the end

    def calm(self) -> None:
        """All people undo their actions. Only the tick may undo the rest."""
        slurm = self.slurm
        self.switch(is_off=False)
        self.want_no_growth(is_wanted=False)
        slurm.bookings.clear()
        slurm.rigid.clear()
        slurm.nodes = dict.fromkeys(slurm.nodes, "")
        for training in self.trainings.values():
            self.release(training)
            training.script.is_mute = False
            job = slurm.jobs[training.job]
            job.throttle, job.is_dependent = 0, False
        for element in slurm.elements.values():
            if element.state == "SUSPENDED":
                slurm.does(f"scontrol resume {element.name}")
            if self.was_set_back and element.partition == MAIN:  # Slurm lets it wait for hours
                element.eligible = min(element.eligible or 0, slurm.now)

    def settle(self) -> None:
        """Check that every job reaches its proper place in a bounded number of ticks."""
        for _ in range(PATIENCE_TICKS):
            self.calm()  # again: a running fragment's hold shows once it is put back
            restless = self.restless()
            if not restless:
                return
            self.tick()
            self.check()
        elements = "\n".join(str(e) for t in restless for e in self.slurm.of(t.job))
        raise AssertionError(f"after {PATIENCE_TICKS} ticks: {restless}\n{elements}")

    def restless(self) -> list[Training]:
        """The jobs that are not yet where they have to be."""
        free = sum(self.slurm.is_free(name) for name in self.slurm.nodes)
        jobs = ((t, self.slurm.of(t.job)) for t in self.trainings.values())
        return [t for t, left in jobs if not t.is_at_rest(left, free)]


def _once(happens: Callable[[], None]) -> Callable[[Command], None]:
    """Let an event happen before the last question of a tick. It is called with each command."""
    asked: list[Command] = []

    def before(command: Command) -> None:
        asked.append(command)
        if len(asked) == 3:
            happens()

    return before


def _is_shown_held(element: Element) -> bool:
    """Tell whether Slurm shows an administrator's hold.

    It shows no such hold for an element that its user has just put back held. An element whose bad
    end is not on record looks as if a tick had put it back.
    """
    is_back = element.exit_code != 0 and "leave=" not in element.admin_comment
    is_hidden = element.description != "" or element.then == "REQUEUE_HOLD" or is_back
    return element.hold == "admin" and not is_hidden and element.state in WAITS


def _claimed(element: Element) -> frozenset[str]:
    """The nodes that an element is on, or may start on at any moment."""
    if element.state in LIVE_STATES or element.state == "SUSPENDED":
        return element.nodes
    return element.asked if _is_released(element) else frozenset()


def _is_released(element: Element) -> bool:
    return element.state == "PENDING" and not element.is_held and not element.is_unfit
