"""Builds the SPANK plugin away from the source tree and runs its C tests, without a Slurm."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent.parent / "plugins" / "spank"
EXPORTS = {
    "plugin_name",
    "plugin_type",
    "plugin_version",
    "spank_plugin_version",
    "slurm_spank_init",
    "slurm_spank_init_post_opt",
    "slurm_spank_user_init",
}

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("make", "cc"))), reason="make and a C compiler are needed"
)
needs_header = pytest.mark.skipif(
    not Path("/usr/include/slurm/spank.h").exists(), reason="slurm/spank.h is not installed"
)


def make(build: Path, *words: str) -> str:
    argv = ["make", "-C", str(SOURCE), f"BUILD_DIR={build}", *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_pure_parts(tmp_path: Path) -> None:
    output = make(tmp_path / "build", "test")
    assert "all tests of the request passed" in output
    assert "all tests of the traits passed" in output
    assert "all tests of the environment passed" in output
    assert "all tests of the releases passed" in output


def list_symbols(build: Path, which: str) -> str:
    argv = ["nm", "-D", which, str(build / "malleable.so")]
    return subprocess.run(argv, capture_output=True, text=True, timeout=150, check=True).stdout


def exported(build: Path) -> set[str]:
    return set(re.findall(r" [A-Z] (\w+)", list_symbols(build, "--defined-only")))


@needs_header
def test_the_installed_plugin_exports_only_spank_symbols(tmp_path: Path) -> None:
    build = tmp_path / "build"
    make(build, "install", f"DESTDIR={tmp_path}/root", "PLUGIN_DIR=/usr/lib64/slurm")
    assert exported(build) == EXPORTS
    installed = tmp_path / "root/usr/lib64/slurm/malleable.so"
    assert installed.stat().st_mode & 0o777 == 0o755
    assert (
        b"malleable: tested with Slurm 2205, 2311, 2411, 2505, 2511, 2605\0"
        in installed.read_bytes()
    )
    make(build, "clean")
    assert not build.exists()


@needs_header
def test_can_be_loaded_where_slurm_has_dropped_a_function(tmp_path: Path) -> None:
    build = tmp_path / "build"
    make(build, "all", "LDFLAGS=-Wl,-z,now")
    assert not re.findall(r" U (s(?:lurm|pank)_\w+)", list_symbols(build, "--undefined-only"))
    plugin = ctypes.CDLL(str(build / "malleable.so"))  # no Slurm at all here
    assert ctypes.c_uint.in_dll(plugin, "plugin_version").value == 0
    assert plugin.slurm_spank_init(None, 0, None) == 0
    assert plugin.slurm_spank_init_post_opt(None, 0, None) == 0
    assert plugin.slurm_spank_user_init(None, 0, None) == 0


@needs_header
def test_the_plugin_is_built_again_only_with_other_options(tmp_path: Path) -> None:
    build = tmp_path / "build"
    make(build, "all", "TESTED=2605,2611")
    assert " -c " not in make(build, "all", "TESTED=2605,2611")
    assert " -c " in make(build, "all", "STRICT=1")
    assert exported(build) == EXPORTS
    plugin = ctypes.CDLL(str(build / "malleable.so"))
    assert ctypes.c_uint.in_dll(plugin, "plugin_version").value != 0


def test_the_list_of_releases_equals_the_package_s_list() -> None:
    """The checker of an installation has a separate list, as it may lack this source."""
    releases = pytest.importorskip("slurm_hooks.slurm.releases")
    match = re.search(r"#define MALLEABLE_TESTED ([\d, ]+)", (SOURCE / "releases.h").read_text())
    assert match
    here = {divmod(int(number), 100) for number in match.group(1).split(",")}
    assert here == set(releases.TESTED)
