"""The shell functions that the scripts of RPMs and debs share, each alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

from packages.root import TREE

SCRIPTS = TREE / "packaging" / "scripts"


def call(script: str, *words: str, **places: str) -> str:
    """Call a function of a script, in which each of `places` stands for another path."""
    text = (SCRIPTS / script).read_text()
    for there, here in places.items():
        text = text.replace(there, here)
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


def test_the_client_of_an_upgrade_is_the_new_one(tmp_path: Path) -> None:
    """Whatever comes last in the alphabet."""
    older, newer, mended = "jobpath-0.9.0-5", "jobpath-0.10.0-7", "jobpath-0.10.0-3"
    for name in (older, newer, mended, older):
        install_client(tmp_path, name)
        assert (tmp_path / "jobpath" / "version").read_text() == name
    kept = {path.name for path in tmp_path.iterdir()}
    assert kept == {"client", "jobpath", older, newer, mended}
