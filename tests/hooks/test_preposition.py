"""The hook that lays environments on a node: real processes, as root and as a user."""

from __future__ import annotations

import io
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurm_hooks.hooks import preposition
from slurm_hooks.hooks.preposition import hook, store
from waiting import wait_until

HOOK = Path(preposition.__file__).parent
IS_ROOT = os.geteuid() == 0
USER = pwd.getpwnam("nobody") if IS_ROOT else pwd.getpwuid(os.geteuid())
needs_root = pytest.mark.skipif(not IS_ROOT, reason="a hook that is not root changes to nobody")


@dataclass(frozen=True)
class Node:
    """A node's store, and a directory of the user's that stands for the shared one."""

    store: Path
    shared: Path

    @property
    def home(self) -> Path:
        return self.store / str(USER.pw_uid)

    def begin(self, path: Path, job: int = 7, *more: str) -> subprocess.Popen[str]:
        environ = {
            "SPANK_MALLEABLE": "1-2",
            "SPANK_MALLEABLE_ENV": str(path),
            "SLURM_JOB_ID": str(job),
            "SLURM_JOB_UID": str(USER.pw_uid),
            "SLURM_JOB_GID": str(USER.pw_gid),
        }
        words = [sys.executable, "-I", str(HOOK), f"--store={self.store}", "--free-gib=0", *more]
        return subprocess.Popen(words, env=environ, stderr=subprocess.PIPE, text=True)

    def run(self, path: Path, job: int = 7, *more: str) -> str:
        """What it says; it must end with 0."""
        process = self.begin(path, job, *more)
        said = process.communicate(timeout=60)[1]
        assert process.returncode == 0, said
        return said

    def laid(self) -> list[str]:
        return sorted(path.name for path in self.home.glob("env-*"))

    def parts(self) -> list[str]:
        return sorted(path.name for path in self.home.glob("part-*"))

    def tar(self, name: str, **files: str) -> Path:
        with tarfile.open(self.shared / name, "w") as archive:
            for path, text in files.items():
                add(archive, path, text)
        return self.shared / name


def add(archive: tarfile.TarFile, name: str, text: str, mode: int = 0o644) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = len(text), mode, 1_000_000_000
    archive.addfile(member, io.BytesIO(text.encode()))


@pytest.fixture
def node() -> Iterator[Node]:
    top = Path(tempfile.mkdtemp(prefix="malleable-"))
    top.chmod(0o755)
    for name, mode in (("store", 0o711), ("shared", 0o755)):
        (top / name).mkdir()
        (top / name).chmod(mode)
    os.chown(top / "shared", USER.pw_uid, USER.pw_gid)
    yield Node(top / "store", top / "shared")
    shutil.rmtree(top)


def test_a_tar_is_laid_once_for_all_jobs_of_its_user(node: Node) -> None:
    tar = node.tar("env.tar", **{"bin/tool": "content"})
    assert "env-" in node.run(tar, 7)
    node.run(tar, 8)
    (name,) = node.laid()
    for job in (7, 8):
        assert os.readlink(node.home / f"job-{job}") == name
    tool = node.home / "job-7/bin/tool"
    assert tool.read_text() == "content"
    assert tool.stat().st_uid == USER.pw_uid
    assert tool.stat().st_mtime == 1_000_000_000
    assert node.home.stat().st_mode & 0o777 == 0o700
    assert node.parts() == []


def test_two_tars_of_one_content_share_it_and_another_content_does_not(node: Node) -> None:
    tar = node.tar("env.tar", a="1")
    node.run(tar)
    node.run(Path(shutil.copy(tar, node.shared / "copy.tar")), 8)
    assert len(node.laid()) == 1
    node.tar("env.tar", a="22")
    node.run(tar, 9)
    assert (node.home / "job-9/a").read_text() == "22"
    assert (node.home / "job-7/a").read_text() == "1"


