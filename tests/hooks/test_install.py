"""The result of `make install`: readable by every user, and with paths that exist."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from programs import write_program, write_programs
from slurm_hooks.protocol import jobpath
from slurm_hooks.settings.file import load

TREE = Path(__file__).resolve().parents[2]
needs_compiler = pytest.mark.skipif(
    shutil.which("cc") is None or not Path("/usr/include/slurm/spank.h").exists(),
    reason="the plugin is built with a C compiler and slurm/spank.h",
)
CRON = TREE / "etc" / "cron" / "slurm-malleable"


@pytest.mark.parametrize(
    ("commands", "code", "mailed"),
    [
        ("echo all well; echo odd >&2", 0, ""),
        ("echo busy >&2", 75, ""),
        ("echo no tick for long >&2", 69, "no tick for long\n"),
        ("echo 5 mistakes >&2", 78, "5 mistakes\n"),
        ("true", 0, ""),
    ],
)
def test_cron_mails_failures_alone_and_logs_all(
    tmp_path: Path, commands: str, code: int, mailed: str
) -> None:
    programs = {"malleable": f"{commands}\nexit {code}", "logger": f"cat >{tmp_path}/$2.log"}
    write_programs(tmp_path, programs)
    (line,) = (text for text in CRON.read_text().splitlines() if text.startswith("*"))
    assert "%" not in line  # cron reads it as the end of the line
    command = line.split(" slurm-malleable ", 1)[1].replace("@BINDIR@", str(tmp_path))
    argv = ["env", f"PATH={tmp_path}:/usr/bin:/bin", "/bin/sh", "-c"]
    done = subprocess.run(
        [*argv, command], capture_output=True, text=True, timeout=150, check=False
    )
    assert (done.stdout, done.stderr) == (mailed, "")
    log = tmp_path / "slurm-malleable.log"
    said = re.findall(r"echo ([\w ]+?)(?: >&2|;|$)", commands)
    assert (log.read_text() if log.exists() else "").splitlines() == said


def install(root: Path, **words: str) -> str:
    """Run `make install` as an administrator whose umask hides files from other users."""
    argv = ["make", "-C", str(TREE), "-o", "setup", "install", f"DESTDIR={root}"]
    words["PYTHON"] = sys.executable
    argv += [f"{key}={value}" for key, value in words.items()]
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=200, check=False, umask=0o077
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("installed") / "root"
    said = install(made, BINDIR="/opt/malleable/bin")
    assert "/opt/malleable/bin/malleable, which is not here" in said
    return made


@needs_compiler
def test_all_users_can_read_the_installed_files(root: Path) -> None:
    installed = [path for path in root.rglob("*") if not path.is_symlink()]
    assert len(installed) > 30
    closed = [path for path in installed if path.stat().st_mode & 0o044 != 0o044]
    closed += [path for path in installed if path.is_dir() and path.stat().st_mode & 0o011 != 0o011]
    assert closed == []
    assert (root / "usr/share/man/man8/slurm-malleable.8").is_file()
    jobpath = root / "usr/share/slurm-malleable/jobpath"
    assert (jobpath / "slurm_hooks/elastic/engines/entry.py").exists()
    assert not os.readlink(jobpath).startswith("/")  # DESTDIR is not where it will lie


@needs_compiler
def test_ticks_only_observe_until_a_person_says_more(root: Path) -> None:
    assert load(root / "etc/slurm-malleable/malleable.toml").mode.level == "observe"


@needs_compiler
def test_unit_and_cron_line_name_the_program_that_is_there(root: Path) -> None:
    unit = (root / "usr/lib/systemd/system/slurm-malleable.service").read_text()
    assert re.findall(r"^ExecStart=(.*)$", unit, re.M) == [
        "/opt/malleable/bin/malleable reconcile --loop --for 30"
    ]
    cron = (root / "usr/share/slurm-malleable/cron/slurm-malleable").read_text()
    assert "$(/opt/malleable/bin/malleable reconcile" in cron
    assert "@" not in unit + cron
    assert "SuccessExitStatus=75\n" in unit
    assert "RuntimeDirectoryMode=0700\n" in unit


@needs_compiler
def test_the_program_is_found_in_pip_s_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "malleable"
    program.parent.mkdir()
    write_program(program, "")
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    assert "which is not here" not in install(tmp_path / "root")
    unit = tmp_path / "root/usr/lib/systemd/system/slurm-malleable.service"
    assert f"ExecStart={program} reconcile" in unit.read_text()


def test_a_job_that_starts_during_an_upgrade_has_all_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old versions emptied the directory first. Now its content is kept, and a link is switched."""
    dest = tmp_path / "jobpath"
    old = tmp_path / "jobpath" / "slurm_malleable_elastic-0.0.1.dist-info"  # of an old version
    old.mkdir(parents=True)
    (old / "entry_points.txt").write_text(jobpath.ENTRY_POINTS)
    done = threading.Event()
    holes: list[int] = []

    def start_jobs() -> None:
        while not done.is_set():
            # reads the link once, like an import system that lists the directory
            names = os.listdir(os.path.realpath(dest))
            holes.append(sum(name.endswith(".dist-info") for name in names))

    jobpath.write_job_path(dest)
    reader = threading.Thread(target=start_jobs)
    reader.start()
    try:
        kept = os.path.realpath(dest)
        for version in range(15):
            monkeypatch.setattr(jobpath, "__version__", f"0.1.{version}")
            jobpath.write_job_path(dest)
    finally:
        done.set()
        reader.join(timeout=150)
    assert set(holes) == {1}
    assert Path(
        kept, "slurm_hooks/elastic/engines/entry.py"
    ).exists()  # jobs that began with it go on
    (metadata,) = dest.glob("*.dist-info")
    assert metadata.name == "slurm_malleable_elastic-0.1.14.dist-info"
    assert {path.name.split("-")[0] for path in tmp_path.iterdir()} == {"jobpath"}


def test_packages_inside_are_copied_and_the_same_content_lies_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    for name in jobpath.PACKAGES:
        shutil.copytree(TREE / "slurm_hooks" / name, source / name)
    (source / "elastic" / "inner").mkdir()
    (source / "elastic" / "inner" / "__init__.py").write_text("")
    (source / "elastic" / "__pycache__").mkdir(exist_ok=True)
    (source / "__init__.py").write_text("")
    monkeypatch.setattr(jobpath, "__file__", str(source / "protocol/jobpath.py"))
    for _ in range(2):
        path = jobpath.write_job_path(tmp_path / "out" / "jobpath")
    assert (path / "slurm_hooks/elastic/inner/__init__.py").exists()
    assert not list(path.rglob("__pycache__"))
    assert len(list(path.parent.iterdir())) == 2


def test_directories_made_on_the_way_are_readable_with_any_umask(tmp_path: Path) -> None:
    tmp_path.chmod(0o711)
    before = os.umask(0o077)
    try:
        path = jobpath.write_job_path(tmp_path / "share" / "malleable" / "jobpath")
    finally:
        os.umask(before)
    assert path.parent.stat().st_mode & 0o7777 == 0o755
    assert path.parent.parent.stat().st_mode & 0o7777 == 0o755
    assert path.stat().st_mode & 0o7777 == 0o755
    assert tmp_path.stat().st_mode & 0o7777 == 0o711  # the old content is unchanged
