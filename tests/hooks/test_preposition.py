"""The hook that lays environments on a node: real processes, as root and as a user."""

from __future__ import annotations

import gzip
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
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurm_hooks.hooks import preposition
from slurm_hooks.hooks.preposition import content, hook
from slurm_hooks.hooks.preposition.eviction import Rules
from waiting import wait_until

HOOK = Path(preposition.__file__).parent
IS_ROOT = os.geteuid() == 0
USER = pwd.getpwnam("nobody") if IS_ROOT else pwd.getpwuid(os.geteuid())
FIRST = 90_000_000  # jobs of sandboxes beside this test have small numbers
needs_root = pytest.mark.skipif(not IS_ROOT, reason="a hook that is not root changes to nobody")


@dataclass(frozen=True)
class Node:
    """A node's store, and a directory of the user's that stands for the shared directory."""

    store: Path
    shared: Path

    @property
    def home(self) -> Path:
        return self.store / str(USER.pw_uid)

    def link(self, job: int) -> Path:
        """The copy of this job."""
        return self.home / f"job-{FIRST + job}"

    def begin(self, path: Path, job: int = 7, *more: str) -> subprocess.Popen[str]:
        environ = {
            "SPANK_MALLEABLE": "1-2",
            "SPANK_MALLEABLE_ENV": str(path),
            "SLURM_JOB_ID": str(FIRST + job),
            "SLURM_JOB_UID": str(USER.pw_uid),
            "SLURM_JOB_GID": str(USER.pw_gid),
        }
        words = [sys.executable, "-I", str(HOOK), f"--store={self.store}"]
        words += ["--free-gib=0", "--free-share=0", *more]
        pipe = subprocess.PIPE  # as slurmd gives its Prolog, which waits for the end of them
        return subprocess.Popen(words, env=environ, stdout=pipe, stderr=pipe, text=True)

    def run(self, path: Path, job: int = 7, *more: str) -> str:
        """Return its output. It must end with 0."""
        process = self.begin(path, job, *more)
        said = process.communicate(timeout=150)[1]
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
        assert os.readlink(node.link(job)) == name
    tool = node.link(7) / "bin/tool"
    assert tool.read_text() == "content"
    assert tool.stat().st_uid == USER.pw_uid
    assert tool.stat().st_mtime == 1_000_000_000
    assert node.home.stat().st_mode & 0o777 == 0o700
    assert node.parts() == []


def test_two_tars_of_the_same_content_share_it_and_another_content_does_not(node: Node) -> None:
    tar = node.tar("env.tar", a="1")
    node.run(tar)
    node.run(Path(shutil.copy(tar, node.shared / "copy.tar")), 8)
    assert len(node.laid()) == 1
    node.tar("env.tar", a="22")
    node.run(tar, 9)
    assert (node.link(9) / "a").read_text() == "22"
    assert (node.link(7) / "a").read_text() == "1"


def test_a_directory_is_copied_with_its_links_and_modes(node: Node) -> None:
    tree = node.shared / "venv"
    (tree / "bin").mkdir(parents=True)
    (tree / "bin/run").write_text("x")
    (tree / "bin/run").chmod(0o4755)
    (tree / "bin/python").symlink_to("/usr/bin/python3")
    os.mkfifo(tree / "fifo")
    node.run(tree)
    copy = node.link(7)
    assert (copy / "bin/run").stat().st_mode & 0o7777 == 0o755
    assert os.readlink(copy / "bin/python") == "/usr/bin/python3"
    assert not os.path.lexists(copy / "fifo")


def test_a_squashfs_image_is_copied_unchanged(node: Node) -> None:
    (node.shared / "env.squashfs").write_bytes(b"hsqs" + bytes(5000))
    node.run(node.shared / "env.squashfs")
    assert (node.link(7) / "image.squashfs").read_bytes() == b"hsqs" + bytes(5000)


def test_a_venv_s_python_imports_its_modules_from_the_copy(node: Node) -> None:
    venv = node.shared / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "of_the_user.py").write_text("print(__file__)")
    with tarfile.open(node.shared / "venv.tar.gz", "w:gz") as archive:
        archive.add(venv, ".")
    shutil.rmtree(venv)
    node.run(node.shared / "venv.tar.gz")
    python = [node.link(7) / "bin/python", "-m", "of_the_user"]
    said = subprocess.run(python, check=True, capture_output=True, text=True).stdout
    assert said.startswith(f"{node.home}/")


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x"])
def test_names_that_lead_out_are_refused(node: Node, name: str) -> None:
    assert "leads out" in node.run(node.tar("env.tar", **{name: "x"}))
    assert node.laid() == node.parts() == []


