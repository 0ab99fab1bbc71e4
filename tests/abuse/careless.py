"""An administrator who changes everything at random while jobs train, and sets it right at the end.

The seed decides the changes. Their moments depend on Slurm and this host, so a run repeats in kind.
The journal has each change with its second and Slurm's answer.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from subprocess import TimeoutExpired

from abuse.course import PARTS, Course
from promises.churn_checker import OTHERS, OURS, Job
from slurm_hooks.errors import MalleableError
from waiting import wait_until

LOOK_S = 10.0
LONG_S = 600.0
LATE = (MalleableError, TimeoutExpired)  # slurmctld or a command of ours did not answer in time
ELEMENT = ("hold", "uhold", "release", "requeue", "requeuehold", "suspend", "resume")
EDITS = (
    "Partition={other}", "TimeLimit=1", "TimeLimit=30", "TimeLimit=+5", "Nice=100", "Priority=5",
    "Comment=ticket_7", "AdminComment=ticket_7", "AdminComment=", "JobName=renamed",
    "ReqNodeList={node}", "ExcNodeList={node}", "NumNodes=2", "Dependency=afterany:{ordinary}",
    "StartTime=now+60", "EndTime=now+40", "Features=large", "MinMemoryNode=100",
    "QOS=normal", "Account=root", "MailUser=root",
)  # fmt: skip
NO_JOB = "67000000"
SIGNALS = ("TERM", "USR1", "URG", "INT", "CONT", "KILL")


@dataclass
class Careless(Course):
    """A course with such an administrator."""

    dice: random.Random = field(default_factory=random.Random)
    featured: set[str] = field(default_factory=set)  # elements that ask for a feature
    reserved: list[str] = field(default_factory=list)
    undo: list[tuple[float, str, Callable[[], object]]] = field(default_factory=list)
    last_blow: dict[int, float] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)

    def step(self) -> None:
        """Make a change or two, undo what is due, and look."""
        for _ in range(self.dice.choice((1, 1, 2))):
            change = self.dice.choices(*zip(*WEIGHTS))[0]
            with suppress(*LATE):
                change(self)
                self.done[change.__name__] += 1
        self._undo(time.time())
        time.sleep(self.dice.uniform(0.5, 5))
        if time.time() - self.looks[-1].at > LOOK_S:
            self.look()

    def calm(self) -> None:
        """Set everything right that an administrator can see is wrong, and be sure of it."""
        self._note("calm")
        wait_until(self._has_set_right, LONG_S, lambda: self.undo)
        self.calmed = time.time()

    def _has_set_right(self) -> bool:
        with suppress(*LATE):
            self._undo(float("inf"))
            self._do("scancel", f"--partition={OTHERS}", "--state=PENDING", "--user=root")
            for element in self._elements(alive=False):
                self._mend(element)
            for job in self.living:
                self._malleable("release", str(job))
            return not self.undo
        return False

    # -- changes of elements and jobs

    def element_verb(self) -> None:
        element = self._element()
        self._do("scontrol", self.dice.choice(ELEMENT), element.name)

    def whole_verb(self) -> None:
        job = self.dice.choice(list(self.living))
        self._do("scontrol", self.dice.choice(ELEMENT), str(job))

    def edit(self) -> None:
        self._edit(self._element().name)

    def edit_whole(self) -> None:
        self._edit(str(self.dice.choice(list(self.living))))

    def _edit(self, name: str) -> None:
        others = [job for job in self.looks[-1].jobs if job.job_id not in self.jobs]
        # A dependency on a job of the course is no mistake: that job does not end.
        other = self.dice.choice(others).name if others else NO_JOB
        node, lanes = self.dice.choice(self.bench.box.nodes), (OTHERS, OURS)
        words = {"other": self.dice.choice(lanes), "node": node, "ordinary": other}
        change = self.dice.choice(EDITS).format(**words)
        if self._do("scontrol", "update", f"jobid={name}", change) and "Features" in change:
            self.featured |= {e.name for e in self._elements() if name in (e.name, str(e.job_id))}

    def tidy(self) -> None:
        """Set a job right, as far as its elements show that it is not."""
        job = self.dice.choice(list(self.living))
        for element in self._elements(alive=False):
            if element.job_id == job:
                self._mend(element)
        self._malleable("release", str(job))

    def cancel_one(self) -> None:
        """Cancel an element of a job that can lose it, and not the last of those that live."""
        element = self._element()
        made = self.jobs[element.job_id]
        least = int(made.request.partition("-")[0])
        mine = [e for e in self._elements() if e.job_id == element.job_id]
        if made.is_fixed or len(mine) <= max(least + 1, made.count - 1):
            return
        self.cancelled[element.name] = time.time()
        self._do("scancel", element.name)

    def signal(self) -> None:
        element = self._element()
        if element.state == "RUNNING" and self._may_hit(element.job_id):
            part, number = self.dice.choice(("", "", ".batch", ".0")), self.dice.choice(SIGNALS)
            if number == "KILL":
                part = ".batch"  # it cancels an element that waits meanwhile
            self._do("scancel", f"--signal={number}", element.name + part)

    def cancel_step(self) -> None:
        element = self._element()
        if element.state == "RUNNING" and self._may_hit(element.job_id):
            self._do("scancel", f"{element.name}.{self.dice.choice(('batch', '0'))}")

    def cancel_job(self) -> None:
        """Cancel a whole job now and then, and submit another in its place."""
        newest = max(self.living)
        job = self.dice.choice(list(self.living))
        if job == newest or time.time() - self.last_blow.get(0, self.began) < 180:
            return
        self.last_blow[0] = time.time()
        self.cancelled[str(job)] = time.time()
        self._do("scancel", str(job))
        self._submit(self.jobs[job])

    # -- changes of the cluster

    def partition(self) -> None:
        name = self.dice.choice((OURS, OURS, OTHERS, *([PARTS] if self.has_parts else ())))
        word = self.dice.choice(("State=DOWN", "State=DRAIN", "State=INACTIVE", "MaxTime=2",
                                 "Nodes=n[1-5]", "MaxNodes=1", "AllowGroups=games"))  # fmt: skip
        back = {"State": "State=UP", "MaxTime": "MaxTime=UNLIMITED", "Nodes": "Nodes=ALL",
                "MaxNodes": "MaxNodes=UNLIMITED", "AllowGroups": "AllowGroups=ALL"}  # fmt: skip
        update = ("scontrol", "update", f"partitionname={name}")
        self._for_a_while(60, f"{name} {word.partition('=')[0]}", (*update, word),
                          (*update, back[word.partition("=")[0]]))  # fmt: skip

    def node(self) -> None:
        name = self.dice.choice(self.bench.box.nodes)
        if name in self.nodes_out or len(self.nodes_out) > 2:
            return
        self.nodes_out[name] = time.time()
        update = ("scontrol", "update", f"nodename={name}")
        state = self.dice.choice(("state=drain", "state=down", "state=drain"))

        def resume() -> None:
            self._do(*update, "state=resume")
            self.nodes_out.pop(name, None)

        self._later(self.dice.uniform(10, 60), f"resume {name}", resume)
        self._do(*update, state, "reason=careless")

    def reservation(self) -> None:
        if self.reserved and self.dice.random() < 0.5:
            name = self.dice.choice(self.reserved)
            word = self.dice.choice(("duration=2", "starttime=now+60", "nodes=n1,n2", "delete"))
            verb = ("delete", f"reservationname={name}")
            verb = verb if word == "delete" else ("update", f"reservationname={name}", word)
            self._do("scontrol", *verb)
            return
        name, nodes = (
            f"r{len(self.done)}x{int(time.time())}",
            self.dice.sample(self.bench.box.nodes, self.dice.randint(1, 4)),
        )
        words = (f"reservationname={name}", f"starttime=now+{self.dice.choice((1, 20, 60, 150))}",
                 "duration=1", "users=root", f"nodes={','.join(nodes)}")  # fmt: skip
        flags = self.dice.choice((("flags=ignore_jobs",), ("flags=maint,ignore_jobs",), ()))
        if self._do("scontrol", "create", "reservation", *words, *flags):
            self.reserved.append(name)
            self._later(self.dice.uniform(20, 90), f"delete {name}", lambda: self._unreserve(name))

    def reconfigure(self) -> None:
        self._do("scontrol", "reconfigure")

    def restart(self) -> None:
        self._note("slurmctld is restarted")
        self.bench.box.restart_controller()

    # -- our own commands and files

    def switch(self) -> None:
        for word in ("off", "on"):
            args = ("off", "--reason", "careless") if word == "off" else ("on",)
            if word == "off":
                self._malleable(*args)
            else:
                self._later(self.dice.uniform(5, 45), "on", lambda: self._malleable("on"))

    def own_hold(self) -> None:
        job = str(self.dice.choice(list(self.living)))
        self._malleable("hold", job)
        self._later(self.dice.uniform(5, 60), "release", lambda: self._malleable("release", job))

    def mode(self) -> None:
        if any(name == "mode" for _, name, _ in self.undo):
            return
        plain = self.bench.box.settings.read_text()
        lines = self.dice.choice((
            'level = "observe"\n', 'level = "on"\nmax_nodes = 3\n',
            'level = "on"\nmax_share = 0.4\n',
            'level = "onn"\n',
        ))  # fmt: skip
        self.bench.box.settings.write_text(plain.replace('level = "on"\n', lines))
        self._note(f"mode: {lines!r}")
        text = self.bench.box.settings
        self._later(self.dice.uniform(10, 50), "mode", lambda: text.write_text(plain))

    def chmod(self) -> None:
        """Close the directory in which the job's fragments meet, or the state of the ticks."""
        places = [p for p in self.bench.box.work.glob(".malleable-*") if p.is_dir()]
        if not places or any(name == "chmod" for _, name, _ in self.undo):
            return
        place = self.dice.choice(places)
        mode = place.stat().st_mode & 0o7777
        place.chmod(self.dice.choice((0, 0o500)))
        self._note(f"chmod of {place.name}")
        self._later(self.dice.uniform(20, 60), "chmod", lambda: place.chmod(mode))

    def ordinary(self) -> None:
        waiting = [j for j in self.looks[-1].jobs if j.job_id not in self.jobs
                   and j.state == "PENDING"]  # fmt: skip
        if len(waiting) < 3:
            words = ("-p", OTHERS, f"-N{self.dice.randint(1, 4)}", "--time=2", "--exclusive")
            if self.has_parts and self.dice.random() < 0.5:
                words = ("-p", OTHERS, "-N1", "--time=2", "--gres=gpu:1")
            nice = self.dice.choice(((), ("--nice=-500",)))
            self._do("sbatch", *words, "-o/dev/null", *nice,
                     f"--wrap=sleep {self.dice.randint(5, 60)}")  # fmt: skip

    def explain(self) -> None:
        """Ask why a job has its size. It must have an answer, whatever happened to its elements."""
        job = self.dice.choice(list(self.living))
        said = self.bench.malleable("explain", str(job))
        self._note(f"explain {job}: {said.returncode} {said.stdout} {said.stderr}")
        if said.returncode not in (0, 75, 78) or (said.returncode == 0 and not said.stdout.strip()):
            self.faults.append(f"explain {job}: {said.returncode} {said.stdout} {said.stderr}")

    # -- how it is done

    def _mend(self, element: Job) -> None:
        """Do what an administrator does who finds the element in this state."""
        if element.state == "SUSPENDED":
            self._do("scontrol", "resume", element.name)
        if element.state == "PENDING" and element.name in self.featured:
            self._do("scontrol", "update", f"jobid={element.name}", "Features=")
            self.featured.discard(element.name)
        if element.partition == OTHERS:
            if element.state not in ("PENDING", "RUNNING"):
                self._do("scontrol", "requeuehold", element.name)
            self._do("scontrol", "update", f"jobid={element.name}", f"Partition={OURS}")

    def _may_hit(self, job: int) -> bool:
        """A script that fails three times in a row is stopped. So blows are rare."""
        if time.time() - self.last_blow.get(job, 0) < 120:
            return False
        self.last_blow[job] = time.time()
        return True

    def _element(self) -> Job:
        elements = self._elements()
        weights = [5 if job.state == "RUNNING" else 1 for job in elements]
        return self.dice.choices(elements, weights)[0]

    def _for_a_while(
        self, most_s: float, name: str, there: Sequence[str], back: Sequence[str]
    ) -> None:
        if any(each == name for _, each, _ in self.undo):
            return
        self._later(self.dice.uniform(10, most_s), name, lambda: self._do(*back))
        self._do(*there)  # even if no answer comes

    def _later(self, in_s: float, name: str, act: Callable[[], object]) -> None:
        self.undo.append((time.time() + in_s, name, act))

    def _undo(self, until: float) -> None:
        due = [each for each in self.undo if each[0] <= until]
        self.undo = [each for each in self.undo if each[0] > until]
        for _, name, act in due:
            self._note(f"back: {name}")
            try:
                act()
            except LATE:
                self._later(LOOK_S, name, act)

    def _unreserve(self, name: str) -> None:
        self._do("scontrol", "delete", f"reservationname={name}")  # or it has ended
        if name in self.reserved:
            self.reserved.remove(name)


Change = Callable[[Careless], None]
WEIGHTS: tuple[tuple[Change, int], ...] = (
    (Careless.ordinary, 5),
    (Careless.element_verb, 8),
    (Careless.whole_verb, 2),
    (Careless.edit, 8),
    (Careless.edit_whole, 2),
    (Careless.cancel_one, 1),
    (Careless.signal, 2),
    (Careless.cancel_step, 1),
    (Careless.cancel_job, 1),
    (Careless.partition, 2),
    (Careless.node, 3),
    (Careless.reservation, 3),
    (Careless.reconfigure, 1),
    (Careless.restart, 1),
    (Careless.switch, 1),
    (Careless.own_hold, 1),
    (Careless.mode, 1),
    (Careless.chmod, 1),
    (Careless.explain, 4),
    (Careless.tidy, 3),
)
