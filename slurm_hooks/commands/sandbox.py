"""The command line of the sandbox, `malleable sandbox ...`: it reads arguments and prints results.

A program (`--json`) or a shell (`eval`) can read all its standard output. Progress goes to standard
error.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Optional

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

from slurm_hooks.commands.arguments import Parser, whole_between
from slurm_hooks.errors import UsageError
from slurm_hooks.model.moments import plural
from slurm_hooks.report.json_data import json_text
from slurm_hooks.report.tables import terminal
from slurm_hooks.sandbox.base import default_base
from slurm_hooks.sandbox.box import Sandbox, list_sandboxes
from slurm_hooks.sandbox.installation import find_installation
from slurm_hooks.sandbox.project import plain_spec, project_spec
from slurm_hooks.sandbox.spec import MAX_GPUS, MAX_NODES, SCAVENGE, Preemption, SandboxSpec

MAX_CPUS = 1024
_JSON = "print a JSON object instead of text"
_NAME = "name of the sandbox (default: the only sandbox)"


def main(argv: Sequence[str]) -> int:
    """Run a command, and return its exit code. Raises MalleableError."""
    options, command = split_command(argv)
    arguments = make_parser().parse_args(options)
    arguments.command = command
    code: int = arguments.action(arguments)
    return code


def make_parser() -> argparse.ArgumentParser:
    """The command line of `malleable sandbox`."""
    parser = Parser(prog="malleable sandbox", description="Run a throwaway real Slurm here.")
    parser.add_argument(
        "--base",
        type=Path,
        metavar="DIR",
        help=f"keep sandboxes in DIR (default {default_base()})",
    )
    parser.add_argument("--json", action="store_true", help=_JSON)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_up(commands)
    down = _add(commands, "down", _down, "end a sandbox, its jobs and its files")
    down.add_argument("name", nargs="?", metavar="NAME", help=_NAME)
    down.add_argument("--all", action="store_true", help="end every sandbox of this user")
    _add(commands, "status", _status, "list the sandboxes and their nodes")
    shell = _add(commands, "shell", _shell, "open a shell whose Slurm is the sandbox")
    shell.add_argument("name", nargs="?", metavar="NAME", help=_NAME)
    run = _add(commands, "run", _run, "run a command in a sandbox")
    run.usage = "malleable sandbox run [--user USER] [--json] [NAME] -- COMMAND..."
    run.add_argument("name", nargs="?", metavar="NAME", help=_NAME)
    run.add_argument("--user", metavar="USER", help="run it as this user; needs root rights")
    return parser


def _add(
    commands: Any, name: str, action: Callable[[argparse.Namespace], int], text: str
) -> argparse.ArgumentParser:
    """Add a command. Its default must not undo a --json before its name."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=f"{text[0].upper()}{text[1:]}."
    )
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help=_JSON)
    parser.set_defaults(action=action)
    return parser


def _add_up(commands: Any) -> None:
    up = _add(commands, "up", _up, "start a sandbox")
    up.add_argument(
        "--nodes",
        type=whole_between(1, MAX_NODES),
        default=8,
        metavar="N",
        help="number of compute nodes (default %(default)s)",
    )
    up.add_argument(
        "--cpus",
        type=whole_between(1, MAX_CPUS),
        metavar="N",
        help=f"CPUs of each node (default {SandboxSpec.cpus}, or a CPU for each GPU)",
    )
    up.add_argument(
        "--gpus",
        type=whole_between(0, MAX_GPUS),
        default=0,
        metavar="N",
        help="fake GPUs of each node; with GPUs jobs share nodes (default %(default)s)",
    )
    up.add_argument("--gpu-type", metavar="TYPE", help="type of the GPUs (default: no type)")
    up.add_argument("--name", metavar="NAME", help="name of the sandbox (default sb1, sb2, ...)")
    up.add_argument(
        "--plain",
        action="store_true",
        help="be a site that has not installed this software, with a preemptible partition preempt",
    )
    up.add_argument("--accounting", action="store_true", help="run slurmdbd on MariaDB too")
    up.add_argument(
        "--qos",
        action="store_true",
        help=f"let jobs of the QOS {SCAVENGE} be preempted, by QOS (implies --accounting)",
    )
    up.add_argument(
        "--slurm-root",
        type=Path,
        metavar="DIR",
        help="run the Slurm of this root (implies --plain)",
    )