def test_no_file_is_written_through_a_link_of_the_tar(node: Node) -> None:
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
    assert (node.link(7) / "su").stat().st_mode & 0o7777 == 0o755
    with tarfile.open(node.shared / "bad.tar", "w") as archive:
        device = tarfile.TarInfo("null")
        device.type = tarfile.CHRTYPE
        archive.addfile(device)
    assert "neither file, directory nor link" in node.run(node.shared / "bad.tar", 8)


@pytest.mark.parametrize("content", [b"", b"no tar at all" * 1000, b"\0" * 3])
def test_a_file_that_is_no_tar_leaves_no_copy_and_ends_well(node: Node, content: bytes) -> None:
    (node.shared / "env.tar").write_bytes(content)
    node.run(node.shared / "env.tar")
    assert node.parts() == []


def test_a_fifo_does_not_hold_the_job_up(node: Node) -> None:
    os.mkfifo(node.shared / "env.tar")
    assert "neither a file nor a directory" in node.run(node.shared / "env.tar")


def test_a_tar_that_is_too_large_is_not_laid(node: Node) -> None:
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
def test_an_unsafe_store_or_home_is_refused(node: Node) -> None:
    tar = node.tar("env.tar", a="x")
    elsewhere = node.shared / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    node.home.symlink_to(elsewhere)
    node.run(tar)
    assert list(elsewhere.iterdir()) == []
    node.home.unlink()
    node.store.chmod(0o777)
    assert "only root may write" in node.run(tar)
    node.store.chmod(0o711)
    node.home.mkdir()
    os.chown(node.home, USER.pw_uid + 1, 0)
    assert "must belong to the user" in node.run(tar)


@needs_root
def test_links_that_a_user_plants_at_home_harm_no_other_user(node: Node) -> None:
    tar = node.tar("env.tar", a="x")
    node.run(tar)
    victim = node.shared / "root-s"
    victim.mkdir(mode=0o755)
    (victim / "file").write_text("root's")
    os.chown(victim, 0, 0)
    for name in ("part-0", "gone-0", "lock-0", f"new-job-{FIRST + 8}", f"job-{FIRST + 8}"):
        (node.home / name).symlink_to(victim)
    (node.home / "lock").unlink()
    (node.home / "lock").symlink_to(victim / "file")
    node.run(tar, 8)
    assert (victim / "file").read_text() == "root's"


def test_a_single_process_of_many_that_race_lays(node: Node) -> None:
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


SLOW = 10_000


def slow_tar(node: Node) -> Path:
    """A tar that takes long to lay."""
    return node.tar("env.tar", **{f"m{i}": "x" for i in range(SLOW)})


def test_remains_of_a_dead_hook_are_removed_by_the_next(node: Node) -> None:
    tar = slow_tar(node)
    (node.store / ".tidied").touch()  # or the hook itself would remove it
    first = node.begin(tar)
    wait_until(lambda: node.home.exists() and node.parts(), every_s=0.002)
    children = Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()
    for child in children:
        os.kill(int(child), signal.SIGKILL)
    first.communicate(timeout=150)
    assert first.returncode == 0
    assert node.laid() == []
    assert len(node.parts()) == 1
    node.run(node.tar("other.tar", a="x"), 8)
    assert node.parts() == []
    node.run(tar, 9)
    assert len(list((node.link(9)).iterdir())) == SLOW


def test_when_its_seconds_are_over_the_job_starts_without(node: Node) -> None:
    tar = slow_tar(node)
    assert "was killed after 0.2 s" in node.run(tar, 7, "--seconds=0.2")
    assert node.laid() == []
    assert not os.path.lexists(node.link(7))


def age(path: Path, days: float) -> None:
    at = time.time() - days * 86400
    os.utime(path, (at, at), follow_symlinks=False)


