"""The submit script's modules under every Lua that is there: pure tables and the glue."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from slurm_hooks.protocol.comment import Standing

HERE = Path(__file__).resolve().parent
MODULES = HERE.parent.parent / "plugins" / "lua"
SHIPPED = (
    "malleable_text",
    "malleable_request",
    "malleable_shape",
    "malleable_slot",
    "malleable_script",
    "malleable_options",
    "malleable_place",
    "malleable_checks",
    "malleable_modify",
    "malleable_submit",
    "job_submit",
)

POLICY = """return {
  partitions = {"malleable"}, unfit = {}, operators = {[0] = true},
  engines = {torchrun = "gang+rounds+torchrun", torchft = "gang"},
  max_fragments = 64, max_nodes = 1024, max_array_size = 1001,
  lease_s = 600, hole_s = 120, notice_s = 35, farewell_s = 1.5,
}
"""
FILES = {
    "malleable_policy.lua": POLICY,
    "policy_good.lua": POLICY,
    "policy_launchers.lua": POLICY.replace("lease_s", "launchers = {torchrun = true}, lease_s"),
    "policy_parts.lua": POLICY.replace(
        'partitions = {"malleable"}',
        'partitions = {"malleable", "parts"}, part_nodes = "parts", gres = "gres/"',
    ),
    "policy_gpus.lua": POLICY.replace(
        'partitions = {"malleable"}',
        'partitions = {"malleable", "parts"}, part_nodes = "parts", gres = "gres/", '
        "gpus = {malleable = {gpu = {8}}}, launchers = {torchrun = true}",
    ),
    "policy_bad.lua": POLICY.replace("lease_s = 600", 'lease_s = "600"'),
    "policy_syntax.lua": "return {",
    "site.lua": "pcall(dofile, MALLEABLE_GLUE)\nreturn 0\n",
}


def run(argv: list[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """Policies, a site's file, and a directory where the glue stands without its modules."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "lonely").mkdir()
    shutil.copy(MODULES / "malleable_submit.lua", tmp_path / "lonely")
    return tmp_path


def test_pure_modules(lua: str) -> None:
    run([lua, str(HERE / "malleable_test.lua"), str(MODULES)])


def test_glue(lua: str, scratch: Path) -> None:
    run([lua, str(HERE / "glue_test.lua"), str(MODULES), str(scratch)])


def test_the_stages_of_a_run_are_the_ticks() -> None:
    stages = ", ".join(f'"{standing.value}"' for standing in Standing)
    assert f"M.STANDINGS = {{ {stages} }}" in (MODULES / "malleable_modify.lua").read_text()


def test_example_works_without_the_package(lua: str) -> None:
    """The example's path need not exist, because the site's file must load without it."""
    run([lua, "-e", f"slurm = {{SUCCESS = 0}} assert(dofile('{MODULES}/job_submit.lua') == 0)"])


def test_luacheck() -> None:
    luacheck = shutil.which("luacheck")
    if luacheck is None:
        pytest.skip("luacheck is not installed")
    shipped = [str(MODULES / f"{name}.lua") for name in SHIPPED]
    tests = [str(path) for path in sorted(HERE.parent.glob("*/*.lua"))]
    run([luacheck, "--quiet", "--config", str(MODULES / ".luacheckrc"), *shipped, *tests])
