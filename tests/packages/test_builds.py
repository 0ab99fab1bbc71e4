"""The result of a build, before its installation: lint's findings, and the RPMs for each option."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from packages.conftest import NEWER, Packages
from packages.root import TREE

# The first test of each kind waits for the packages to be built.
pytestmark = [pytest.mark.package, pytest.mark.timeout(1800)]
LINT = {
    "rpm": ["rpmlint", "--config", str(TREE / "packaging" / "rpmlint.toml")],
    "deb": ["lintian", "--allow-root", "--fail-on", "error,warning"],
}


def output(argv: list[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_lint_has_no_findings(packages: Packages) -> None:
    argv = LINT[packages.kind]
    if shutil.which(argv[0]) is None:
        pytest.skip(f"{argv[0]} is not installed: make package-tools")
    said = output([*argv, *map(str, packages.new.glob(f"*.{packages.kind}"))])
    assert not re.findall(r"(?m)^.*\b[EW]: .*$", said)


@pytest.fixture
def spec(packages: Packages) -> Path:
    """The spec as rpmbuild got it."""
    if packages.kind != "rpm":
        pytest.skip("of the RPMs")
    source = TREE / "build" / "rpm" / "SOURCES" / f"slurm-malleable-{NEWER}"
    return source / "slurm-malleable-slurm.spec"


def asked(spec: Path, form: str, *options: str) -> list[str]:
    """The answer of rpm about each package, in its own format."""
    argv = ["rpmspec", "-q", *options, "--qf", f"%{{NAME}}: {form}\\n", str(spec)]
    return output(argv).splitlines()


@pytest.mark.skipif(
    not Path("/usr/include/slurm/slurm_version.h").exists(), reason="needs Slurm's headers"
)
def test_a_strict_rpm_is_for_a_single_release(spec: Path) -> None:
    (ours,) = (
        line
        for line in asked(spec, "%{RELEASE}[ %{REQUIRES}]", "--with", "slurm_strict")
        if line.startswith("slurm-malleable-slurm:")
    )
    assert re.search(r": 1\.sl\d{4} .*libslurm\.so\.\d+\(\)\(64bit\)", ours)
    assert "libslurm" not in "".join(asked(spec, "[ %{REQUIRES}]"))


def test_all_scripts_use_the_requested_python(spec: Path) -> None:
    """As on RHEL 8, whose own Python is too old."""
    other = ("--define", "malleable_python /usr/bin/python3.12")
    scripts = "".join(
        line
        for tag in ("PREIN", "POSTIN", "PREUN", "POSTUN", "POSTTRANS")
        for line in asked(spec, f"%{{{tag}}}", *other)
    )
    assert set(re.findall(r"/usr/bin/python[\d.]+", scripts)) == {"/usr/bin/python3.12"}
    assert " /usr/bin/python3.12" in "".join(asked(spec, "[ %{REQUIRES}]", *other))