def test_unused_copies_are_evicted_by_age_and_size_and_used_copies_are_kept(node: Node) -> None:
    jobs = {job: node.tar(f"{job}.tar", a=str(job) * 200_000) for job in (1, 2, 3)}
    for job, tar in jobs.items():
        node.run(tar, job)
    first, second, third = (node.home / os.readlink(node.link(job)) for job in jobs)
    for link in node.home.glob("job-*"):
        age(link, 1)  # long past the start, and no process
    age(first, 3)
    age(second, 2)
    age(third, 20)
    environ = {"SLURM_JOB_ID": str(FIRST + 3)}
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
    assert third.exists()  # without a new copy no old copy is evicted
    node.run(node.tar("5.tar", a="5"), 5)
    assert not third.exists()


def test_an_evicted_copy_is_laid_again(node: Node) -> None:
    tar = node.tar("env.tar", a="x")
    node.run(tar)
    age(node.link(7), 1)
    age(node.home / node.laid()[0], 30)
    assert "env-" in node.run(node.tar("other.tar", a="y"), 8)
    assert len(node.laid()) == 1
    node.run(tar, 9)
    assert (node.link(9) / "a").read_text() == "x"


@needs_root
def test_old_copies_of_absent_users_are_removed_once_a_day(node: Node) -> None:
    node.run(node.tar("env.tar", a="x"))
    age(node.link(7), 1)
    age(node.home / node.laid()[0], 30)
    rules = Rules(2**30, 0, 14 * 86400)
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


@pytest.mark.parametrize("words", [["--store"], ["--days=x"], ["--store=/", "--seconds=nan"], []])
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


def test_the_age_of_a_tar_s_root_is_not_the_age_of_its_use(node: Node) -> None:
    with tarfile.open(node.shared / "env.tar", "w") as archive:
        root = tarfile.TarInfo(".")
        root.type, root.mtime = tarfile.DIRTYPE, 1_000_000_000
        archive.addfile(root)
        add(archive, "a", "x")
    assert "env-" in node.run(node.shared / "env.tar")


@pytest.mark.parametrize(("depth", "why"), [(200, "larger than"), (300, "deeper than 256 levels")])
def test_directories_that_names_imply_are_counted(node: Node, depth: int, why: str) -> None:
    names = {f"{i}{'/d' * depth}": "" for i in range(5)}
    assert why in node.run(node.tar("env.tar", **names), 7, "--user-gib=0.002")
    assert node.laid() == node.parts() == []


def test_a_header_that_fills_the_memory_is_refused(node: Node) -> None:
    header = tarfile.TarInfo("pax")
    header.type, header.size = tarfile.XHDTYPE, 700 * 2**20
    with gzip.open(node.shared / "env.tar.gz", "w", compresslevel=1) as written:
        written.write(header.tobuf())
        for _ in range(700):
            written.write(bytes(2**20))
    assert "MemoryError" in node.run(node.shared / "env.tar.gz")


def test_the_members_of_a_tar_are_not_kept_in_memory(node: Node) -> None:
    with node.tar("env.tar", **{f"m{i}": "x" for i in range(5000)}).open("rb") as source:
        tracemalloc.start()
        names = sum(1 for _ in content.tar_entries(content.Digesting(source)))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert names == 5000
    assert most < 2**20


def test_copies_that_jobs_use_count_for_the_limit(node: Node) -> None:
    limit = f"--user-gib={500_000 / 2**30}"
    for job in (1, 2, 3):
        said = node.run(node.tar(f"{job}.tar", a=str(job) * 200_000), job, limit)
        assert ("larger than" in said) == (job == 3)
    age(node.link(1), 1)
    node.run(node.tar("3.tar", a="3" * 200_000), 3, limit)
    assert (node.link(3) / "a").exists()
    assert len(node.laid()) == 2


def test_a_share_of_the_disk_is_left_to_all(node: Node) -> None:
    tar = node.tar("env.tar", a="x")
    node.run(tar)
    age(node.link(7), 1)
    said = node.run(node.tar("other.tar", a="y"), 8, "--free-share=1")
    assert "fuller than the site allows" in said
    assert node.laid() == node.parts() == []  # and unused copies make room


def test_the_disk_is_checked_during_large_writes() -> None:
    answers = iter([True, True, False])
    room = content.Room(2**40, lambda: next(answers))
    room.take(2**30)
    room.note(content.LOOK + 1)
    with pytest.raises(content.NotLaid, match="fuller"):
        room.note(content.LOOK + 1)
    with pytest.raises(content.NotLaid, match="is negative"):
        room.take(-5000)


