"""`malleable render`: files for Slurm's side."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_hooks.commands.console import add_settings, err, live, out
from slurm_hooks.doctor.conf_check import check_conf
from slurm_hooks.exits import Exit
from slurm_hooks.jobpath import write_job_path
from slurm_hooks.report.text import print_lines
from slurm_hooks.settings_file import load
from slurm_hooks.slurm.site_policy import render_site

if TYPE_CHECKING:
    from slurm_hooks.commands.console import Commands


def add(commands: Commands) -> None:
    """Add this command to the parser."""
    parser = commands.add_parser("render", help="write files for Slurm's side")
    kinds = parser.add_subparsers(title="kinds", metavar="KIND", required=True)
    lua = kinds.add_parser("lua", help="the policy table for job_submit, from the settings")
    add_settings(lua)
    lua.add_argument("-o", "--output", type=Path, metavar="FILE", help="default: standard output")
    lua.add_argument("--check", action="store_true", help="check settings and Slurm, write nothing")
    lua.set_defaults(command=_lua)
    path = kinds.add_parser("job-path", help="the directory for the PYTHONPATH of jobs")
    path.add_argument("directory", type=Path)
    path.set_defaults(command=_job_path)


def _lua(arguments: argparse.Namespace) -> int:
    settings = load(arguments.settings)
    policy = render_site(settings, live(settings))
    found = (*policy.findings, *check_conf(policy.answer, settings)) if arguments.check else ()
    told = policy.faults + found
    print_lines(err, [f"malleable: {line}" for line in told])
    if arguments.check:
        print_lines(out, [] if told else ["no problems found"])
        return Exit.FOUND if told else Exit.DONE
    if arguments.output is None:
        print(policy.text, end="")
        return 0
    partial = arguments.output.with_name(f".{arguments.output.name}.{os.getpid()}")
    partial.write_text(policy.text, encoding="utf-8")
    partial.chmod(0o644)  # SlurmUser reads it, whatever the umask
    partial.replace(arguments.output)
    return 0


def _job_path(arguments: argparse.Namespace) -> int:
    print(write_job_path(arguments.directory))
    return 0
