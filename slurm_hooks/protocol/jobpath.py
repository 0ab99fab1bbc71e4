"""The directory that a job gets on its PYTHONPATH: only the rendezvous.

A job must not see the reconciler's dependencies. torchrun finds handlers through installed
metadata, as frameworks find callbacks. So the directory holds `slurm_hooks/elastic` and
`slurm_hooks/protocol`, a `dist-info` that names its entry points, and `bin` for the job's PATH.
Each version of the content has a separate directory, beside a link to the current directory. This
module does not know where a site keeps them.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

from slurm_hooks import __version__
from slurm_hooks.protocol.engines import BACKENDS

PACKAGES = ("elastic", "protocol")
_HANDLERS = "".join(f"{name} = slurm_hooks.elastic.engines.entry:handlers\n" for name in BACKENDS)
_FRAMEWORKS = "slurm_hooks.elastic.frameworks.entry"
ENTRY_POINTS = f"""\
[torchrun.handlers]
{_HANDLERS}
[torch.backends]
malleable = {_FRAMEWORKS}:begin

[lightning.pytorch.callbacks_factory]
malleable = {_FRAMEWORKS}:lightning_callbacks

[pytorch_lightning.callbacks_factory]
malleable = {_FRAMEWORKS}:pytorch_lightning_callbacks
"""
COMMAND = """\
#!/bin/sh
# `malleable` in a job: finds its modules beside itself, with any PYTHONPATH.
here=$(readlink -f "$0") || exit
here=${here%/bin/*}
if ! command -v python3 >/dev/null; then
  echo "malleable: there is no python3 in PATH ($PATH); load or activate an environment with" \\
    "Python 3.9 or newer" >&2
  exit 127
fi
case $PYTHONPATH in
  "$here" | "$here":*) ;;
  *) export PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}" ;;
esac
exec python3 "$here" "$@"
"""
# As a directory's main program, and not with -m, Python looks for modules there and not in the
# working directory, where a user may have a signal.py. Any Python 3 can read it.
MAIN = """\
import sys

if sys.version_info < (3, 9):
    sys.exit(
        "malleable: %s is Python %d.%d; load or activate an environment with Python 3.9 or newer"
        % ((sys.executable,) + sys.version_info[:2])
    )
import runpy

runpy.run_module("slurm_hooks.elastic", run_name="__main__", alter_sys=True)
"""


def write_job_path(dest: Path) -> Path:
    """Lay out (or renew) the job path, make `dest` a link to it, and return `dest`.

    The old content is kept, since jobs may be starting from it. The link is switched in a single
    step. All users can read the content, with any umask. Raises OSError.
    """
    dest = dest.absolute()
    _make(dest.parent)
    with tempfile.TemporaryDirectory(dir=dest.parent, prefix=f".{dest.name}.") as scratch:
        draft = Path(scratch) / "draft"
        _lay_out(draft)
        final = dest.with_name(f"{dest.name}-{__version__}-{_digest(draft)}")
        try:
            draft.rename(final)
        except OSError:
            if not final.exists():  # another may have been faster
                raise
        _switch(dest, final, Path(scratch))
    return dest


def _make(directory: Path) -> None:
    """Make a directory and its parents. Only new directories get the mode."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        path.chmod(0o755)


def _lay_out(directory: Path) -> None:
    source = Path(__file__).parents[1]
    package = directory / "slurm_hooks"
    package.mkdir(parents=True)
    shutil.copyfile(source / "__init__.py", package / "__init__.py")
    no_caches = shutil.ignore_patterns("__pycache__")
    for name in PACKAGES:
        shutil.copytree(source / name, package / name, ignore=no_caches)
    metadata = directory / f"slurm_malleable_elastic-{__version__}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: slurm-malleable-elastic\nVersion: {__version__}\n"
    )
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    (directory / "__main__.py").write_text(MAIN)
    command = directory / "bin" / "malleable"
    command.parent.mkdir()
    command.write_text(COMMAND)
    for path in (directory, *directory.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path == command else 0o644)


def _digest(directory: Path) -> str:
    """Return eight digits that identify the content."""
    digest = hashlib.sha256()
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(directory)} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:8]


def _switch(dest: Path, final: Path, scratch: Path) -> None:
    """Make `dest` a link to `final`, its neighbour, by a single rename."""
    if dest.is_dir() and not dest.is_symlink():  # a version once wrote into the directory itself
        dest.rename(tempfile.mkdtemp(dir=dest.parent, prefix=f"{dest.name}-before-"))
    link = scratch / "link"
    link.symlink_to(final.name)
    link.replace(dest)