def test_a_directory_is_copied_with_its_links_and_modes(node: Node) -> None:
    tree = node.shared / "venv"
    (tree / "bin").mkdir(parents=True)
    (tree / "bin/run").write_text("x")
    (tree / "bin/run").chmod(0o4755)
    (tree / "bin/python").symlink_to("/usr/bin/python3")
    os.mkfifo(tree / "fifo")
    node.run(tree)
    copy = node.home / "job-7"
    assert (copy / "bin/run").stat().st_mode & 0o7777 == 0o755
    assert os.readlink(copy / "bin/python") == "/usr/bin/python3"
    assert not os.path.lexists(copy / "fifo")


def test_a_squashfs_image_is_copied_as_it_is(node: Node) -> None:
    (node.shared / "env.squashfs").write_bytes(b"hsqs" + bytes(5000))
    node.run(node.shared / "env.squashfs")
    assert (node.home / "job-7/image.squashfs").read_bytes() == b"hsqs" + bytes(5000)


def test_a_venv_s_python_finds_its_modules_in_the_copy(node: Node) -> None:
    venv = node.shared / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "of_the_user.py").write_text("print(__file__)")
    with tarfile.open(node.shared / "venv.tar.gz", "w:gz") as archive:
        archive.add(venv, ".")
    shutil.rmtree(venv)
    node.run(node.shared / "venv.tar.gz")
    python = [node.home / "job-7/bin/python", "-m", "of_the_user"]
    said = subprocess.run(python, check=True, capture_output=True, text=True).stdout
    assert said.startswith(f"{node.home}/")


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x"])
def test_names_that_lead_out_are_refused(node: Node, name: str) -> None:
    assert "leads out" in node.run(node.tar("env.tar", **{name: "x"}))
    assert node.laid() == node.parts() == []


def test_nothing_is_written_through_a_link_of_the_tar(node: Node) -> None:
    victim = node.shared / "victim"
    victim.mkdir(mode=0o777)
    os.chown(victim, USER.pw_uid, USER.pw_gid)
    with tarfile.open(node.shared / "env.tar", "w") as archive:
        link = tarfile.TarInfo("a")
        link.type, link.linkname = tarfile.SYMTYPE, str(victim)
        archive.addfile(link)
        add(archive, "a/x", "x")
    node.run(node.shared / "env.tar")
    assert list(victim.iterdir()) == []


def test_devices_and_setuid_bits_are_not_laid(node: Node) -> None:
    with tarfile.open(node.shared / "env.tar", "w") as archive:
        add(archive, "su", "x", 0o6755)
    node.run(node.shared / "env.tar")
    assert (node.home / "job-7/su").stat().st_mode & 0o7777 == 0o755
    with tarfile.open(node.shared / "bad.tar", "w") as archive:
        device = tarfile.TarInfo("null")
        device.type = tarfile.CHRTYPE
        archive.addfile(device)
    assert "neither file, directory nor link" in node.run(node.shared / "bad.tar", 8)


@pytest.mark.parametrize("content", [b"", b"no tar at all" * 1000, b"\0" * 3])
def test_what_is_no_tar_leaves_nothing_and_ends_well(node: Node, content: bytes) -> None:
    (node.shared / "env.tar").write_bytes(content)
    node.run(node.shared / "env.tar")
    assert node.parts() == []


def test_a_fifo_does_not_hold_the_job_up(node: Node) -> None:
    os.mkfifo(node.shared / "env.tar")
    begin = time.monotonic()
    assert "neither a file nor a directory" in node.run(node.shared / "env.tar")
    assert time.monotonic() - begin < 5


def test_what_is_too_large_is_not_laid(node: Node) -> None:
    tar = node.tar("env.tar", a="x" * 100_000)
    assert "larger than" in node.run(tar, 7, "--user-gib=0.00005")
    assert node.laid() == node.parts() == []


@needs_root
def test_root_s_files_are_read_and_written_as_the_user(node: Node) -> None:
    tar = node.tar("env.tar", a="x")
    os.chown(tar, 0, 0)
    tar.chmod(0o600)
    assert "Permission denied" in node.run(tar)
    assert node.laid() == []


