"""`malleable profile`: show how jobs scale, or forget it."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from slurm_hooks.books.storage.database import Unusable
from slurm_hooks.commands.books import complaint
from slurm_hooks.commands.console import add_command, add_output, job_id, out
from slurm_hooks.errors import UsageError
from slurm_hooks.learning.store.connect import is_there, learned_path, reading, writing
from slurm_hooks.learning.store.drop import forget
from slurm_hooks.learning.store.profile import FamilyProfile, JobProfile
from slurm_hooks.learning.store.read import family_profiles, job_profile, job_profiles
from slurm_hooks.model.plural import plural
from slurm_hooks.report.json_data import json_text, plain
from slurm_hooks.report.learned_png import family_picture, job_picture
from slurm_hooks.report.learned_text import families_view, family_view, job_view
from slurm_hooks.report.tables import print_lines, print_tables
from slurm_hooks.settings.file import load
from slurm_hooks.settings.values import Settings

if TYPE_CHECKING:
    from slurm_hooks.commands.console import Commands

PATIENCE_S = 5.0


def add(commands: Commands) -> None:
    """Add this command to the parser."""
    text = "show how jobs scale"
    parser = add_command(commands, "profile", _profile, text, "optional")
    parser.add_argument("--family", metavar="NAME", help="show the jobs of this NAME or USER/NAME")
    add_output(parser, "write a picture to FILE", "--png")
    parser.add_argument(
        "--forget",
        metavar="NAME",
        help="delete the records of a user's jobs (USER), or of a family (USER/NAME)",
    )


def _profile(arguments: argparse.Namespace) -> int:
    settings = load(arguments.settings)
    given = [arguments.job, arguments.family, arguments.forget]
    if sum(each is not None for each in given) > 1:
        raise UsageError("give only one of JOBID, --family and --forget")
    if odd := [each for each in given if each is not None and not each.isprintable()]:
        raise UsageError(f"{odd[0]!r} names no job, user or family: `malleable profile` lists them")
    if arguments.forget is not None:
        return _forget(arguments, settings)
    if arguments.job is not None:
        return _show_job(arguments, settings)
    if arguments.family is not None:
        return _show_family(arguments, settings)
    if arguments.png:
        raise UsageError("--png draws a single job or family: add JOBID or --family")
    families = _families(settings)
    if arguments.json:
        print(json_text({"families": [_family_data(each) for each in families]}))
    elif families:
        print_tables(out, families_view(families, _now_s()))
    else:
        print_lines(out, ["no records yet: no job has reported how fast it trains"])
    return 0


def _families(settings: Settings) -> tuple[FamilyProfile, ...]:
    """All families, empty without a file."""
    if not is_there(learned_path(settings)):
        return ()
    with _opened(settings) as database:
        return family_profiles(database)


def _show_job(arguments: argparse.Namespace, settings: Settings) -> int:
    number = job_id(arguments.job)
    with _opened(settings) as database:
        profile = job_profile(database, number)
    if profile is None:
        raise UsageError(
            f"there are no records of job {number}: it is not malleable, is older than "
            "learn.keep_days, or was forgotten"
        )
    if arguments.png:
        job_picture(arguments.png, profile)
    if arguments.json:
        print(json_text(plain(profile)))
    else:
        print_tables(out, job_view(profile, _now_s()))
    return 0


def _show_family(arguments: argparse.Namespace, settings: Settings) -> int:
    user, _, name = arguments.family.rpartition("/")
    with _opened(settings) as database:
        families = family_profiles(database, name, user)
        jobs = job_profiles(database, name, user)
    if not families:
        raise UsageError(
            f"there is no family {arguments.family}: `malleable profile` lists them (without a "
            "counter at the end of a job's name)"
        )
    if arguments.png:
        family_picture(arguments.png, families[0], _of(families[0], jobs))
    if arguments.json:
        data = [{**_family_data(each), "of": _of(each, jobs)} for each in families]
        print(json_text({"families": data}))
        return 0
    for each in families:
        print_tables(out, family_view(each, _of(each, jobs), _now_s()))
    return 0


def _of(family: FamilyProfile, jobs: tuple[JobProfile, ...]) -> tuple[JobProfile, ...]:
    return tuple(job for job in jobs if job.family == family.family)


def _family_data(each: FamilyProfile) -> dict[str, Any]:
    data: dict[str, Any] = plain(each)
    return data


def _forget(arguments: argparse.Namespace, settings: Settings) -> int:
    user, slash, name = arguments.forget.partition("/")
    path = learned_path(settings)
    count = 0
    if is_there(path):
        try:
            with writing(settings) as database:
                count = forget(database, user, name if slash else None)
        except (Unusable, OSError) as error:
            raise complaint("delete from", path, error, _off(settings)) from error
    if arguments.json:
        print(json_text({"forgotten_jobs": count}))
    else:
        print_lines(out, [f"forgot {plural(count, 'job')}; running jobs report again"])
    return 0


@contextlib.contextmanager
def _opened(settings: Settings) -> Iterator[Any]:
    """The file, to read. Raises NotAllowed or UsageError with a remedy."""
    path = learned_path(settings)
    try:
        with reading(settings, PATIENCE_S) as database:
            yield database
    except (Unusable, OSError) as error:
        raise complaint("read", path, error, _off(settings)) from error


def _off(settings: Settings) -> str:
    return "" if settings.learn.enabled else "learn.enabled is false: ticks record no speeds"


def _now_s() -> float:
    return datetime.now().timestamp()  # noqa: TID251 (ages end here)
