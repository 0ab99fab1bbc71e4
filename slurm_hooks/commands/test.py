"""`malleable test`: run a small job on the real cluster, as an ordinary user."""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import time
from typing import TYPE_CHECKING, Any, Callable, Optional

from slurm_hooks.commands.arguments import seconds_between, whole_between
from slurm_hooks.commands.console import add_command, err, live, out
from slurm_hooks.doctor.trial.cost import Cost, Window, parse_cost, window
from slurm_hooks.doctor.trial.room import find_room, room_lines
from slurm_hooks.doctor.trial.run import Done, Step, StepFailed, Trial
from slurm_hooks.doctor.trial.script import Wish
from slurm_hooks.doctor.trial.told import end_data, end_lines
from slurm_hooks.errors import CommandRefused, MalleableError, NotAllowed, RetryLater, UsageError
from slurm_hooks.model import Level
from slurm_hooks.model.moments import moment
from slurm_hooks.planning.modes import why_no_growth, why_off
from slurm_hooks.report.json_data import json_text
from slurm_hooks.report.tables import print_lines
from slurm_hooks.report.text import explain_lines, find_job
from slurm_hooks.report.why import note_text
from slurm_hooks.settings.file import load
from slurm_hooks.settings.values import Settings
from slurm_hooks.slurm.gateway import observe
from slurm_hooks.slurm.live import Live, Port
from slurm_hooks.slurm.text import Command
from slurm_hooks.tick.bookkeeping import booked_tick
from slurm_hooks.tick.lock import between_ticks
from slurm_hooks.tick.reconcile import tick
from slurm_hooks.tick.switch import find_no_growth, find_off

if TYPE_CHECKING:
    from slurm_hooks.commands.console import Commands

TICK_EVERY_S = 2.0
LIMIT_S = 180.0
TICKS_OF_ALL = 6  # ticks of a whole life, with plan.snooze_s


def add(commands: Commands) -> None:
    """Add this command to the parser."""
    text = "run a small job through its life: start, grow, yield, finish, clean up"
    parser = add_command(commands, "test", _test, text)
    for option, word, help_text in (
        ("--partition", "NAME", "submit the malleable job there (default: the site's first)"),
        ("--ordinary-partition", "NAME", "submit there the ordinary job that takes a node"),
        ("--account", "NAME", "charge both jobs to this account"),
        ("--constraint", "FEATURES", "use nodes with these features, such as a rack"),
    ):
        parser.add_argument(option, default="", metavar=word, help=help_text)
    size = parser.add_mutually_exclusive_group()
    size.add_argument(
        "--nodes",
        type=whole_between(1, 86_400),
        default=2,
        metavar="N",
        help="size of the malleable job (default %(default)s)",
    )
    size.add_argument(
        "--plain",
        action="store_true",
        help="use 1 node and a shell script, without Python",
    )
    parser.add_argument("--user", metavar="NAME", help="submit as this user; needs root rights")
    parser.add_argument("--ticks", action="store_true", help="run ticks too, if no timer runs them")
    parser.add_argument(
        "--timeout",
        type=seconds_between(1, 86_400),
        metavar="SECONDS",
        help="end the test after SECONDS (default 180, or the time of six ticks)",
    )
    parser.add_argument(
        "--baseline",
        type=seconds_between(1, 86_400),
        default=5.0,
        metavar="SECONDS",
        help="watch slurmctld for SECONDS before the job (default %(default)g)",
    )


def _test(arguments: argparse.Namespace) -> int:
    settings = load(arguments.settings)
    port = _port(arguments.user, settings)
    _raise_if_nothing_may_start(settings)
    wish = Wish(
        name=f"malleable-test-{secrets.token_hex(4)}",
        nodes=1 if arguments.plain else arguments.nodes,
        partition=arguments.partition,
        ordinary_partition=arguments.ordinary_partition,
        account=arguments.account,
        constraint=arguments.constraint,
        limit_s=arguments.timeout or max(LIMIT_S, TICKS_OF_ALL * settings.tick.every_s),
        is_plain=arguments.plain,
    )
    spare = None if arguments.json or not out.is_terminal else out.status("submit")
    teller = _Teller(spare, arguments.json)
    meanwhile = _Ticks(settings) if arguments.ticks else _nothing
    trial = Trial(
        wish,
        port,
        settings.site.partitions,
        teller,
        meanwhile,
        explain=lambda job: _reasons(settings, job),
        tell_late=teller.late,
    )
    with trial.signals_noted():
        if not arguments.json:
            text = f"slurmctld is watched for {arguments.baseline:g} s before the job is submitted"
            print_lines(out, [*_room(settings, wish), text])
        without = _watched(port, arguments.baseline, trial.rest)
    before, began = _cost(port), time.monotonic()
    failure: Optional[StepFailed] = None
    with spare or contextlib.nullcontext():
        try:
            trial.run()
        except StepFailed as error:
            failure = error
    during = window(before, _cost(port), time.monotonic() - began)
    if arguments.json:
        print(json_text(end_data(trial, failure, without, during)))
    else:
        print_lines(out, end_lines(trial, failure, without, during))
    return 0 if failure is None else failure.exit_code


