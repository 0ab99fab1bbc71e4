"""Users and administrators change everything on a small machine, at random, while ticks run.

The seed decides all changes. Their moments depend on Slurm and this host, so a run repeats in kind,
not to the second.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from faults.checker import NODES
from promises.bench import Bench
from promises.churn_checker import JOBS, OTHERS, RESERVATIONS, Job, Known, Look, parse_look
from slurm_hooks.model import Intent

USER = "nobody" if os.geteuid() == 0 else None
EPOCH = {"SLURM_TIME_FORMAT": "%s"}
QUICK = "exec sleep 3600"  # gone at SIGTERM
STUBBORN = "trap '' TERM; sleep 3600 & wait; wait"  # gone after KillWait
MOST_WAITING, MOST_DRAINED, MOST_RESERVED = 2, 2, 2
BACK_ON = 0.2  # at each step
UNCLEAR_S = 15.0  # planning/cancels.py reads a fragment's cancel then as the cancel of the job


@dataclass(frozen=True)
class Made:
    """A malleable job as it was submitted. If `is_pool`, it may stay past planned starts."""

    request: str
    least: int
    most: int
    is_pool: bool = False
    script: str = QUICK


KINDS = (
    *[Made("1-3", 1, 3)] * 3,
    *[Made("1-2", 1, 2)] * 2,
    Made("2-4", 2, 4),
    Made("1-2", 1, 2, script=STUBBORN),
    *[Made("1-4,engine=pool", 1, 4, is_pool=True)] * 2,
    Made("0-6,engine=pool", 0, 6, is_pool=True),
)


@dataclass
class Churn:
    """A course: the changes that are allowed, the changes that were made, and the state after each
    tick.
    """

    bench: Bench
    dice: random.Random
    jobs: dict[int, Made] = field(default_factory=dict)
    drained: dict[str, float] = field(default_factory=dict)
    cancelled: dict[str, float] = field(default_factory=dict)
    held: set[int] = field(default_factory=set)
    reserved: list[str] = field(default_factory=list)
    ceiling: int | None = None
    is_off: bool = False
    asked: dict[str, float] = field(default_factory=dict)  # to leave, by element
    looks: list[Look] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    plain: str = ""  # the settings without a mode
    began: float = field(default_factory=time.time)

    def start(self) -> None:
        """Ten jobs, and a first tick."""
        self.plain = self.bench.box.settings.read_text()
        for made in KINDS:
            self._submit(made)
        self.tick()

    def step(self) -> None:
        """Make up to three changes, then run a tick or only wait."""
        if self.is_off and self.dice.random() < BACK_ON:
            self._on()
        for _ in range(self.dice.randint(1, 3)):
            self.dice.choices(*zip(*WEIGHTS))[0](self)
        time.sleep(self.dice.uniform(0, 1))
        self.tick()

    def tick(self) -> Look:
        """Run a tick and read Slurm's answers."""
        plan = self.bench.tick().plan
        self._note(f"tick: {'; '.join(_word(action) for action in plan.actions)}")
        leave = [each for each in plan.actions if {"notice", "put back"} & set(each.parts)]
        self.asked |= {str(each.fragment): time.time() for each in leave}
        self.looks.append(self.look())
        return self.looks[-1]

    def look(self) -> Look:
        run = self.bench.box.run
        texts = [run(argv, env=EPOCH).stdout for argv in (JOBS, NODES, RESERVATIONS)]
        known = Known(dict(self.drained), 0 if self.is_off else self.ceiling, dict(self.cancelled))
        return parse_look(time.time(), texts[0], texts[1], texts[2], known)

    def calm(self) -> None:
        """Give all nodes back, resume fragments, and remove reservations, ordinary jobs, limits and
        holds.
        """
        for node in sorted(self.drained):
            self._resume(node)
        for name in list(self.reserved):
            self._unreserve(name)
        self._do("scancel", f"--partition={OTHERS}")
        for element in self.look().ours:
            if element.state == "SUSPENDED":  # by its user, where Slurm allows that
                self._do("scontrol", "resume", element.name)
        for job in sorted(self.held):
            self._let_go(job)
        self._limit(None)
        self._on()

    @property
    def living(self) -> dict[int, Made]:
        return {job: made for job, made in self.jobs.items() if str(job) not in self.cancelled}

    @property
    def heedful(self) -> frozenset[int]:
        """Jobs that leave before a planned start: gangs that did not say how much an interruption
        costs.
        """
        return frozenset(job for job, made in self.jobs.items() if not made.is_pool)

    @property
    def summary(self) -> str:
        """A summary of the changes, for a reader who sees that no promise broke."""
        used = sum(len(look.running) for look in self.looks) / len(self.looks)
        begun = {(job.name, job.start) for look in self.looks for job in look.running}
        theirs = {j.name for look in self.looks for j in look.jobs if not j.is_ours and j.start}
        return (
            f"{len(self.looks)} ticks, {len(begun)} runs of fragments, {len(theirs)} ordinary jobs,"
            f" {used:.1f} of {len(self.bench.box.nodes)} nodes used on average"
        )

    def nothing(self) -> None:
        """Make no change. Without this choice no fragment would ever live for long."""

    # -- ordinary jobs

    def rigid(self) -> None:
        waiting = self._others("PENDING")
        if len(waiting) < MOST_WAITING:
            self._rigid(self.dice.randint(1, 3), self.dice.randint(2, 15))

    def urgent(self) -> None:
        if len(self._others("PENDING")) < MOST_WAITING:
            self._rigid(self.dice.randint(5, 8), self.dice.randint(1, 5), "--nice=-1000")

    def _rigid(self, nodes: int, seconds: int, *more: str) -> None:
        words = ("-p", OTHERS, f"-N{nodes}", "--time=1", "--exclusive", "-o/dev/null")
        self._do("sbatch", *words, *more, f"--wrap=sleep {seconds}")

    def end_rigid(self) -> None:
        others = self._others("PENDING") + self._others("RUNNING")
        if others:
            self._do("scancel", self.dice.choice(others).name)

    # -- users of malleable jobs

    def requeue(self) -> None:
        self._to_one("requeue")

    def user_hold(self) -> None:
        self._to_one(self.dice.choice(("hold", "requeuehold", "release", "suspend")))

    def edit(self) -> None:
        changes = ("TimeLimit=1", "ReqNodeList=n1", "ExcNodeList=", "Nice=5", "EndTime=now+40")
        element = self._element()
        if element is not None:
            change = self.dice.choice(changes)
            self._do("scontrol", "update", f"jobid={element.name}", change, is_user=True)

    def cancel_one(self) -> None:
        """An element of a job that has more than its minimum, once.

        If all its other elements have ended or just left, this could mean the job.
        """
        element = self._element()
        if element is None or any(n.startswith(f"{element.job_id}_") for n in self.cancelled):
            return
        alive = [job for job in self.looks[-1].ours if job.state in ("RUNNING", "PENDING")]
        others = [job.name for job in alive if job.job_id == element.job_id and job != element]
        if all(time.time() - self.asked.get(name, 0) < UNCLEAR_S for name in others):
            return
        if self.jobs[element.job_id].least < self.jobs[element.job_id].most:
            self._do("scancel", element.name, is_user=True)
            self.cancelled[element.name] = time.time()

    def cancel_job(self) -> None:
        """Cancel a whole job and submit another in its place."""
        job = self.dice.choice(sorted(self.living))
        self._do("scancel", str(job), is_user=True)
        self.cancelled[str(job)] = time.time()
        self.held.discard(job)
        self._submit(self.jobs[job])

    def _to_one(self, verb: str) -> None:
        element = self._element()
        if element is not None:
            self._do("scontrol", verb, element.name, is_user=True)

    # -- operators and admins

    def hold(self) -> None:
        job = self.dice.choice(sorted(self.living))
        if job in self.held:
            self._let_go(job)
        elif len(self.held) < 2 and self._malleable("hold", str(job)):
            self.held.add(job)

    def drain(self) -> None:
        node = self.dice.choice(self.bench.box.nodes)
        if node in self.drained:
            self._resume(node)
        elif len(self.drained) < MOST_DRAINED:
            self._do("scontrol", "update", f"nodename={node}", "state=drain", "reason=churn")
            self.drained[node] = time.time()

    def reserve(self) -> None:
        if self.reserved and (len(self.reserved) >= MOST_RESERVED or self.dice.random() < 0.4):
            self._unreserve(self.dice.choice(self.reserved))
            return
        name, start_s = f"r{len(self.done)}", self.dice.choice((10, 30, 60, 100, 150))
        nodes = ",".join(sorted(self.dice.sample(self.bench.box.nodes, self.dice.randint(1, 3))))
        words = (f"reservationname={name}", f"starttime=now+{start_s}", "duration=1")
        if self._do(
            "scontrol", "create", "reservation", *words, "users=root", f"nodes={nodes}",
            "flags=ignore_jobs",
        ):  # fmt: skip
            self.reserved.append(name)

    def limit(self) -> None:
        self._limit(self.dice.choice((None, None, 2, 4, 6)))

    def switch(self) -> None:
        if not self.is_off and self._malleable("off", "--reason", "churn"):
            self.is_off = True

    # -- how it is done

    def _submit(self, made: Made) -> None:
        job = self.bench.submit(made.script, made.request, options=["-o/dev/null"])
        self.jobs[job] = made
        self._note(f"job {job}: {made.request}")

    def _resume(self, node: str) -> None:
        self._do("scontrol", "update", f"nodename={node}", "state=resume")
        self.drained.pop(node)

    def _unreserve(self, name: str) -> None:
        self._do("scontrol", "delete", f"reservationname={name}")  # or it has ended
        self.reserved.remove(name)

    def _let_go(self, job: int) -> None:
        self._malleable("release", str(job))
        self.held.discard(job)

    def _limit(self, nodes: int | None) -> None:
        mode = f'level = "on"\nmax_nodes = {nodes or 0}\n'
        self.bench.box.settings.write_text(self.plain.replace('level = "on"\n', mode))
        self.ceiling = nodes
        self._note(f"max_nodes {nodes}")

    def _on(self) -> None:
        self._malleable("on")
        self.is_off = False

    def _malleable(self, *words: str) -> bool:
        said = self.bench.malleable(*words)
        self._note(f"malleable {' '.join(words)}: {said.returncode} {said.stderr[:100]!r}")
        return said.returncode == 0

    def _do(self, *argv: str, is_user: bool = False) -> bool:
        said = self.bench.box.run(argv, user=USER if is_user else None, check=False)
        who = "user " if is_user else ""
        self._note(f"{who}{' '.join(argv)}: {said.returncode} {said.stderr.strip()[:100]!r}")
        return said.returncode == 0

    def _others(self, state: str) -> list[Job]:
        jobs = self.looks[-1].jobs
        return [job for job in jobs if not job.is_ours and job.state == state]

    def _element(self) -> Job | None:
        """Pick an element that was alive at the last reading. Running elements are likelier."""
        living = self.living
        elements = [job for job in self.looks[-1].ours if job.job_id in living]
        elements = [job for job in elements if job.state in ("RUNNING", "PENDING")]
        weights = [5 if job.state == "RUNNING" else 1 for job in elements]
        return self.dice.choices(elements, weights)[0] if elements else None

    def _note(self, text: str) -> None:
        self.done.append(f"{time.time() - self.began:6.1f} {text}")


def _word(intent: Intent) -> str:
    nodes = ",".join(sorted(intent.nodes))
    return f"{', '.join(intent.parts)} {intent.fragment} {nodes} ({intent.cause.value})"


Change = Callable[[Churn], None]
WEIGHTS: tuple[tuple[Change, int], ...] = (
    (Churn.nothing, 12),
    (Churn.rigid, 4),
    (Churn.urgent, 1),
    (Churn.end_rigid, 2),
    (Churn.requeue, 4),
    (Churn.user_hold, 4),
    (Churn.edit, 4),
    (Churn.cancel_one, 1),
    (Churn.cancel_job, 1),
    (Churn.hold, 2),
    (Churn.drain, 5),
    (Churn.reserve, 4),
    (Churn.limit, 2),
    (Churn.switch, 1),
)
