"""`make demo`: play the scenario, judge it, draw it, print it. Exit 0 only if every check holds.

This is wiring only. It takes the sandboxes down in every case, Ctrl-C and SIGTERM included.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Optional

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rich.console import Console

from demo import drive, place, show, timeline, verdict
from demo.scenario import PLAIN, SCENARIOS
from demo.work import WORKS, WORKS_OF
from slurm_hooks.errors import MalleableError

# Elsewhere than on a terminal rich would fold lines at 80 columns.
out = Console(highlight=False, width=None if sys.stdout.isatty() else 120)


class Stopped(BaseException):
    """A signal asked us to end. It is no Exception, so that an `except Exception` lets it pass."""


def main() -> int:
    """The exit code: 0 if all went as it should, 1 if not, 130 or 143 after a signal."""
    arguments = _arguments()
    began = time.monotonic()
    try:
        with _signals_raise():
            code = _demo(arguments)
    except Stopped as stop:
        say(f"Stopped by signal {stop}; the sandboxes are gone.")
        return 128 + int(str(stop))
    except (drive.DemoFailed, MalleableError) as error:
        say(f"The demo failed: {error}")
        return 1
    say(f"{time.monotonic() - began:.0f} s in all.")
    return code


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A malleable job in a Slurm on this host.")
    parser.add_argument("--out", type=Path, default=Path("demo"), help="directory of the results")
    parser.add_argument("--engine", choices=WORKS, default="torchrun")
    unit_help = "unit of all sizes: whole nodes, or GPUs of shared nodes (default: %(default)s)"
    parser.add_argument("--unit", choices=SCENARIOS, default="node", help=unit_help)
    plain_help = "a site that has installed nothing: an ordinary user has a wheel alone"
    parser.add_argument("--plain", action="store_true", help=plain_help)
    parser.add_argument("--keep", action="store_true", help="keep the sandbox afterwards")
    arguments = parser.parse_args()
    arguments.scenario = PLAIN if arguments.plain else SCENARIOS[arguments.unit]
    chosen = "--plain" if arguments.plain else f"--unit={arguments.unit}"
    offered = WORKS_OF[arguments.scenario]
    if arguments.engine not in offered:
        parser.error(f"{chosen} goes with --engine={' or '.join(offered)}")
    if arguments.scenario.key != arguments.unit:
        parser.error(f"{chosen} goes with --unit={arguments.scenario.key}")
    return arguments


def say(text: str) -> None:
    """Write a text unchanged."""
    out.print(text, markup=False, soft_wrap=True)


@contextlib.contextmanager
def _signals_raise() -> Iterator[None]:
    """End the demo in order at the first signal. Further signals cannot disturb the end."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def stop(number: int, _frame: Optional[FrameType]) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise Stopped(number)

    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _demo(arguments: argparse.Namespace) -> int:
    arguments.out.mkdir(parents=True, exist_ok=True)
    scenario = arguments.scenario
    work = WORKS_OF[scenario][arguments.engine]
    who = place.submitter(work)
    say(f"Starting two Slurms of {scenario.machine} on this host: the same load with and without a")
    say(f"malleable job (engine {arguments.engine}); {who.in_words}.")
    has_run = False
    with place.sandboxes(scenario, lambda: arguments.keep and has_run) as (main_box, alone):
        run = drive.Run(main_box, alone, who, work, scenario)
        try:
            _play(run, arguments.out)
        except (drive.DemoFailed, MalleableError):
            for line in drive.evidence(run):
                say(line)
            raise
        report = verdict.report(run.recording, place.about(main_box))
        code = _tell(run, report, arguments.out)
        has_run = True
        if arguments.keep:
            _tell_kept(run)
    return code


def _play(run: drive.Run, where: Path) -> None:
    view = show.Picture(out) if out.is_terminal else show.Plain(out)
    with view:
        drive.play(run, where, lambda r: view.update(_frame(r)))


def _frame(run: drive.Run) -> show.Frame:
    done, of = run.steps
    return show.Frame(run.recording, run.now, done, of)


def _tell(run: drive.Run, report: dict[str, Any], where: Path) -> int:
    """Write the files, print the report, and say whether it is good."""
    (where / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    (where / "job.log").write_text("\n".join(run.log) + "\n")
    timeline.draw(run.recording, where / "timeline.png")
    command, answer = run.submission
    for line in ("", f"$ {command}", answer, ""):
        say(line)
    show.summary(report, out)
    is_good = all(check["met"] for check in report["checks"])
    if not is_good:
        for line in drive.evidence(run):
            say(line)
    said = drive.complaints(run)
    if said:
        say(f"Complaints on the way ({len(said)}), the last: {said[-1]}")
    names = ("report.json", "timeline.png", "job.log", "ticks.jsonl")
    paths = (where / name for name in names)
    say("Files: " + ", ".join(os.path.relpath(path) for path in paths if path.exists()))
    return 0 if is_good else 1


def _tell_kept(run: drive.Run) -> None:
    name = run.main.name
    say(f"The sandbox {name} stays up. A shell in it: malleable sandbox shell {name}")
    say(f"Its end: malleable sandbox down {name}")
    say(f"(malleable: {Path(sys.executable).parent / 'malleable'})")


if __name__ == "__main__":
    sys.exit(main())
