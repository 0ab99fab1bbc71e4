"""The command `malleable`: arguments, wiring, exit codes; no decisions."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Callable, Optional

from rich.console import Console

from slurm_hooks import __version__
from slurm_hooks.errors import CommandRefused, MalleableError, RetryLater, UsageError
from slurm_hooks.jobpath import write_job_path
from slurm_hooks.pause import hold, release
from slurm_hooks.reconcile import loop, rehearse, tick
from slurm_hooks.render import render_site
from slurm_hooks.replay import cli as replay_cli
from slurm_hooks.report.hints import hints
from slurm_hooks.report.json_data import plan_data, tick_data
from slurm_hooks.report.text import (
    explain_lines,
    find_job,
    fragments_table,
    jobs_table,
    print_lines,
    solve_line,
    tick_lines,
)
from slurm_hooks.sandbox import cli as sandbox_cli
from slurm_hooks.settings import Settings, load
from slurm_hooks.slurm.gateway import observe, read_remarks
from slurm_hooks.slurm.live import Live, Port
from slurm_hooks.snapshot.encode import to_data
from slurm_hooks.snapshot.file import read as read_snapshot
from slurm_hooks.snapshot.file import save as save_snapshot

out = Console()
err = Console(stderr=True)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run one command; the exit code tells retry later (75), bad settings (78), bug (70)."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if words[:1] == ["sandbox"]:
            return sandbox_cli.main(words[1:])
        if words[:1] == ["replay"]:
            return replay_cli.main(words[1:])
        arguments = _parser().parse_args(words)
        command: Callable[[argparse.Namespace], int] = arguments.command
        return command(arguments)
    except MalleableError as error:
        print_lines(err, [f"malleable: {line}" for line in str(error).splitlines()])
        return error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        print_lines(err, [f"malleable: {error.filename or 'this host'}: {error.strerror}"])
        return os.EX_IOERR
    except KeyboardInterrupt:
        return 130
    except Exception:  # a bug: its trace is wanted, and an exit code that says so
        traceback.print_exc()
        return MalleableError.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="malleable",
        description="Deep-learning jobs that live in the holes of a Slurm cluster.",
        epilog="Users start with: sbatch --malleable=MIN-MAX train.sh",
    )
    parser.add_argument("--version", action="version", version=f"malleable {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add(commands, "status", _status, "malleable jobs and their fragments", job="optional")
    _add(commands, "explain", _explain, "why a job has the size it has", job="needed")
    _add_plan(commands)
    _add_reconcile(commands)
    _add(commands, "hold", _hold, "start no more fragments of a job; what runs goes on", "needed")
    _add(commands, "release", _release, "let go of a job that an operator holds", "needed")
    _add_render(commands)
    commands.add_parser("replay", help="what a recorded machine would have gained", add_help=False)
    commands.add_parser("sandbox", help="a throwaway real Slurm on this host", add_help=False)
    return parser


def _add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    command: Callable[[argparse.Namespace], int],
    text: str,
    job: str = "",
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    if job:
        nargs = "?" if job == "optional" else None
        parser.add_argument("job", metavar="JOBID", nargs=nargs, help="id of the job array")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    parser.add_argument("--settings", type=Path, metavar="FILE", help="settings file to use")
    parser.set_defaults(command=command)
    return parser


def _add_plan(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _add(commands, "plan", _plan, "what the next tick would do; changes nothing")
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--snapshot", type=Path, metavar="FILE", help="plan what FILE says instead of asking Slurm"
    )
    source.add_argument(
        "--save", type=Path, metavar="FILE", help="also write what was seen into FILE"
    )


def _add_reconcile(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _add(commands, "reconcile", _reconcile, "one tick: look, plan, check, apply")
    parser.add_argument("--dry-run", action="store_true", help="print the plan, change nothing")
    parser.add_argument(
        "--loop", type=_seconds, metavar="SECONDS", help="a tick every SECONDS, until a signal"
    )


def _add_render(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("render", help="write files that Slurm's side reads")
    kinds = parser.add_subparsers(title="kinds", metavar="KIND", required=True)
    lua = kinds.add_parser("lua", help="the policy table of job_submit, from the settings")
    lua.add_argument("--settings", type=Path, metavar="FILE", help="settings file to use")
    lua.add_argument("-o", "--output", type=Path, metavar="FILE", help="default: standard output")
    lua.add_argument("--check", action="store_true", help="only check settings and Slurm")
    lua.set_defaults(command=_render_lua)
    path = kinds.add_parser("job-path", help="the directory that jobs get in PYTHONPATH")
    path.add_argument("directory", type=Path)
    path.set_defaults(command=_render_job_path)


def _seconds(text: str) -> float:
    value = float(text)
    if not 1 <= value <= 86_400:
        raise argparse.ArgumentTypeError("must be from 1 to 86400 seconds")
    return value


def _live(settings: Settings) -> Live:
    return Live(settings.tick.command_timeout_s, settings.tick.slurm_bin)


def _status(arguments: argparse.Namespace) -> int:
    settings = load(arguments.settings)
    snapshot = observe(_live(settings), settings.site.partitions)
    if arguments.job is None:
        if arguments.json:
            print(json.dumps({"jobs": to_data(snapshot.jobs), "unknown": list(snapshot.unknown)}))
        elif snapshot.jobs:
            out.print(jobs_table(snapshot))
        else:
            print_lines(out, ["no malleable jobs"])
        print_lines(err, snapshot.unknown if not arguments.json else ())
        return 0
    job = find_job(snapshot, _job_id(arguments.job))
    if job is None:
        raise UsageError(_no_job(arguments.job))
    if arguments.json:
        print(json.dumps(to_data(job)))
    else:
        out.print(fragments_table(job, snapshot.now))
    return 0


def _job_id(text: str) -> int:
    head = text.split("_", 1)[0]
    if not (head.isascii() and head.isdigit()):
        raise UsageError(f"{text!r} is not a job id: give the number that sbatch printed")
    return int(head)


def _no_job(text: str) -> str:
    return (
        f"Slurm knows no malleable job {text}: it may have ended some time ago, "
        "or was submitted without --malleable (see `malleable status`)"
    )


def _explain(arguments: argparse.Namespace) -> int:
    settings = load(arguments.settings)
    report = tick(_live(settings), settings, is_dry=True)
    job = find_job(report.snapshot, _job_id(arguments.job))
    if job is None:
        raise UsageError(_no_job(arguments.job))
    remarks = _remarks(settings, job.job_id)
    lines = explain_lines(job, report.plan, report.at, remarks)
    if arguments.json:
        told = {"hints": hints(job), "remarks": remarks}
        print(json.dumps({"job": to_data(job), "lines": lines, **told}))
    else:
        print_lines(out, lines)
    return 0


def _hold(arguments: argparse.Namespace) -> int:
    return _pause(arguments, hold, "held", "what runs goes on; `malleable release` ends this")


def _release(arguments: argparse.Namespace) -> int:
    return _pause(arguments, release, "released", "they wait for nodes that are left over")


def _pause(
    arguments: argparse.Namespace, act: Callable[[Port, Settings, int], int], did: str, so: str
) -> int:
    settings, job_id = load(arguments.settings), _job_id(arguments.job)
    count = act(_live(settings), settings, job_id)
    if arguments.json:
        print(json.dumps({"job_id": job_id, did: count}))
    else:
        nothing = f"job {job_id}: no fragment is held by an operator"
        told = f"job {job_id}: {count} fragment(s) {did}: {so}"
        print_lines(out, [told if count else nothing])
    return 0


def _remarks(settings: Settings, job_id: int) -> tuple[str, ...]:
    """None if Slurm has just forgotten the job or is busy: the rest is worth printing."""
    try:
        return read_remarks(_live(settings), job_id)
    except (CommandRefused, RetryLater):
        return ()


def _plan(arguments: argparse.Namespace) -> int:
    settings = load(arguments.settings)
    if arguments.snapshot:
        report = rehearse(read_snapshot(arguments.snapshot), settings)
    else:
        report = tick(_live(settings), settings, is_dry=True)
    if arguments.save:
        save_snapshot(report.snapshot, arguments.save)
    if arguments.json:
        print(json.dumps(plan_data(report.plan)))
        return 0
    for job in report.plan.jobs:
        print_lines(out, [f"job {job.job_id}: {job.nodes_now} -> {job.nodes_planned} node(s)"])
        print_lines(out, [f"  {reason}" for reason in job.reasons])
    print_lines(out, [*tick_lines(report)[:-1], solve_line(report.plan.solve)])
    return 0


def _reconcile(arguments: argparse.Namespace) -> int:
    if arguments.loop is None:
        return _one_tick(arguments)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    loop(lambda: _tolerant_tick(arguments), arguments.loop, stop.wait)
    return 0


def _one_tick(arguments: argparse.Namespace) -> int:
    settings = load(arguments.settings)
    if arguments.loop is not None:
        settings = replace(settings, tick=replace(settings.tick, every_s=arguments.loop))
    report = tick(_live(settings), settings, arguments.dry_run)
    if arguments.json:
        print(json.dumps(tick_data(report)), flush=True)
    else:
        print_lines(out, tick_lines(report))
    if report.lacks_rights:
        raise CommandRefused(
            "Slurm does not let this user change malleable jobs (permission denied): run the tick "
            "as root, as SlurmUser, or as an Administrator of the accounting database; Operators "
            "cannot write AdminComment"
        )
    return 0


def _tolerant_tick(arguments: argparse.Namespace) -> None:
    """A tick whose failure is told and survived: settings are read again next time."""
    try:
        _one_tick(arguments)
    except MalleableError as error:
        print_lines(err, [f"malleable: {line}" for line in str(error).splitlines()])
    except Exception:  # a bug in one tick must not end the service
        traceback.print_exc()


def _render_lua(arguments: argparse.Namespace) -> int:
    settings = load(arguments.settings)
    policy = render_site(settings, _live(settings))
    told = policy.faults + (policy.findings if arguments.check else ())
    print_lines(err, [f"malleable: {line}" for line in told])
    if arguments.check:
        return 1 if told else 0
    if arguments.output is None:
        print(policy.text, end="")
        return 0
    partial = arguments.output.with_name(f".{arguments.output.name}.{os.getpid()}")
    partial.write_text(policy.text, encoding="utf-8")
    partial.chmod(0o644)  # SlurmUser reads it, whatever the umask
    partial.replace(arguments.output)
    return 0


def _render_job_path(arguments: argparse.Namespace) -> int:
    print(write_job_path(arguments.directory))
    return 0


if __name__ == "__main__":
    sys.exit(main())