@needs_root
def test_a_store_or_home_that_is_not_as_it_must_be_is_refused(node: Node) -> None:
    tar = node.tar("env.tar", a="x")
    elsewhere = node.shared / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    node.home.symlink_to(elsewhere)
    node.run(tar)
    assert list(elsewhere.iterdir()) == []
    node.home.unlink()
    node.store.chmod(0o777)
    assert "others may write" in node.run(tar)
    node.store.chmod(0o711)
    node.home.mkdir()
    os.chown(node.home, USER.pw_uid + 1, 0)
    assert "not the user's own" in node.run(tar)


@needs_root
def test_links_that_a_user_plants_at_home_harm_nobody_else(node: Node) -> None:
    tar = node.tar("env.tar", a="x")
    node.run(tar)
    victim = node.shared / "root-s"
    victim.mkdir(mode=0o755)
    (victim / "file").write_text("root's")
    os.chown(victim, 0, 0)
    for name in ("part-0", "gone-0", "lock-0", "new-job-8", "job-8"):
        (node.home / name).symlink_to(victim)
    (node.home / "lock").unlink()
    (node.home / "lock").symlink_to(victim / "file")
    node.run(tar, 8)
    assert (victim / "file").read_text() == "root's"


def test_of_many_that_race_one_lays(node: Node) -> None:
    tar = node.tar("env.tar", **{f"m{i}": "x" * 1000 for i in range(2000)})
    said: dict[int, str] = {}
    racers = [
        threading.Thread(target=lambda job=job: said.update({job: node.run(tar, job)}))
        for job in range(1, 7)
    ]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    (name,) = node.laid()
    assert all(name in text for text in said.values()), said
    assert len(list((node.home / name).iterdir())) == 2000
    assert node.parts() == []


def slow_tar(node: Node) -> Path:
    """A tar that takes long to lay."""
    return node.tar("env.tar", **{f"m{i}": "x" for i in range(30_000)})


def test_what_a_dead_one_left_is_removed_by_the_next(node: Node) -> None:
    tar = slow_tar(node)
    (node.store / ".tidied").touch()  # or the hook itself would remove it
    first = node.begin(tar)
    wait_until(lambda: node.home.exists() and node.parts(), 20)
    children = Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()
    for child in children:
        os.kill(int(child), signal.SIGKILL)
    first.communicate(timeout=30)
    assert first.returncode == 0
    assert node.laid() == []
    assert len(node.parts()) == 1
    node.run(node.tar("other.tar", a="x"), 8)
    assert node.parts() == []
    node.run(tar, 9)
    assert len(list((node.home / "job-9").iterdir())) == 30_000


def test_when_its_seconds_are_over_the_job_starts_without(node: Node) -> None:
    tar = slow_tar(node)
    begin = time.monotonic()
    assert "was not ready after 0.4 s" in node.run(tar, 7, "--seconds=0.4")
    assert time.monotonic() - begin < 3
    assert node.laid() == []
    assert not os.path.lexists(node.home / "job-7")


def age(path: Path, days: float) -> None:
    at = time.time() - days * 86400
    os.utime(path, (at, at), follow_symlinks=False)


def test_the_unused_go_by_age_and_by_size_and_what_a_job_uses_stays(node: Node) -> None:
    jobs = {job: node.tar(f"{job}.tar", a=str(job) * 200_000) for job in (1, 2, 3)}
    for job, tar in jobs.items():
        node.run(tar, job)
    first, second, third = (node.home / os.readlink(node.home / f"job-{job}") for job in jobs)
    for link in node.home.glob("job-*"):
        age(link, 1)  # long past the start, and no process
    age(first, 3)
    age(second, 2)
    age(third, 20)
    environ = {"SLURM_JOB_ID": "3"}
    user = {"user": USER.pw_uid, "group": USER.pw_gid} if IS_ROOT else {}
    uses = subprocess.Popen(["sleep", "60"], env=environ, **user)  # type: ignore[call-overload]
    try:
        node.run(node.tar("4.tar", a="4" * 200_000), 4, f"--user-gib={650_000 / 2**30}")
    finally:
        uses.kill()
        uses.wait()
    assert not first.exists()
    assert second.exists()
    assert third.exists()  # the oldest, but job 3 runs
    node.run(jobs[2], 2)
    assert third.exists()  # nothing is evicted where nothing is laid
    node.run(node.tar("5.tar", a="5"), 5)
    assert not third.exists()


