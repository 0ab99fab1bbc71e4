"""The command line of `malleable replay`: it reads choices, runs the lines, and prints results.

Results go to standard output. Notes, bad lines and the progress bar go to standard error.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from slurm_hooks.allocation.curves import SERIAL_FRACTION
from slurm_hooks.commands.arguments import Parser, seconds_between
from slurm_hooks.errors import UsageError
from slurm_hooks.model.moments import LONGEST_S, plural
from slurm_hooks.replay import scenario
from slurm_hooks.replay.costs import Rescale
from slurm_hooks.replay.dedicated import reference
from slurm_hooks.replay.outcome import Outcome
from slurm_hooks.replay.record import Record
from slurm_hooks.replay.result import result
from slurm_hooks.replay.scenario import Conditions, Source
from slurm_hooks.replay.show import (
    DAY_S,
    chart,
    held_up_line,
    held_up_table,
    idle_line,
    models_table,
    parts,
    parts_lines,
    table,
    use_line,
)
from slurm_hooks.replay.starts import wait_s
from slurm_hooks.replay.work import (
    ASSUMED_NODE_H,
    BUILT_IN,
    Queue,
    assumed_scaling,
    read_queue,
    read_scaling,
)
from slurm_hooks.report.drawing import pyplot
from slurm_hooks.report.json_data import json_text
from slurm_hooks.report.tables import print_lines, print_tables, terminal
from slurm_hooks.settings.file import load
from slurm_hooks.settings.values import Settings

DEFAULT_CHECKPOINT_S = 600.0
DEFAULT_LATENCY_S = 2.0
COMPARED = {"default": ("oracle",), "learned": ("default",)}
NO_BOUND = (
    "oracle knows every end of a hole, and leaves before it. That can cost more than a few "
    "interruptions, so oracle is a comparison and no upper bound."
)
_seconds, _positive = seconds_between(0, LONGEST_S), seconds_between(1, LONGEST_S)

_log = logging.getLogger(__name__)
out = terminal()
err = terminal(is_stderr=True)


def main(argv: Sequence[str]) -> int:
    """Run a replay. Raises MalleableError."""
    arguments = make_parser().parse_args(argv)
    settings = load(arguments.settings)
    conditions = _conditions(arguments, settings)
    _check_chart(arguments.png)
    loaded = scenario.load(_source(arguments), _say)
    record = scenario.window(loaded, arguments.from_s, arguments.to_s)
    _log.debug("read: %g s, %s left out", record.window_s, plural(record.skipped, "bad line"))
    names = _lines(arguments)
    base = reference(record, conditions.queue, conditions.jobs)
    lines: dict[str, dict[str, Any]] = {}
    outcomes: dict[str, Outcome] = {}
    with _progress() as bar:
        for name in names:
            task = bar.add_task(name, total=1.0)
            tell = _teller(bar, task)
            outcome = scenario.run(name, record, conditions, settings, tell)
            _log.debug("replayed %s", name)
            lines[name] = result(outcome, record, base)
            outcomes[name] = outcome
    if arguments.png:
        chart(arguments.png, lines, outcomes[names[0]])
    _print(arguments, conditions, record, lines, settings)
    return 0


def _check_chart(path: Path | None) -> None:
    """Raises UsageError or MissingProgram before a run that may take hours, not after it."""
    if path is None:
        return
    pyplot()
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"-o {path}: this file cannot be written; name a file in a directory")


def make_parser() -> argparse.ArgumentParser:
    """The command line of `malleable replay`."""
    parser = Parser(
        prog="malleable replay",
        usage="malleable replay --idle FILE|--slots FILE|--swf FILE|--sacct FILE [options]",
        description="Simulate malleable jobs on the idle nodes of a recorded machine.",
        epilog="The settings for ticks, notices, leases and holes apply.",
    )
    machine = parser.add_argument_group("the machine")
    source = machine.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--idle", type=Path, metavar="FILE", help="read idle intervals: CSV, may be .gz"
    )
    source.add_argument("--slots", type=Path, metavar="FILE", help="read idle GPUs of nodes: CSV")
    source.add_argument("--swf", type=Path, metavar="FILE", help="read a workload log, in nodes")
    source.add_argument(
        "--sacct", type=Path, metavar="FILE", help="read the output of sacct --parsable2"
    )
    add = machine.add_argument
    add("--columns", type=_columns, metavar="A-B", help="with --idle: read only these columns")
    add(
        "--nodes",
        default="",
        metavar="LIST",
        help="with --sacct: all nodes, as n[1-64], or a file with `scontrol -o show nodes`",
    )
    add("--from", dest="from_s", type=_seconds, metavar="S", help="begin at second S of the log")
    add("--to", dest="to_s", type=_seconds, metavar="S", help="end at second S of the log")
    add("--skip-bad", action="store_true", help="count bad lines instead of refusing the log")
    add = parser.add_argument_group("the malleable jobs").add_argument
    add(
        "--unit",
        type=_unit,
        metavar="UNIT",
        help="with --slots: size of a job's parts on a node: gpu, 2gpu, ..., or node (default gpu)",
    )
    names = ", ".join(BUILT_IN)
    add(
        "--queue",
        default="",
        metavar="NAME",
        help=f"run this queue of jobs: {names}, or a file (default: all models)",
    )
    add(
        "--scaling",
        type=Path,
        metavar="FILE",
        help="read images/s by model and nodes (default: Amdahl's law)",
    )
    add("--jobs", type=_jobs, default=10, metavar="N", help="run N jobs at once (default 10)")
    add(
        "--core",
        type=_core,
        default=0,
        metavar="N",
        help="give each job N more nodes from the ordinary queue (default 0)",
    )
    add("--seed", type=int, default=1, metavar="N", help="shuffle the queue with N (default 1)")
    _add_policy(parser.add_argument_group("the division of nodes"))
    _add_costs(parser.add_argument_group("ticks, and the cost of a change"))
    add = parser.add_argument_group("output and settings").add_argument
    add("--json", action="store_true", help="print a JSON object instead of tables")
    add("-o", "--png", type=Path, metavar="FILE", help="write charts to FILE")
    add("--settings", type=Path, metavar="FILE", help="use this settings file")
    return parser


def _add_policy(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--policy",
        choices=scenario.POLICIES,
        default="default",
        help="divide the nodes by this policy (default %(default)s)",
    )
    add(
        "--compare",
        type=_policies,
        metavar="LIST",
        help="compare with these policies, or none (default: `default` is compared with oracle, "
        "`learned` with default)",
    )
    add(
        "--objective",
        metavar="NAME",
        default="",
        help="maximize this objective (see Objectives in the administrators' pages)",
    )
    add(
        "--ends",
        choices=scenario.ENDS,
        default="planned",
        help="show hole ends from a job's submission on, or never (default %(default)s)",
    )
    add("--t-fwd", type=_positive, metavar="S", help="plan S seconds ahead (default: settings)")


def _add_costs(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--rescale",
        type=_pair,
        metavar="UP,DOWN",
        help="seconds without progress after a growth and a shrink (default: settings)",
    )
    add(
        "--tick",
        type=_positive,
        metavar="S",
        help="run a tick every S seconds (default: settings)",
    )
    add(
        "--latency",
        type=_seconds,
        default=DEFAULT_LATENCY_S,
        metavar="S",
        help="seconds from a tick's snapshot to its effect (default %(default)g)",
    )
    add(
        "--checkpoint",
        type=_seconds,
        default=DEFAULT_CHECKPOINT_S,
        metavar="S",
        help="seconds between checkpoints; a loss without notice repeats the work since the last "
        "(default %(default)g)",
    )
    add(
        "--redo-planned",
        action="store_true",
        help="repeat that work after planned changes too, as for scripts that ignore notices",
    )


def _source(arguments: argparse.Namespace) -> Source:
    kind = next(k for k in ("idle", "slots", "swf", "sacct") if getattr(arguments, k))
    for option, owner in (("columns", "idle"), ("nodes", "sacct"), ("unit", "slots")):
        if getattr(arguments, option) not in (None, "") and kind != owner:
            raise UsageError(f"--{option} goes with --{owner}, not with --{kind}")
    if kind == "slots" and "learned" in _lines(arguments):
        raise UsageError("--policy learned: a replay cannot learn how jobs scale by GPUs")
    return Source(
        kind,
        getattr(arguments, kind),
        arguments.columns,
        arguments.nodes,
        arguments.skip_bad,
    )


def _conditions(arguments: argparse.Namespace, settings: Settings) -> Conditions:
    plan = settings.plan
    tick = arguments.tick or settings.tick.every_s
    for name, most_s in (("a tick", tick), ("a notice", settings.lease.notice_s)):
        if arguments.latency >= most_s:
            raise UsageError(
                f"--latency {arguments.latency:g} must be shorter than {name}, {most_s:g} s"
            )
    curves = read_scaling(arguments.scaling) if arguments.scaling else assumed_scaling()
    queue = read_queue(arguments.queue, curves, arguments.seed)
    _check_core(arguments, queue)
    return Conditions(
        queue=queue,
        jobs=arguments.jobs,
        rescale=arguments.rescale or Rescale(plan.grow_s, plan.shrink_s),
        t_fwd_s=arguments.t_fwd or plan.horizon_s,
        tick_s=tick,
        latency_s=arguments.latency,
        checkpoint_s=arguments.checkpoint,
        objective=arguments.objective,
        ends=arguments.ends,
        redoes_planned=arguments.redo_planned,
        unit=_given_unit(arguments),
        core=arguments.core,
    )


def _check_core(arguments: argparse.Namespace, queue: Queue) -> None:
    """Raises UsageError if the jobs cannot have such a core."""
    if arguments.core and _given_unit(arguments):
        raise UsageError("--core: cores of a replay have whole nodes; write --unit node")
    most = min(kind.max_nodes for kind in queue.kinds)
    if arguments.core > most:
        raise UsageError(f"--core {arguments.core}: a job of the queue has at most {most} nodes")


def _given_unit(arguments: argparse.Namespace) -> int:
    given: int | None = arguments.unit
    return int(arguments.slots is not None) if given is None else given


def _lines(arguments: argparse.Namespace) -> list[str]:
    """The policies to run, the policy of --policy first."""
    compared = arguments.compare
    if compared is None:
        compared = () if arguments.json else COMPARED.get(arguments.policy, ())
    return list(dict.fromkeys([arguments.policy, *compared]))


def _print(
    arguments: argparse.Namespace,
    conditions: Conditions,
    record: Record,
    lines: dict[str, dict[str, Any]],
    settings: Settings,
) -> None:
    gap_s, chosen = scenario.shortest_gap_s(settings), lines[arguments.policy]
    usual_s, most_s = wait_s(settings.lease, scenario.SLURM.kill_wait.total_seconds())
    if not arguments.json:
        first = idle_line(record, gap_s)
        if arguments.policy == "none":
            _line(first)
        else:
            _line(f"{first} {use_line(chosen, record, gap_s, _who(conditions))}")
            _line(held_up_line(chosen, usual_s, most_s))
        _line(f"The log covers {record.window_s / DAY_S:.1f} days of {record.nodes} nodes.")
        for line in parts_lines(parts(record), record):
            _line(line)
        if list(lines) != ["none"]:
            _print_tables(arguments, conditions, record, lines)
        for note in record.notes:
            _say(note)
        return
    about: dict[str, Any] = {
        "policy": arguments.policy,
        "queue": arguments.queue,
        "scaling": str(arguments.scaling or "assumed"),
        "jobs": conditions.jobs,
        "core": conditions.core,
        "rescale_s": [conditions.rescale.up_s, conditions.rescale.down_s],
        "t_fwd_s": conditions.t_fwd_s,
        "tick_s": conditions.tick_s,
        "checkpoint_s": conditions.checkpoint_s,
        "redoes_planned": conditions.redoes_planned,
        "seed": arguments.seed,
        "counted": record.noun,
        "unit": f"{conditions.unit}gpu" if conditions.unit else "node",
        "held_up_s": {"usual": usual_s, "most": most_s},
    }
    gaps = {"usable_gap_s": gap_s, "usable_idle_node_s": record.idle_in_gaps_s(gap_s)}
    idle = {"idle_parts": split} if (split := parts(record)) else {}
    about = {**about, **gaps, **idle, "skipped_lines": record.skipped, "notes": record.notes}
    compared = {name: line for name, line in lines.items() if name != arguments.policy}
    print(json_text({**chosen, **about, "lines": compared}))


def _print_tables(
    arguments: argparse.Namespace,
    conditions: Conditions,
    record: Record,
    lines: dict[str, dict[str, Any]],
) -> None:
    if not arguments.scaling:
        _line(_assumed(arguments, conditions, record.noun))
    print_tables(out, "", table(lines, record.noun))
    if "oracle" in lines and len(lines) > 1:
        _line(NO_BOUND)
    held_up = lines[arguments.policy]["held_up"]
    if any(row["planned"] + row["at_once"] for row in held_up):
        print_tables(out, "", held_up_table(held_up))
    if arguments.scaling:
        print_tables(out, "", models_table(lines[arguments.policy]))


def _who(conditions: Conditions) -> str:
    jobs = plural(conditions.jobs, "malleable job")
    if conditions.queue.is_endless:
        return f"If {jobs} had always been there, {'it' if conditions.jobs == 1 else 'they'}"
    return f"The malleable jobs of the queue, at most {conditions.jobs} at a time,"


def _assumed(arguments: argparse.Namespace, conditions: Conditions, noun: str) -> str:
    kinds = conditions.queue.kinds
    least, most = min(k.min_nodes for k in kinds), max(k.max_nodes for k in kinds)
    jobs = f"{conditions.jobs} jobs at a time, each of {least} to {most} {noun}s"
    work = "" if arguments.queue else f" and {ASSUMED_NODE_H:g} {noun}-hours"
    law = f"They scale by Amdahl's law, {100 * SERIAL_FRACTION:g} % serial"
    return f"Assumed: {jobs}{work}. {law} (--scaling FILE for your own)."


def _line(text: str) -> None:
    print_lines(out, [text])


def _progress() -> Progress:
    """A bar on standard error, if that is a terminal."""
    columns = (TextColumn("{task.description:>8}"), BarColumn(), TimeElapsedColumn())
    return Progress(*columns, console=err, disable=not sys.stderr.isatty(), transient=True)


def _teller(bar: Progress, task: Any) -> Callable[[float], None]:
    return lambda share: bar.update(task, completed=share)


def _say(text: str) -> None:
    print_lines(err, [f"malleable replay: {text}"])


def _columns(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    if not (dash and first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
        raise argparse.ArgumentTypeError(f"must be a range like 0-1023, not {text!r}")
    return int(first), int(last)


def _unit(text: str) -> int:
    """GPUs of a unit, 0 for whole nodes."""
    match = re.fullmatch(r"node|([1-9][0-9]{0,3})?gpu", text, re.ASCII)
    if not match:
        raise argparse.ArgumentTypeError(f"must be gpu, 2gpu, ... or node, not {text!r}")
    return 0 if text == "node" else int(match.group(1) or 1)


def _core(text: str) -> int:
    if not (text.isdecimal() and int(text) <= 65_535):
        raise argparse.ArgumentTypeError(f"must be from 0 to 65535, not {text!r}")
    return int(text)


def _jobs(text: str) -> int:
    if not (text.isdecimal() and 1 <= int(text) <= 10_000):
        raise argparse.ArgumentTypeError(f"must be from 1 to 10000, not {text!r}")
    return int(text)


def _pair(text: str) -> Rescale:
    parts = text.split(",")
    if len(parts) != 2:
        raise argparse.ArgumentTypeError(f"must be two numbers like 18,12, not {text!r}")
    return Rescale(_seconds(parts[0]), _seconds(parts[1]))


def _policies(text: str) -> tuple[str, ...]:
    names = tuple(name for name in text.split(",") if name and name != "none")
    unknown = [name for name in names if name not in scenario.POLICIES]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"there is no policy {', '.join(unknown)}: give {', '.join(scenario.POLICIES)} or none"
        )
    return names