def _raise_if_nothing_may_start(settings: Settings) -> None:
    """Raises UsageError at once instead of after a long wait, if no tick may start the job."""
    off = find_off(settings.tick.state_dir)
    if off is not None:
        raise UsageError(f"{note_text(why_off(off))}: the job could not start; see `malleable on`")
    calm = find_no_growth(settings.tick.state_dir)
    if calm is not None:
        why = note_text(why_no_growth(calm, moment(time.time())))
        raise UsageError(f"{why}: the job could not start")
    if settings.mode.level == Level.OBSERVE.value:
        raise UsageError('mode.level = observe: no tick would start the job. Write level = "on"')


def _room(settings: Settings, wish: Wish) -> list[str]:
    """Lines on the idle nodes for the job, if this user can see them."""
    partition = wish.partition or settings.site.partitions[0]
    try:
        site = settings.site
        snapshot = observe(live(settings), site.partitions, site.part_nodes)
    except MalleableError as error:
        return [f"idle nodes: cannot be read: {error}"]
    return list(room_lines(find_room(snapshot, settings, partition, wish.constraint), wish.nodes))


def _nothing() -> None:
    """Run no tick between questions: a timer runs the ticks."""


def _port(user: Optional[str], settings: Settings) -> Live:
    """Slurm, as the user. Raises UsageError if root would submit as root, NotAllowed if another
    user would submit for somebody else."""
    if os.geteuid() == 0 and not user:
        raise UsageError(
            "a job of root's is not a realistic test: give --user NAME, or run this as a user"
        )
    if os.geteuid() != 0 and user:
        raise NotAllowed("--user needs root rights: without it the jobs are yours")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SBATCH_", "SLURM_JOB"))}
    named = {"USER": user, "LOGNAME": user, "HOME": "/"} if user else {}
    known = (settings.tick.command_timeout_s, settings.tick.slurm_bin)
    return Live(*known, {**kept, **named}, user=user, is_detached=True)


class _Ticks:
    """Ticks with our own rights, every few seconds. A failed tick is reported and tried again. Each
    warning is reported once."""

    def __init__(self, settings: Settings) -> None:
        """Raises SettingsError if this user cannot run ticks, before a job is submitted."""
        self._settings, self._last = settings, 0.0
        self._warned: set[str] = set()
        with between_ticks(settings.tick):
            pass

    def __call__(self) -> None:
        if time.monotonic() - self._last < TICK_EVERY_S:
            return
        self._last = time.monotonic()
        try:
            known = self._settings.tick
            port = Live(known.command_timeout_s, known.slurm_bin, is_detached=True)  # from signals
            report, warnings = booked_tick(port, self._settings)
        except RetryLater as error:
            print_lines(err, [f"malleable: a tick of this test failed: {error}"])
            return
        print_lines(err, [line for line in warnings if line not in self._warned])
        self._warned.update(warnings)
        if report.lacks_rights:
            raise NotAllowed(
                "--ticks: Slurm does not let this user change malleable jobs; leave --ticks out if "
                "a timer runs the ticks"
            )


class _Teller:
    """Prints each step that was reached, and on a terminal the next step."""

    def __init__(self, status: Any, is_silent: bool) -> None:
        self._status, self._is_silent = status, is_silent

    def __call__(self, done: Done) -> None:
        if self._is_silent:
            return
        print_lines(out, [f"ok    {done.step.value:<9} {done.seconds:6.1f} s  {done.saw}"])
        steps = list(Step)
        following = steps[steps.index(done.step) + 1 :]
        if self._status is not None and following:
            self._status.update(following[0].value)

    def late(self, step: Step, reasons: list[str]) -> None:
        """Print the reasons why a step takes long."""
        if not self._is_silent:
            head = f"...   {step.value:<9} takes long:"
            print_lines(out, [head, *(f"      {line}" for line in reasons)])


def _cost(port: Port) -> dict[str, Cost]:
    """The load of slurmctld, empty if the user may not see it, since the test does not need it."""
    try:
        return parse_cost(port.ask(Command(("sdiag",))))
    except (CommandRefused, RetryLater):
        return {}


def _watched(port: Port, seconds: float, rest: Callable[[float], None]) -> Window:
    before, began = _cost(port), time.monotonic()
    rest(seconds if before else 0)
    return window(before, _cost(port), time.monotonic() - began)


def _reasons(settings: Settings, job_id: int) -> list[str]:
    """The lines of `explain` on the job, or the reason why there are no lines."""
    try:
        report = tick(live(settings), settings, is_dry=True)
    except MalleableError as error:
        return [f"no explanation: {error}"]
    job = find_job(report.snapshot, job_id)
    return [] if job is None else explain_lines(job, report.plan, report.at)
