"""Builds the wheel for a user whose site has installed nothing: `make wheel`, into dist/.

It has what runs in a job, and needs nothing but Python. Its entry points are those of the job path.
"""

from __future__ import annotations

import argparse
import configparser
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from slurm_hooks import __version__
from slurm_hooks.protocol.jobpath import ENTRY_POINTS, write_job_path

NAME = "slurm-malleable-user"
LIMIT_S = 300
PROJECT = """\
[build-system]
requires = ["setuptools>=61"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "{version}"
description = "Submit malleable jobs to a Slurm where nothing is installed for them"
requires-python = ">=3.9"
license = {{ text = "Apache-2.0" }}

[project.scripts]
malleable = "slurm_hooks.elastic.__main__:main"

{entry_points}
[tool.setuptools.packages.find]
include = ["slurm_hooks*"]
"""


def project() -> str:
    """The pyproject.toml of the wheel."""
    parser = configparser.ConfigParser(delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(ENTRY_POINTS)
    lines = []
    for group in parser.sections():
        lines.append(f"[project.entry-points.{json.dumps(group)}]")
        lines += [
            f"{json.dumps(name)} = {json.dumps(value)}" for name, value in parser[group].items()
        ]
        lines.append("")
    return PROJECT.format(name=NAME, version=__version__, entry_points="\n".join(lines))


def build(dest: Path) -> Path:
    """Build the wheel into this directory, and return its path. Raises CalledProcessError."""
    with tempfile.TemporaryDirectory(prefix="malleable-wheel-") as scratch:
        source = Path(scratch) / "source"
        shutil.copytree(
            write_job_path(Path(scratch) / "jobpath") / "slurm_hooks", source / "slurm_hooks"
        )
        (source / "pyproject.toml").write_text(project())
        words = ["wheel", "--quiet", "--no-deps", "--wheel-dir", str(dest)]
        if importlib.util.find_spec("setuptools"):  # then nothing is fetched
            words.append("--no-build-isolation")
        subprocess.run(
            [sys.executable, "-m", "pip", *words, str(source)], check=True, timeout=LIMIT_S
        )
    return next(dest.glob(f"{NAME.replace('-', '_')}-{__version__}-*.whl"))


if __name__ == "__main__":
    parser_ = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser_.add_argument("directory", type=Path)
    print(build(parser_.parse_args().directory))
