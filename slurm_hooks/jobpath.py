"""The directory that a job gets on its PYTHONPATH: the rendezvous and nothing else.

A job must not see the reconciler's dependencies, and torchrun finds handlers through
installed metadata, as frameworks find callbacks; so the directory holds `slurm_hooks/elastic` and
a `dist-info` that names its entry points. Each content has a directory of its own, beside a link
to the one that is current. It must not know where a site wants them.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

from . import __version__

NAMES = (  # as in elastic/agent/options.py, which this side must not import
    "malleable",
    "malleable-needs-torch-2.6-or-newer-and-the-PYTHONPATH-of-the-job",
)
_HANDLERS = "".join(f"{name} = slurm_hooks.elastic.engines.entry:handlers\n" for name in NAMES)
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


def write_job_path(dest: Path) -> Path:
    """Lay out (or renew) the job path and make `dest` a link to it; returns `dest`.

    What was there before stays where it is, since jobs may be starting from it; the link is
    switched in one step. Everybody can read it, whatever the umask. Raises OSError.
    """
    dest = dest.absolute()
    _make(dest.parent)
    with tempfile.TemporaryDirectory(dir=dest.parent, prefix=f".{dest.name}.") as scratch:
        draft = Path(scratch) / "draft"
        _lay_out(draft)
        final = dest.with_name(f"{dest.name}-{__version__}-{_digest(draft)}")
        if not final.exists():
            draft.rename(final)
        _switch(dest, final, Path(scratch))
    return dest


def _make(directory: Path) -> None:
    """Make a directory and those above it; only the modes of those that it makes are set."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        path.chmod(0o755)


def _lay_out(directory: Path) -> None:
    source = Path(__file__).parent
    package = directory / "slurm_hooks"
    package.mkdir(parents=True)
    shutil.copyfile(source / "__init__.py", package / "__init__.py")
    shutil.copytree(
        source / "elastic", package / "elastic", ignore=shutil.ignore_patterns("__pycache__")
    )
    metadata = directory / f"slurm_malleable_elastic-{__version__}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: slurm-malleable-elastic\nVersion: {__version__}\n"
    )
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    for path in (directory, *directory.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _digest(directory: Path) -> str:
    """Eight digits that tell one content from another."""
    found = hashlib.sha256()
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        content = path.read_bytes()
        found.update(f"{path.relative_to(directory)} {len(content)}\n".encode() + content)
    return found.hexdigest()[:8]


def _switch(dest: Path, final: Path, scratch: Path) -> None:
    """Make `dest` a link to `final`, its neighbour, as one rename."""
    if dest.is_dir() and not dest.is_symlink():  # of a version that wrote into it
        dest.rename(tempfile.mkdtemp(dir=dest.parent, prefix=f"{dest.name}-before-"))
    link = scratch / "link"
    link.symlink_to(final.name)
    link.replace(dest)