def test_a_copy_that_a_job_has_write_protected_is_evicted(node: Node) -> None:
    node.run(node.tar("env.tar", **{"a/b/c": "x"}))
    laid = node.home / node.laid()[0]
    for path in (laid / "a/b", laid / "a", laid):
        path.chmod(0o500)
    age(node.link(7), 1)
    age(laid, 30)
    node.run(node.tar("other.tar", a="y"), 8)
    assert not laid.exists()
    assert list(node.home.glob("gone-*")) == []


def test_a_clock_that_was_ahead_keeps_no_copy_endlessly(node: Node) -> None:
    node.run(node.tar("env.tar", a="x"))
    for path in (node.link(7), node.home / node.laid()[0], node.store / ".tidied"):
        age(path, -4000)
    hook.tidy_once_a_day(str(node.store), Rules(2**30, 0, 14 * 86400), 10)
    assert node.laid() == []


def test_a_hook_without_time_to_tidy_leaves_it_to_the_next(node: Node) -> None:
    hook.tidy_once_a_day(str(node.store), Rules(2**30, 0, 14 * 86400), 0)
    assert not (node.store / ".tidied").exists()


def test_a_child_that_hangs_does_not_keep_slurmd_s_pipe(node: Node) -> None:
    first = node.begin(slow_tar(node))
    wait_until(lambda: node.home.exists() and node.parts(), every_s=0.002)
    (child,) = Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()
    os.kill(int(child), signal.SIGSTOP)
    handles = Path(f"/proc/{child}/fd")
    assert [os.readlink(handles / name) for name in "01"] == [os.devnull] * 2
    os.kill(int(child), signal.SIGKILL)  # or it would lay the whole
    first.communicate(timeout=150)


def test_a_hook_that_is_killed_leaves_no_process_for_long(node: Node) -> None:
    first = node.begin(slow_tar(node), 7, "--seconds=0.5")
    wait_until(lambda: node.home.exists() and node.parts(), every_s=0.002)
    (child,) = Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()
    os.kill(int(child), signal.SIGSTOP)
    first.kill()
    first.wait()
    time.sleep(1.6)  # its seconds are over, but a stopped process does not know it
    os.kill(int(child), signal.SIGCONT)
    first.communicate(timeout=150)  # until the other end is closed
    assert node.laid() == []


@pytest.mark.parametrize("name", ["store", ".", "shared/link", "store/{uid}"])
def test_the_store_is_not_copied_into_itself(node: Node, name: str) -> None:
    (node.shared / "link").symlink_to(node.store)
    said = node.run(node.store.parent / name.format(uid=USER.pw_uid))
    assert "in the store, or the store in it" in said


def test_a_copy_that_a_crash_may_have_cut_is_not_used_after_it(node: Node) -> None:
    tar = node.tar("env.tar", a="content")
    node.run(tar)
    laid = node.home / node.laid()[0]
    (mark,) = node.home.glob("boot-*")
    (laid / "a").write_text("")  # a name without its content
    mark.unlink()
    mark.symlink_to("another-boot")
    node.run(tar, 8)
    assert (node.link(8) / "a").read_text() == "content"
    shutil.copy(tar, node.shared / "copy.tar")
    (laid / "a").write_text("")
    (mark,) = node.home.glob("boot-*")
    mark.unlink()
    mark.symlink_to("another-boot")
    node.run(node.shared / "copy.tar", 9)
    assert (node.link(9) / "a").read_text() == "content"


def test_a_copy_that_is_on_the_disk_survives_a_crash(node: Node) -> None:
    tar = node.tar("env.tar", a="content")
    node.run(tar)
    (mark,) = node.home.glob("boot-*")
    age(mark, 1)
    node.run(tar, 8)
    assert list(node.home.glob("boot-*")) == []


def test_locks_do_not_pile_up(node: Node) -> None:
    for job in range(3):
        (node.shared / "env.tar").write_text(f"no tar {job}")
        node.run(node.shared / "env.tar", job)
    locks = list(node.home.glob("lock-*"))
    assert len(locks) == 3
    for lock in locks:
        age(lock, 2)
    node.run(node.tar("env.tar", a="x"))
    assert len(list(node.home.glob("lock-*"))) == 1


def test_a_hard_link_to_a_link_or_a_file_is_kept_as_a_hard_link(node: Node) -> None:
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
    copy = node.link(7)
    assert (copy / "hard").stat().st_ino == (copy / "file").stat().st_ino
    assert os.readlink(copy / "other") == "file"
