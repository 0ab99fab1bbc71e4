"""A sandbox with this project in it: plugin, submit script, policy, job path and Epilog.

Takes the parts from the source tree, where it builds the plugin first, else from an installed
package. The rest of the sandbox knows the parts only as optional paths.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Optional

from filelock import FileLock

from slurm_hooks.errors import MissingProgram
from slurm_hooks.model import Slurm
from slurm_hooks.protocol.jobpath import PACKAGES, write_job_path
from slurm_hooks.sandbox.config import MAX_ARRAY_SIZE, MIN_JOB_AGE_S, gpu_counts
from slurm_hooks.sandbox.daemons import INSTALLED_LUA
from slurm_hooks.sandbox.installation import PLUGIN_DIRS, find_installation, has_compiler
from slurm_hooks.sandbox.spec import PART_NODES, SCAVENGE, Preemption, SandboxSpec
from slurm_hooks.settings import values as settings
from slurm_hooks.slurm.lua_policy import Largest, Rules, render_policy

PACKAGE = Path(__file__).resolve().parent.parent
TREE = PACKAGE.parent
INSTALLED_JOB_PATH = Path("/usr/share/slurm-malleable/jobpath")
BUILD_LIMIT_S = 120


@dataclass(frozen=True)
class Parts:
    """The paths of this project's parts. A part that is not here is None."""

    spank: Optional[Path]
    job_path: Optional[Path]
    lua_dir: Optional[Path]

    def missing(self) -> list[str]:
        """Returns the names of the parts that are not here."""
        names = {
            "plugin malleable.so": self.spank,
            "job_submit.lua": self.lua_dir,
            "software for jobs": self.job_path,
        }
        return [name for name, path in names.items() if path is None]


def project_spec(**overrides: Any) -> SandboxSpec:
    """Returns a spec with all parts of this project. `overrides` are fields of SandboxSpec and win.

    For a Slurm in another root override `spank` too: a plugin works only with its own Slurm.
    Raises MissingProgram if a part is not here or cannot be built, SettingsError if `settings_text`
    is wrong.
    """
    chosen = _chosen(overrides)
    parts = _tree_parts() if (TREE / "plugins" / "spank").is_dir() else _installed_parts()
    known = SandboxSpec(
        spank=parts.spank,
        job_path=parts.job_path,
        lua_dir=parts.lua_dir,
        epilog=_existing(PACKAGE / "hooks" / "epilog.sh"),
    )
    spec = replace(known, **overrides)
    if "policy" in overrides:
        return spec
    return replace(spec, policy=_render_policy(chosen, _version(overrides), spec))


def plain_spec(**overrides: Any) -> SandboxSpec:
    """Returns a spec of a site that has installed nothing and has changed no setting for malleable
    jobs: with a preemptible partition `preempt`. `overrides` are fields of SandboxSpec and win.
    """
    return SandboxSpec(**{"lane": "preempt", "appends": False, **overrides})


def _chosen(overrides: Mapping[str, Any]) -> settings.Settings:
    if text := overrides.get("settings_text"):
        return settings.parse(text)
    site, is_qos = settings.Site(), overrides.get("preemption") is Preemption.QOS
    if overrides.get("gpus"):
        partitions = site.partitions if is_qos else (*site.partitions, PART_NODES)
        site = replace(site, partitions=partitions, part_nodes=PART_NODES)
    if is_qos:
        site = replace(site, qos=SCAVENGE)
    return settings.Settings(site=site)


def _version(overrides: Mapping[str, Any]) -> tuple[int, ...]:
    """Returns the release of the Slurm that will run, or an empty tuple without a Slurm here."""
    with suppress(MissingProgram):
        return (overrides.get("slurm") or find_installation()).version
    return ()


def _render_policy(chosen: settings.Settings, version: tuple[int, ...], spec: SandboxSpec) -> str:
    seconds = timedelta(seconds=1)
    slurm = Slurm(
        version, spec.kill_wait_s * seconds, MIN_JOB_AGE_S * seconds, MAX_ARRAY_SIZE, appends=True
    )
    operators = {"root": 0, "caller": os.geteuid()}
    counts = gpu_counts(spec)
    gpus = dict.fromkeys(chosen.site.partitions, counts) if counts else {}
    times = 2 if spec.large_nodes else 1
    most = Largest(times * spec.cpus, times * spec.memory_mib)
    largest = dict.fromkeys(chosen.site.partitions, most)
    return render_policy(chosen, slurm, operators, Rules(gpus=gpus, largest=largest))


def _tree_parts() -> Parts:
    build = TREE / "build"
    with _building(build):
        return _whole(
            Parts(
                spank=_build_spank(build / "spank"),
                job_path=_fresh_job_path(build / "jobpath"),
                lua_dir=_existing(TREE / "plugins" / "lua"),
            )
        )


def _installed_parts() -> Parts:
    """Returns the parts of the packages. `pip install .` copies the commands alone."""
    plugins = (folder for pattern in PLUGIN_DIRS for folder in Path("/").glob(pattern))
    built = (_existing(plugin / "malleable.so") for plugin in plugins)
    return _whole(
        Parts(
            spank=next((path for path in built if path is not None), None),
            job_path=_existing(INSTALLED_JOB_PATH),
            lua_dir=_existing(Path(INSTALLED_LUA)),
        )
    )


def _whole(parts: Parts) -> Parts:
    """The same parts. Raises MissingProgram if one is not here."""
    if missing := parts.missing():
        raise MissingProgram(
            f"This malleable has no {' and no '.join(missing)}: install the packages "
            "slurm-malleable-slurm and slurm-malleable-client, or run the malleable of a checkout "
            "after make setup, or start Slurm alone (--plain)."
        )
    return parts


def _existing(path: Path) -> Optional[Path]:
    return path if path.exists() else None


@contextmanager
def _building(build: Path) -> Iterator[None]:
    """Holds the lock of the build: parallel test runs share the tree."""
    build.mkdir(exist_ok=True)
    with FileLock(build / "sandbox.lock", timeout=BUILD_LIMIT_S):
        yield


def _build_spank(target: Path) -> Path:
    if not has_compiler():
        raise MissingProgram(
            "The SPANK plugin is built with make and a C compiler, which this host lacks: "
            "apt-get install gcc make libslurm-dev, or start without it (--plain)."
        )
    source = TREE / "plugins" / "spank"
    argv = ["make", "-s", "-C", str(source), f"BUILD_DIR={target}", "all"]
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        timeout=BUILD_LIMIT_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        raise MissingProgram(
            f"The SPANK plugin does not build ({' '.join(argv)}). If slurm/spank.h is missing: "
            f"apt-get install libslurm-dev.\n{done.stdout}{done.stderr}"
        )
    return target / "malleable.so"


def _fresh_job_path(target: Path) -> Path:
    """Writes the job path only if a source is newer: another sandbox may be copying it."""
    copied = (path for name in PACKAGES for path in PACKAGE.glob(f"{name}/**/*.py"))
    sources = [PACKAGE / "__init__.py", *copied]
    stamp = target.with_suffix(".stamp")
    newest = max(path.stat().st_mtime for path in sources)
    if not stamp.exists() or stamp.stat().st_mtime < newest:
        write_job_path(target)
        stamp.write_text("")
    return target