def test_what_was_evicted_is_laid_again(node: Node) -> None:
    tar = node.tar("env.tar", a="x")
    node.run(tar)
    age(node.home / "job-7", 1)
    age(node.home / node.laid()[0], 30)
    assert "env-" in node.run(node.tar("other.tar", a="y"), 8)
    assert len(node.laid()) == 1
    node.run(tar, 9)
    assert (node.home / "job-9/a").read_text() == "x"


@needs_root
def test_once_a_day_the_old_goes_of_users_who_do_not_come_back(node: Node) -> None:
    node.run(node.tar("env.tar", a="x"))
    age(node.home / "job-7", 1)
    age(node.home / node.laid()[0], 30)
    rules = store.Rules(2**30, 0, 14 * 86400)
    hook.tidy_once_a_day(str(node.store), rules, 10)
    assert len(node.laid()) == 1  # the hook itself was here today
    age(node.store / ".tidied", 2)
    hook.tidy_once_a_day(str(node.store), rules, 10)
    assert node.laid() == []


@pytest.mark.parametrize("name", ["SPANK_MALLEABLE", "SPANK_MALLEABLE_ENV", "SLURM_JOB_ID"])
def test_other_people_s_jobs_are_left_alone(node: Node, name: str) -> None:
    environ = {"SPANK_MALLEABLE": "1", "SPANK_MALLEABLE_ENV": "/x", "SLURM_JOB_ID": "1"}
    del environ[name]
    hook.main(["--store=/nowhere"], environ)


@pytest.mark.parametrize("words", [["--store"], ["--days=x"], []])
def test_bad_arguments_do_not_drain_the_node(words: list[str]) -> None:
    environ = {"SPANK_MALLEABLE": "1", "SPANK_MALLEABLE_ENV": "/x", "SLURM_JOB_ID": "1"}
    environ |= {"SLURM_JOB_UID": str(os.geteuid()), "SLURM_JOB_GID": "0"}
    done = subprocess.run(
        [sys.executable, "-I", HOOK, *words], env=environ, check=False, capture_output=True
    )
    assert done.returncode == 0
    assert done.stderr


def test_a_full_disk_below_the_log_does_not_drain_the_node(node: Node) -> None:
    environ = {"SPANK_MALLEABLE": "1", "SPANK_MALLEABLE_ENV": "/x", "SLURM_JOB_ID": "1"}
    environ |= {"SLURM_JOB_UID": str(USER.pw_uid), "SLURM_JOB_GID": str(USER.pw_gid)}
    with open("/dev/full", "w") as full:
        for store in (node.store, node.store / "missing"):
            words = [sys.executable, "-I", str(HOOK), f"--store={store}"]
            assert subprocess.run(words, env=environ, stderr=full, check=False).returncode == 0


@pytest.mark.parametrize("mode", [0o300, 0o700])
def test_a_directory_that_cannot_be_read_leaves_no_half_copy(node: Node, mode: int) -> None:
    inner = node.shared / "venv/inner"
    inner.mkdir(parents=True)
    (inner / "module.py").write_text("x")
    os.chown(inner, USER.pw_uid, USER.pw_gid)
    inner.chmod(mode)
    said = node.run(node.shared / "venv")
    assert ("Permission denied" in said) == (mode == 0o300)
    assert len(node.laid()) == (mode == 0o700)


def test_a_hard_link_to_a_link_or_a_file_is_one(node: Node) -> None:
    with tarfile.open(node.shared / "env.tar", "w") as archive:
        add(archive, "./file", "x")
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "file"
        archive.addfile(link)
        for name, target in (("hard", "file"), ("other", "link")):
            hard = tarfile.TarInfo(name)
            hard.type, hard.linkname = tarfile.LNKTYPE, target
            archive.addfile(hard)
    node.run(node.shared / "env.tar")
    copy = node.home / "job-7"
    assert (copy / "hard").stat().st_ino == (copy / "file").stat().st_ino
    assert os.readlink(copy / "other") == "file"
