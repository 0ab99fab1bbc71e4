"""Play the scenario on two sandboxes side by side and return the recording.

It acts in order and does not judge. verdict judges, and show prints.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from demo import place
from demo.records import Recording, Row, last_step, parse_rounds
from demo.sampler import Reconciler, Sampler
from demo.scenario import (
    LIMIT_S,
    PARTITION,
    SUBMIT_AT_S,
    TICK_S,
    Booking,
    Rigid,
    Scenario,
)
from demo.story import has_room
from demo.work import Work
from slurm_hooks.sandbox import Sandbox

EXAMPLES = Path(__file__).resolve().parents[1]
ENVIRONMENT = "environment"  # of the user's wheel, in the directory of the job
PAUSE_S = 0.2
URGENT_PATIENCE_S = 15.0
FIRST_START_S = 90.0
ENDED = ("CANCELLED", "COMPLETED", "TIMEOUT", "FAILED")


class DemoFailed(Exception):
    """The scenario was not played to its end. The message names the step and the reason."""


@dataclass
class Run:
    """A scenario that is played: both sandboxes, the submitted jobs and the listeners.

    `submission` is what the user typed, and the answer.
    """

    main: Sandbox
    alone: Sandbox
    who: place.Submitter
    work: Work
    scenario: Scenario
    zero: float = 0.0
    job: str = ""
    submission: tuple[str, str] = ("", "")
    ids: dict[str, tuple[str, str]] = field(default_factory=dict)
    sampler: Optional[Sampler] = None
    sampler_alone: Optional[Sampler] = None
    reconciler: Optional[Reconciler] = None
    is_booked: bool = False

    @property
    def now(self) -> float:
        """Seconds since the load began."""
        return time.time() - self.zero

    @property
    def log(self) -> list[str]:
        """The job's log so far."""
        paths = self.main.work.glob(f"{self.work.job}-{self.job}[._]*log") if self.job else ()
        texts = (_read(path) for path in sorted(paths, key=lambda path: path.stat().st_mtime))
        return "".join(texts).splitlines()

    @property
    def steps(self) -> tuple[int, int]:
        """Steps, or tasks, done and in all."""
        return last_step(self.log, self.work.unit)

    @property
    def recording(self) -> Recording:
        """Everything seen so far."""
        booking = self.scenario.booking
        begin = self.zero + booking.starts_s if booking else float("inf")
        return Recording(
            zero=self.zero,
            job=self.job,
            ids=dict(self.ids),
            with_it=tuple(self.sampler.samples) if self.sampler else (),
            without=tuple(self.sampler_alone.samples) if self.sampler_alone else (),
            ticks=tuple(self.reconciler.ticks) if self.reconciler else (),
            rounds=parse_rounds(self._rounds()),
            result=_result(self.main.work / "result.json"),
            begin=begin,
            end=begin + 60 * booking.minutes if booking else begin,
            work=self.work,
            scenario=self.scenario,
        )

    def _rounds(self) -> str:
        """The rounds that the rendezvous wrote into the directory of the job's user."""
        logs = sorted(self.main.work.glob(f".malleable-*/*/{self.job}/rounds.jsonl"))
        return _read(logs[0]) if logs else ""


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _result(path: Path) -> dict[str, Any]:
    """The result that the job wrote at its end, empty while the job writes it."""
    try:
        return dict(json.loads(_read(path)))
    except ValueError:
        return {}


def play(run: Run, out: Path, watch: Callable[[Run], None]) -> None:
    """Play the scenario to its end, calling `watch` several times a second.

    Raises DemoFailed if the malleable job stops, does not start, or is not done in time.
    """
    for name in run.work.files:
        shutil.copy(EXAMPLES / run.work.folder / name, run.main.work / name)
    ticks = out / "ticks.jsonl"
    ticks.unlink(missing_ok=True)
    if run.scenario.is_plain:
        place.install_wheel(run.main.work / ENVIRONMENT)
    with contextlib.ExitStack() as stack:
        run.sampler = stack.enter_context(Sampler(run.main))
        run.sampler_alone = stack.enter_context(Sampler(run.alone))
        run.zero = _next_second()
        if not run.scenario.is_plain:
            run.reconciler = stack.enter_context(Reconciler(run.main, TICK_S, ticks))
        while not _is_over(run):
            _submit_due(run)
            _raise_if_stuck(run)
            watch(run)
            time.sleep(PAUSE_S)
        time.sleep(2.5)  # two more samples
        watch(run)


def _next_second() -> float:
    """Wait for a whole second and return it, so that it compares with Slurm's own times."""
    whole = float(int(time.time()) + 1)
    time.sleep(max(0.0, whole - time.time()))
    return whole


def _submit_due(run: Run) -> None:
    """Submit everything that is due, in both sandboxes at the same moment."""
    for rigid in run.scenario.rigid:
        if rigid.name not in run.ids and _is_due(rigid, run):
            run.ids[rigid.name] = (_submit(rigid, run.main), _submit(rigid, run.alone))
    if not run.job and run.now >= SUBMIT_AT_S and _has_begun(run):
        run.job = _submit_malleable(run)
    booking = run.scenario.booking
    if booking and not run.is_booked and run.now >= booking.at_s:
        for box in (run.main, run.alone):
            box.run(_booking(booking, run.zero))
        run.is_booked = True


