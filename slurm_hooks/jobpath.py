"""The directory that a job gets on its PYTHONPATH: the rendezvous and nothing else.

A job must not see the reconciler's dependencies, and torchrun finds handlers through
installed metadata; so the directory holds `slurm_hooks/elastic` and a `dist-info` that
names its entry point. It must not know where a site wants that directory.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from . import __version__

NAMES = (  # as in elastic/options.py, which this side must not import
    "malleable",
    "malleable-needs-torch-2.6-or-newer-and-the-PYTHONPATH-of-the-job",
)
ENTRY_POINTS = "[torchrun.handlers]\n" + "".join(
    f"{name} = slurm_hooks.elastic.register:handlers\n" for name in NAMES
)


def write_job_path(dest: Path) -> Path:
    """Lay out (or renew) the job path in `dest` and return it. Raises OSError."""
    source = Path(__file__).parent
    package = dest / "slurm_hooks"
    (package / "elastic").mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source / "__init__.py", package / "__init__.py")
    for module in sorted((source / "elastic").glob("*.py")):
        shutil.copyfile(module, package / "elastic" / module.name)
    for old in dest.glob("slurm_malleable_elastic-*.dist-info"):
        shutil.rmtree(old)
    metadata = dest / f"slurm_malleable_elastic-{__version__}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: slurm-malleable-elastic\nVersion: {__version__}\n"
    )
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    return dest
