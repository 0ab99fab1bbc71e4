"""`malleable render`: write files that Slurm reads."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_hooks.commands.console import add_command, add_json, add_output, err, live, out
from slurm_hooks.doctor.conf_check import check_conf
from slurm_hooks.errors import Exit, UsageError
from slurm_hooks.protocol.jobpath import write_job_path
from slurm_hooks.report.json_data import json_text
from slurm_hooks.report.tables import print_lines
from slurm_hooks.settings.file import load
from slurm_hooks.slurm.site_policy import render_site

if TYPE_CHECKING:
    from slurm_hooks.commands.console import Commands


def add(commands: Commands) -> None:
    """Add this command to the parser."""
    text = "write files that Slurm reads"
    parser = commands.add_parser("render", help=text, description=f"{text[0].upper()}{text[1:]}.")
    kinds = parser.add_subparsers(title="kinds", metavar="KIND", required=True)
    text = "write the policy table for job_submit, from the settings"
    lua = add_command(kinds, "lua", _lua, text)
    add_output(lua, "write to FILE (default: standard output)")
    lua.add_argument("--check", action="store_true", help="check settings and Slurm, write no file")
    text = "make the directory for the PYTHONPATH of jobs"
    path = kinds.add_parser("job-path", help=text, description=f"{text[0].upper()}{text[1:]}.")
    path.add_argument(
        "directory", type=Path, metavar="DIRECTORY", help="make it here, such as /opt/malleable"
    )
    add_json(path)
    path.set_defaults(command=_job_path)


def _lua(arguments: argparse.Namespace) -> int:
    settings = load(arguments.settings)
    port = live(settings)
    policy = render_site(settings, port)
    faults = policy.faults
    if arguments.check:
        faults += check_conf(policy.answer, settings, port)
    if not arguments.json:
        print_lines(err, [f"malleable: {line}" for line in faults])
    file = None if arguments.check else arguments.output
    if file:
        _write(file, policy.text)
    if arguments.json:
        print(json_text({"lines": faults, "file": file and str(file), "text": policy.text}))
    elif arguments.check:
        print_lines(out, [] if faults else ["no problems found"])
    elif file is None:
        print(policy.text, end="")
    return Exit.FOUND if arguments.check and faults else Exit.DONE


def _write(named: Path, text: str) -> None:
    """Replace a regular file, or write to a device or the like: root renders."""
    path = named.resolve()
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    if not path.parent.is_dir():
        raise UsageError(f"there is no directory {path.parent}: make it, or name another file")
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.chmod(0o644)  # SlurmUser reads it, whatever the umask
    partial.replace(path)


def _job_path(arguments: argparse.Namespace) -> int:
    path = str(write_job_path(arguments.directory))
    print(json_text({"directory": path}) if arguments.json else path)
    return 0