def _has_begun(run: Run) -> bool:
    """Tell whether the load has begun: a busy slurmctld may take seconds for the first jobs."""
    first = [run.ids[rigid.name][0] for rigid in run.scenario.rigid if rigid.at_s == 0]
    rows = {row.job: row for row in _rows(run)}
    return all(job in rows and rows[job].is_on_nodes for job in first)


def _is_due(rigid: Rigid, run: Run) -> bool:
    """Tell whether it is due. Urgent jobs wait a little for the moment without room, because that
    is their purpose."""
    if run.now < rigid.at_s:
        return False
    return (
        not rigid.is_urgent
        or not _has_room(rigid, run)
        or run.now >= rigid.at_s + URGENT_PATIENCE_S
    )


def _has_room(rigid: Rigid, run: Run) -> bool:
    samples = run.sampler.samples[-2:] if run.sampler else []
    return len(samples) < 2 or any(has_room(rigid, sample, run.recording) for sample in samples)


def _submit(rigid: Rigid, box: Sandbox) -> str:
    argv = ["sbatch", "--parsable", f"--job-name={rigid.name}", f"--partition={PARTITION}"]
    size = ("--exclusive",)
    if rigid.gpus:
        size = (f"--gres=gpu:{rigid.gpus}", f"--cpus-per-gpu={place.CPUS_PER_GPU}")
    argv += [f"--nodes={rigid.nodes}", *size, f"--time={rigid.limit_min}"]
    argv += ["--output=/dev/null", f"--wrap=exec sleep {rigid.runs_s}"]
    return box.run(argv).stdout.strip()


def _submit_malleable(run: Run) -> str:
    """Submit as its user would: the environment's own bin directory is in PATH, so its programs are
    found."""
    work, scenario = run.work, run.scenario
    own = [str(run.main.work / ENVIRONMENT / "bin")] if scenario.is_plain else []
    path = ":".join([*own, str(run.who.python.parent), run.main.environment["PATH"]])
    variables = {name: value.format(work=run.main.work) for name, value in work.variables.items()}
    command = ["malleable", "submit"] if scenario.is_plain else ["sbatch"]
    argv = [*command, *work.request(scenario), work.script, *work.arguments]
    answer = run.main.run(argv, user=run.who.user, env={**variables, "PATH": path}).stdout.strip()
    run.submission = (shlex.join(argv), answer)
    if not (said := re.match(r"Submitted batch job (\d+)", answer)):
        raise DemoFailed(f"{run.submission[0]} answered {answer!r}")
    return said[1]


def _booking(booking: Booking, zero: float) -> list[str]:
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(zero + booking.starts_s))
    words = ["scontrol", "create", "reservation", f"reservation={booking.name}"]
    words += [f"starttime={at}", f"duration={booking.minutes}", f"nodes={booking.node}"]
    return [*words, "users=root", "flags=ignore_jobs"]


def _is_over(run: Run) -> bool:
    """True once the malleable job and every rigid job have ended and the reservation has begun."""
    scenario = run.scenario
    is_early = scenario.booking is not None and run.now < scenario.booking.starts_s + 3
    if not run.job or len(run.ids) < len(scenario.rigid) or is_early:
        return False
    rigid = [row.state for row in _rows(run) if not row.is_fragment]
    return _has_ended(run) and all(state in ENDED for state in rigid)


def _rows(run: Run) -> tuple[Row, ...]:
    samples = run.sampler.samples if run.sampler else []
    return samples[-1].rows if samples else ()


def _has_ended(run: Run) -> bool:
    """True if every fragment has ended for good. A job that continues has fragments that are held
    or run."""
    states = [row.state for row in _rows(run) if row.is_fragment]
    return bool(states) and all(state in ENDED for state in states)


def _raise_if_stuck(run: Run) -> None:
    if run.reconciler is not None and not run.reconciler.is_running:
        said = "\n".join(run.reconciler.complaints[-10:])
        raise DemoFailed(f"malleable reconcile ended by itself at {run.now:.0f} s:\n{said}")
    if _has_ended(run) and not run.recording.result:
        raise DemoFailed(f"the {run.work.name} has ended without a result after {run.now:.0f} s")
    if run.now > LIMIT_S:
        done, of = run.steps
        raise DemoFailed(f"not done after {LIMIT_S:.0f} s: {run.work.unit} {done} of {of}")
    if run.job and run.now > FIRST_START_S and not run.recording.has_begun:
        raise DemoFailed(f"the job has not begun after {run.now:.0f} s")


def complaints(run: Run) -> list[str]:
    """The complaints of ticks and samplers."""
    lines = list(run.reconciler.complaints) if run.reconciler else []
    for sampler in (run.sampler, run.sampler_alone):
        lines += sampler.missed if sampler else []
    return lines


def evidence(run: Run) -> list[str]:
    """The ends of the logs that show why the demo failed."""
    lines = ["", "The end of the job's log:", *run.log[-25:]]
    lines += ["", "The end of slurmctld's log:", *run.main.log("slurmctld").splitlines()[-25:]]
    drained = run.main.run(["sinfo", "--list-reasons"], check=False).stdout.splitlines()[1:]
    lines += ["", "Nodes that Slurm has taken out of service:", *(drained or ["none"])]
    said = complaints(run)[-10:]
    return [*lines, "", "What the reconciler and the samplers complained:", *(said or ["nothing"])]
