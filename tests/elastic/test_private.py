"""The owner of the shared directory, with two users on a file system."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurm_hooks.elastic.private_directory import make_private
from slurm_hooks.elastic.rendezvous.directory import DirectoryError
from slurm_hooks.elastic.rendezvous.state import State

from .members import opened

STRANGER = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="acting as two users needs root")


def by_stranger(deed: Callable[[], object]) -> None:
    os.seteuid(STRANGER)
    try:
        deed()
    finally:
        os.seteuid(0)


@pytest.fixture
def sticky() -> Iterator[Path]:
    """A directory that every user may write to, like /tmp. pytest's own directories keep
    strangers out.
    """
    path = Path(tempfile.mkdtemp(prefix="sticky-"))
    path.chmod(0o1777)
    yield path
    shutil.rmtree(path)


def test_a_new_directory_belongs_to_the_user_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        opened(tmp_path / ".malleable-0" / "7")
    finally:
        os.umask(old)
    for name in (".malleable-0", ".malleable-0/7", ".malleable-0/7/beats"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o700


def test_a_wider_mode_is_narrowed(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7").chmod(0o777)
    opened(tmp_path / "7")
    assert (tmp_path / "7").stat().st_mode & 0o777 == 0o700


@needs_root
@pytest.mark.parametrize("mode", [0o700, 0o777])
def test_a_directory_of_another_user_is_refused(sticky: Path, mode: int) -> None:
    path = sticky / ".malleable-0" / "7"

    def make() -> None:
        path.mkdir(parents=True)
        path.chmod(mode)

    by_stranger(make)
    with pytest.raises(DirectoryError, match="belongs to the user with uid 65534, not to you"):
        opened(path)


@needs_root
def test_the_owner_of_a_strangers_directory_is_named(sticky: Path) -> None:
    (sticky / ".malleable").mkdir(mode=0o700)
    with pytest.raises(DirectoryError, match=r"/\.malleable, which belongs to .* 0;"):
        by_stranger(lambda: make_private(sticky / ".malleable" / "8"))


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_is_not_followed(tmp_path: Path, is_there: bool) -> None:
    if is_there:
        (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "7").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DirectoryError, match="is a link or a file"):
        opened(tmp_path / "7")


def test_links_above_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "home").symlink_to(tmp_path / "real")
    opened(tmp_path / "home" / ".malleable-0" / "7")
    assert (tmp_path / "real" / ".malleable-0" / "7" / "beats").is_dir()


@needs_root
@pytest.mark.parametrize("kind", ["directory", "link"])
def test_a_replaced_directory_is_refused_too(sticky: Path, kind: str) -> None:
    """The owner of the parent directory may rename the entries in it."""
    shared = opened(sticky / "7")
    shared.update(lambda s: State(run=s.run, rounds=1))
    shutil.copytree(sticky / "7", sticky / "trap")
    os.chown(sticky / "trap", STRANGER, STRANGER)
    (sticky / "7").rename(sticky / "away")
    if kind == "directory":
        (sticky / "trap").rename(sticky / "7")
    else:
        (sticky / "7").symlink_to(sticky / "trap")
    target = sticky / "target"
    target.write_text("precious")
    (sticky / "trap" if kind == "link" else sticky / "7").joinpath("beats", "ab").symlink_to(target)
    for deed in (shared.read, lambda: shared.write_beat("ab", 1), lambda: shared.log_round("x")):
        with pytest.raises(DirectoryError, match=r"belongs to|is a link"):
            deed()
    assert target.read_text() == "precious"


def test_many_agents_make_the_directory_at_once(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path;"
        "from slurm_hooks.elastic.rendezvous.directory import *;"
        "SharedDirectory(Path(sys.argv[1]), '7').open()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "a" / "b" / "c")]
    processes = [subprocess.Popen(command) for _ in range(6)]
    assert [p.wait(timeout=150) for p in processes] == [0] * 6