def _up(arguments: argparse.Namespace) -> int:
    is_plain = arguments.plain or arguments.slurm_root is not None
    spec = (plain_spec if is_plain else project_spec)(
        nodes=arguments.nodes,
        cpus=arguments.cpus or max(SandboxSpec.cpus, arguments.gpus),
        gpus=arguments.gpus,
        gpu_types=(arguments.gpu_type,) if arguments.gpu_type else (),
        is_accounting=arguments.accounting or arguments.qos,
        preemption=Preemption.QOS if arguments.qos else Preemption.PARTITION,
        name=arguments.name,
        base=arguments.base,
        slurm=find_installation(arguments.slurm_root),
    )
    box = _up_with_bar(spec)
    print(json_text(_summary(box)) if arguments.json else _usage(box))
    return 0


def _up_with_bar(spec: SandboxSpec) -> Sandbox:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = terminal(is_stderr=True)
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("files", total=spec.nodes)
        return Sandbox.up(
            spec, lambda what, done, _total: bar.update(task, description=what, completed=done)
        )


def _usage(box: Sandbox) -> str:
    """Lines that a shell can `eval` and a person can read."""
    added = box.environment
    lines = [f"export {name}={shlex.quote(added[name])}" for name in sorted(added)]
    return "\n".join(
        [
            *lines,
            f"# Sandbox {box.name}: {plural(len(box.nodes), 'node')}, "
            f"Slurm {box.record.slurm.version_text}, files in {box.dir}.",
            f"# Try:  malleable sandbox run {box.name} -- sinfo",
            f"# A shell in it:  malleable sandbox run {box.name} -- bash",
            f"# End:  malleable sandbox down {box.name}",
        ]
    )


def _summary(box: Sandbox) -> dict[str, Any]:
    return {
        "name": box.name,
        "dir": str(box.dir),
        "work": str(box.work),
        "nodes": len(box.nodes),
        "slurm_version": box.record.slurm.version_text,
        "running": box.running(),
        "environment": box.environment,
    }


def _status(arguments: argparse.Namespace) -> int:
    summaries = [_summary(box) for box in list_sandboxes(arguments.base)]
    if arguments.json:
        print(json_text({"sandboxes": summaries}))
        return 0
    for box in summaries:
        running = box["running"]
        nodes = sum(daemon.startswith("n") for daemon in running)
        state = "up" if "slurmctld" in running and "munged" in running else "not running"
        print(
            f"{box['name']}: {state}, {nodes} of {box['nodes']} nodes, "
            f"Slurm {box['slurm_version']}, {box['dir']}"
        )
    if not summaries:
        print("There is no sandbox. To start one: malleable sandbox up")
    return 0


def _down(arguments: argparse.Namespace) -> int:
    boxes = list_sandboxes(arguments.base)
    ended = boxes if arguments.all else [_chosen(boxes, arguments.name)]
    for box in ended:
        box.down()
        if not arguments.json:
            print(f"{box.name}: removed")
    if arguments.json:
        print(json_text({"removed": [box.name for box in ended]}))
    return 0


def _shell(arguments: argparse.Namespace) -> int:
    if arguments.json:
        raise UsageError("a shell has no JSON: leave --json out")
    box = _chosen(list_sandboxes(arguments.base), arguments.name)
    print(f"Sandbox {box.name}; exit ends the shell, not the sandbox.", file=sys.stderr)
    return box.call([os.environ.get("SHELL", "/bin/sh")])


def _run(arguments: argparse.Namespace) -> int:
    if not arguments.command:
        raise UsageError("give the command: malleable sandbox run [NAME] -- COMMAND...")
    box = _chosen(list_sandboxes(arguments.base), arguments.name)
    if not arguments.json:
        return box.call(arguments.command, user=arguments.user)
    words, limit_s = arguments.command, 86_400.0
    done = box.run(words, arguments.user, Path.cwd(), check=False, timeout_s=limit_s)
    print(json_text({"exit_code": done.returncode, "stdout": done.stdout, "stderr": done.stderr}))
    return done.returncode


def split_command(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return our words, before the first `--`, and the command after it."""
    words = list(argv)
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at + 1 :]


def _chosen(boxes: Sequence[Sandbox], name: Optional[str]) -> Sandbox:
    """The sandbox with this name, or the only sandbox. Raises UsageError."""
    matches = [box for box in boxes if name in (None, box.name)]
    if len(matches) == 1:
        return matches[0]
    if not boxes:
        raise UsageError("there is no sandbox: start one with `malleable sandbox up`")
    fault = f"there is no sandbox {name!r}" if name else "there are several sandboxes"
    raise UsageError(f"{fault}: name one of {', '.join(box.name for box in boxes)}")
