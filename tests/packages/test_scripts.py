"""The shell functions that the scripts of RPMs and debs share, each alone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Optional

import pytest

from packages.root import TREE
from programs import write_program, write_programs
from waiting import wait_until

SCRIPTS = TREE / "packaging" / "scripts"


def call(script: str, *words: str, instead: Optional[Mapping[str, object]] = None) -> str:
    """Call a function of a script, with the paths of `instead`."""
    text = (SCRIPTS / script).read_text()
    for there, here in (instead or {}).items():
        assert there in text
        text = text.replace(there, str(here))
    argv = ["sh", "-euc", f'{text}\n"$@"', "sh", *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def install_client(base: Path, name: str) -> None:
    """As rpm does in an upgrade: the files of the package before are still there."""
    (base / "client" / name).mkdir(parents=True, exist_ok=True)
    (base / "client" / name / "version").write_text(name)
    current = base / "client" / "current"
    current.unlink(missing_ok=True)
    current.symlink_to(name)
    call("client.sh", "switch_client", str(base))


def test_the_client_of_an_upgrade_is_the_new_client(tmp_path: Path) -> None:
    """The alphabetical order does not matter."""
    older, newer, mended = "jobpath-0.9.0-5", "jobpath-0.10.0-7", "jobpath-0.10.0-3"
    for name in (older, newer, mended, older):
        install_client(tmp_path, name)
        assert (tmp_path / "jobpath" / "version").read_text() == name
    kept = {path.name for path in tmp_path.iterdir()}
    assert kept == {"client", "jobpath", older, newer, mended}


EPILOG = "/usr/libexec/slurm-malleable/epilog.sh"


def write_link(etc: Path, epilog: Path) -> None:
    shared = etc.parent / "shared.conf"
    shared.write_text(f"Epilog={epilog}\n")
    (etc / "slurm.conf").symlink_to(shared)


def write_pipe(etc: Path, epilog: Path) -> None:
    """Make also a pipe beside it, which has no writer."""
    (etc / "slurm.conf").write_text("")
    os.mkfifo(etc / "pipe.conf")


def answer_for_slurmctld(etc: Path, epilog: Path) -> None:
    """As if slurm.conf had another place that only scontrol knows."""
    write_program(etc / "scontrol", f"echo 'Epilog[0]  = {epilog}'")


def fail_as_without_slurmctld(etc: Path, epilog: Path) -> None:
    complaint = "Unable to contact slurm controller (connect failure)"
    write_program(etc / "scontrol", f"echo '{complaint}' >&2\nexit 1")


@pytest.mark.parametrize(
    ("site", "stays"),
    [
        (write_link, True),
        (answer_for_slurmctld, True),
        (fail_as_without_slurmctld, True),
        (write_pipe, False),
    ],
)
def test_an_epilog_that_slurm_names_is_kept(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    site: Callable[[Path, Path], None],
    stays: bool,
) -> None:
    etc, epilog = tmp_path / "etc", tmp_path / "gone" / "epilog.sh"
    etc.mkdir()
    site(etc, epilog)
    monkeypatch.setenv("PATH", f"{etc}:/usr/bin:/bin")
    monkeypatch.delenv("SLURM_CONF", raising=False)
    places = {"/etc/slurm/slurm.conf": etc / "slurm.conf", "/etc/slurm ": f"{etc} "}
    said = call("slurm.sh", "keep_epilog_if_named", instead={EPILOG: epilog, **places})
    assert ("does nothing stays there" in said) == epilog.exists() == stays
    assert not stays or subprocess.run([epilog], check=True, timeout=10)


@pytest.mark.skipif(
    not Path("/usr/include/slurm/slurm_version.h").exists() or shutil.which("dpkg-query") is None,
    reason="needs Slurm's headers, and Debian",
)
def test_a_strict_deb_is_for_a_single_release() -> None:
    argv = [TREE / "packaging" / "strict-depends.sh"]
    said = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True).stdout
    match = re.fullmatch(r"(\S+) \(>= (\d+)\.(\d+)\), \1 \(<< \2\.(\d+)~\)\n", said)
    assert match, said
    installed = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Version}", match[1]],
        capture_output=True, text=True, timeout=30, check=True,
    ).stdout  # fmt: skip
    assert installed.startswith(f"{match[2]}.{match[3]}.")
    assert int(match[4]) == int(match[3]) + 1


def test_an_interrupted_set_up_leaves_no_policy_behind(tmp_path: Path) -> None:
    """With a remaining policy, no service of this host would start again."""
    policy, fakes = tmp_path / "policy-rc.d", tmp_path / "bin"
    fakes.mkdir()
    write_programs(fakes, {"dpkg-query": "", "apt-get": "sleep 2", "id": "echo 0"})
    script = tmp_path / "packaging" / "install-missing.sh"
    script.parent.mkdir()
    text = (TREE / "packaging" / "install-missing.sh").read_text()
    assert "/usr/sbin/policy-rc.d" in text
    script.write_text(text.replace("/usr/sbin/policy-rc.d", str(policy)))
    words = {**os.environ, "PATH": f"{fakes}:/usr/bin:/bin"}
    setup = subprocess.Popen(["sh", script, "packages"], env=words, stdout=subprocess.DEVNULL)
    wait_until(policy.exists)
    setup.terminate()
    assert setup.wait(20) != 0
    assert not policy.exists()


def test_a_fresh_debian_gets_all_that_a_deb_needs_to_be_built() -> None:
    """dpkg-buildpackage also asks for build-essential, which no control file names."""
    setup = (TREE / "packaging" / "install-missing.sh").read_text()
    listed = re.findall(r'packages="([^"$]*)"$', setup, re.MULTILINE)[0].split()
    control = (TREE / "packaging" / "debian" / "control").read_text()
    wanted = re.findall(r"Build-Depends: (.*?)\n(?=\S)", control, re.DOTALL)[0].split(",")
    names = {name.split()[0] for name in wanted if name.strip()}
    assert {"build-essential", *names} - {"debhelper-compat"} <= set(listed)


def test_removing_names_each_file_that_the_page_has_you_write() -> None:
    page = (TREE / "docs" / "admins" / "packages.md").read_text()
    written = set(
        re.findall(r"/etc/(?:systemd|cron\.d|tmpfiles\.d)/[\w./-]*malleable[\w.-]*\w", page)
    )
    assert len(written) > 2
    said = call("core.sh", "say_what_is_left")
    assert {path for path in written if path not in said} == set()
    assert ".malleable-UID" in said
    assert "wait" in call("slurm.sh", "say_lines")
