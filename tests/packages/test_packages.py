"""RPMs and debs, as an administrator meets them: installed, used, upgraded, removed.

Each kind has a root, and its tests follow each other there: a later test needs the earlier tests.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from packages.conftest import NEWER, OLDER, PARTS, Packages
from packages.root import TREE, Root
from waiting import wait_until

# The first test of each kind waits for the packages to be built.
pytestmark = [
    pytest.mark.package,
    pytest.mark.slurm,
    pytest.mark.in_order,
    pytest.mark.timeout(1800),
]
HOME = "/usr/lib/slurm-malleable"
SHARE = "/usr/share/slurm-malleable"
INSTALLED = {"PYTHONPATH": HOME, "PYTHONDONTWRITEBYTECODE": "1"}
LOCK = "/run/slurm-malleable/tick.lock"
# Files of packaging itself: its databases, the system user and results of lists of files.
BOOKS = re.compile(
    r"/var/(lib/(dpkg|rpm|systemd)|cache|log)(/|$)|/root/\.rpmdb"
    r"|/etc/(passwd|group|shadow|gshadow|subuid|subgid)-?$"
    r"|/etc/\.pwd\.lock$|/etc/hosts$|/usr/share/mime/|.*\.dpkg-(old|new|dist)$"
)

# Directories of a system made of RPMs, which this host is not.
SYSTEM = {"/usr/share/licenses", "/usr/lib64/slurm"}


def foreign(root: Root, packages: Packages) -> set[str]:
    """Changed files that belong neither to the packages nor to packaging itself."""
    is_there = root.run(["test", "-e", HOME], check=False).returncode == 0
    owned = packages.contents(root) if is_there else set()
    return {path for path in root.changed() - owned - SYSTEM if not BOOKS.match(path)}


def test_installing_starts_no_service_and_touches_no_file_of_others(
    packages: Packages, root: Root
) -> None:
    before = root.changed()
    said = packages.install(root)
    assert "nothing is switched on" in said
    assert "packages.md" in said
    assert len(said.splitlines()) < 40
    ours = re.compile(rf"{SHARE}/jobpath|{HOME}/.*__pycache__|/var/lib/slurm-malleable$|{SHARE}$")
    stray = {path for path in foreign(root, packages) - before if not ours.match(path)}
    assert stray == set()
    assert root.run(["test", "-e", "/etc/cron.d/slurm-malleable"], check=False).returncode == 1
    assert root.run(["find", "/etc/systemd", "-name", "*malleable*"]).stdout == ""


def test_the_user_and_its_directories_are_there(packages: Packages, root: Root) -> None:
    home = root.run(["getent", "passwd", "slurm-malleable"]).stdout
    assert re.match(r"slurm-malleable:x:\d{3}:\d+:.*:/var/lib/slurm-malleable:\S*nologin", home)
    for path, mode in (("/run/slurm-malleable", "700"), ("/var/lib/slurm-malleable", "755")):
        seen = root.run(["stat", "-c", "%U %a", path]).stdout.split()
        assert seen == ["slurm-malleable", mode]


def test_the_units_hold(packages: Packages, root: Root) -> None:
    units = [f"/usr/lib/systemd/system/slurm-malleable.{kind}" for kind in ("service", "timer")]
    done = root.run(["systemd-analyze", "verify", "--man=no", *units], check=False)
    assert "slurm-malleable" not in done.stdout + done.stderr
    text = root.run(["cat", units[0]]).stdout
    assert "User=slurm-malleable\n" in text
    assert "ExecStart=/usr/bin/malleable reconcile --loop --for 30\n" in text


def test_the_command_needs_only_its_own_directory(packages: Packages, root: Root) -> None:
    root.run(["mkdir", "-p", "/tmp/hostile/rich"])
    root.write("/tmp/hostile/rich/__init__.py", "raise SystemExit('not this one')")
    root.write("/tmp/hostile/sitecustomize.py", "raise SystemExit('nor this')")
    hostile = {"PYTHONPATH": "/tmp/hostile", "PYTHONSTARTUP": "/tmp/hostile/sitecustomize.py"}
    done = root.run(["malleable", "--version"], env=hostile)
    assert done.stdout == f"malleable {OLDER}\n"
    libraries = ("slurm_hooks", "rich", "pulp", "ClusterShell", "filelock")
    where = f"import {', '.join(libraries)}; print([m.__file__ for m in ({', '.join(libraries)})])"
    launcher = root.run(["cat", "/usr/bin/malleable"]).stdout.replace("sys.exit(main())", "")
    printed = root.run(["python3", "-I", "-c", f"{launcher}\n{where}"]).stdout
    assert printed.count(HOME) == 5, printed


def test_every_library_has_its_licence_and_stands_in_the_bill(
    packages: Packages, root: Root
) -> None:
    doc = "/usr/share/doc/slurm-malleable"
    bill = json.loads(root.run(["cat", f"{doc}/sbom.cdx.json"]).stdout)
    names = {part["name"] for part in bill["components"]}
    pinned = re.findall(r"^([\w.-]+)==", (TREE / "packaging/vendor.txt").read_text(), re.M)
    assert names == set(pinned)
    assert all(part["hashes"] and part["licenses"] for part in bill["components"])
    for name in names:
        pattern = re.sub("[-_.]", "?", name)
        asked = f"ls {HOME}/vendor/{pattern}-*.dist-info/ | grep -i 'licen\\|copying'"
        assert root.run(["sh", "-c", asked]).stdout, name
    binaries = root.run(["find", HOME, "-name", "*.so", "-o", "-perm", "/111", "-type", "f"]).stdout
    assert {Path(line).name for line in binaries.split()} <= {"epilog.sh"}


def test_doctor_names_a_page_that_the_packages_carry(packages: Packages, root: Root) -> None:
    said = root.run(["malleable", "doctor", "--explain", "kill-wait"]).stdout
    address = said.split()[-1]
    assert address.startswith("file:///usr/share/doc/slurm-malleable/html/")
    page, anchor = address.removeprefix("file://").split("#")
    assert f'<h3 id="{anchor}">' in root.run(["cat", page]).stdout


def test_a_job_imports_the_client_with_any_python(packages: Packages, root: Root) -> None:
    root.run(["cp", "-rL", f"{SHARE}/jobpath", "/tmp/elsewhere"])  # wherever it lies
    ask = "import slurm_hooks.elastic.engines.entry as e; print(e.__file__)"
    as_user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    for where in (f"{SHARE}/jobpath", "/tmp/elsewhere"):
        env = {"PYTHONPATH": where, "PYTHONDONTWRITEBYTECODE": "1"}
        for python in ("/usr/bin/python3", sys.executable):
            done = root.run([*as_user, python, "-c", ask], env=env)
            assert done.stdout.startswith(where)
        root.run([*as_user, "test", "-x", f"{where}/bin/malleable"])


def test_a_plan_without_any_solver_of_the_host(
    packages: Packages, root: Root, box: dict[str, Any]
) -> None:
    job = submit(root, box, "1-3")
    plan = json.loads(root.run(["malleable", "plan", "--json"], env=box["environment"]).stdout)
    assert len([act for act in plan["actions"] if "grow" in json.dumps(act).lower()]) >= 1
    root.run(["scancel", job], env=box["environment"])


@pytest.fixture(scope="session")
def box(packages: Packages, root: Root) -> dict[str, Any]:
    """A Slurm made of the installed files alone, as `malleable sandbox up --json` tells of it."""
    argv = ["malleable", "sandbox", *base(root), "up", "--nodes", "4", "--json"]
    made = root.run(argv, timeout_s=120)
    record: dict[str, Any] = json.loads(made.stdout)
    # A script that only sleeps would soon be limited to 1 fragment.
    settings = record["environment"]["MALLEABLE_SETTINGS"]
    root.write(settings, root.run(["cat", settings]).stdout + "\n[failures]\njoin_s = 3600\n")
    return record


def base(root: Root) -> list[str]:
    """The place of its sandbox: a path that no sandbox of the host has."""
    return ["--base", f"/tmp/box{root.pid}"]


def submit(root: Root, box: dict[str, Any], request: str) -> str:
    """Submit a job of user `nobody` that sleeps. Return its id."""
    argv = [
        "malleable",
        "sandbox",
        *base(root),
        "run",
        "--user=nobody",
        "--",
        "sbatch",
        "--parsable",
    ]
    argv += [f"--malleable={request}", "--output=/dev/null", "--wrap=exec sleep 600"]
    return root.run(argv, env=box["environment"]).stdout.strip()


def running(root: Root, box: dict[str, Any], job: str) -> list[str]:
    """The nodes of its running fragments, with the seconds since their starts."""
    argv = ["squeue", "--noheader", f"--jobs={job}", "--states=R", "--array", "-o", "%i %N %S"]
    return sorted(root.run(argv, env=box["environment"]).stdout.splitlines())


def test_the_unit_s_user_learns_which_right_it_lacks(
    packages: Packages, root: Root, box: dict[str, Any]
) -> None:
    """It plans with no rights at all, and Slurm refuses its changes unless an administrator
    gives rights.
    """
    job = submit(root, box, "1-2")
    text = root.run(["cat", box["environment"]["MALLEABLE_SETTINGS"]]).stdout
    root.write("/tmp/own.toml", re.sub(r"(?m)^lock = .*$", f'lock = "{LOCK}"', text))
    tick = ["setpriv", "--reuid=slurm-malleable", "--regid=slurm-malleable", "--clear-groups"]
    tick += ["malleable", "reconcile", "--settings", "/tmp/own.toml"]
    done = root.run(tick, env=box["environment"], check=False)
    assert done.returncode == 77, done.stdout + done.stderr
    assert "Administrator of the accounting database" in done.stderr
    assert running(root, box, job) == []
    root.run(["scancel", job], env=box["environment"])


def test_the_client_may_lie_elsewhere(packages: Packages, root: Root) -> None:
    if packages.kind != "rpm":
        pytest.skip("dpkg does not relocate; the directory can be copied")
    (client,) = packages.old.glob("slurm-malleable-client-*.rpm")
    aside = ["--force-debian", "--nodeps", "--dbpath", "/tmp/aside"]
    root.run(["rpm", *aside, "-i", "--prefix", "/srv/apps/malleable", f"/tmp/old/{client.name}"])
    shown = root.run(["readlink", "-f", "/srv/apps/malleable/jobpath"]).stdout
    assert shown.startswith("/srv/apps/malleable/jobpath-")
    root.run(["rpm", *aside, "-e", "slurm-malleable-client"])
    assert root.run(["test", "-e", "/srv/apps/malleable"], check=False).returncode == 1
    root.run(["test", "-e", f"{SHARE}/jobpath/slurm_hooks"])
    root.run(["rmdir", "/srv/apps"])


def test_an_empty_root_gets_files_of_root_alone(packages: Packages, tmp_path: Path) -> None:
    """Like an image that is filled from outside: no scripts, only the files."""
    if packages.kind == "rpm":
        files = [str(path) for path in packages.old.glob("*.rpm")]
        words = ["rpm", "--force-debian", f"--root={tmp_path}", "--nodeps", "--noscripts", "-i"]
        subprocess.run([*words, *files], check=True, timeout=120)
    else:
        for path in packages.old.glob("*.deb"):
            subprocess.run(["dpkg-deb", "--extract", str(path), str(tmp_path)], check=True)
    paths = [path for path in tmp_path.rglob("*") if "rpm" not in path.parts]
    assert {path.lstat().st_uid for path in paths} == {0}
    open_to_all = {path for path in paths if path.lstat().st_mode & 0o022}
    assert {path for path in open_to_all if not path.is_symlink()} == set()
    launcher = tmp_path / "usr/bin/malleable"
    text = launcher.read_text().replace(f'"{HOME}"', f'"{tmp_path}{HOME}"')
    done = subprocess.run(
        ["/usr/bin/python3", "-I", "-", "--version"],
        input=text, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout == f"malleable {OLDER}\n", done.stderr


def test_a_job_grows_and_the_running_job_and_the_tick_outlive_an_upgrade(
    packages: Packages, root: Root, box: dict[str, Any]
) -> None:
    env = box["environment"]
    job = submit(root, box, "1-3")
    root.run(["malleable", "reconcile"], env=env)
    assert wait_until(lambda: len(running(root, box, job)) == 3)
    assert job in root.run(["malleable", "status"], env=env).stdout
    before, path = running(root, box, job), root.run(["readlink", "-f", f"{SHARE}/jobpath"]).stdout
    root.run(["sed", "-i", "1s/^/# ours\\n/", "/etc/slurm-malleable/malleable.toml"])

    tick = slow_tick(root, box)
    try:
        said = packages.install(root, "new")
        with contextlib.suppress(subprocess.TimeoutExpired):
            tick.wait(timeout=3)  # it has given its lock back, and its process ends
        ended = tick.poll()
    finally:
        _, complaints = tick.communicate(timeout=60)
    assert (ended, complaints) == (0, ""), said
    assert "nothing is switched on" not in said  # that is for the first time
    assert root.run(["malleable", "--version"]).stdout == f"malleable {NEWER}\n"
    assert running(root, box, job) == before
    assert root.run(["head", "-n", "1", "/etc/slurm-malleable/malleable.toml"]).stdout == "# ours\n"
    newer = root.run(["readlink", "-f", f"{SHARE}/jobpath"]).stdout
    assert NEWER in newer
    root.run(["test", "-f", f"{path.strip()}/slurm_hooks/elastic/engines/entry.py"])
    root.run(["malleable", "reconcile"], env=env)
    assert running(root, box, job) == before
    root.run(["scancel", job], env=env)


def slow_tick(root: Root, box: dict[str, Any]) -> Any:
    """A tick of the packages' own lock that takes four seconds, begun."""
    root.run(["mkdir", "-p", "/tmp/slow"])
    root.run(["ln", "-sf", "/usr/bin/scontrol", "/tmp/slow/scontrol"])
    root.write("/tmp/slow/squeue", '#!/bin/sh\nsleep 4\nexec /usr/bin/squeue "$@"\n', "755")
    text = root.run(["cat", box["environment"]["MALLEABLE_SETTINGS"]]).stdout
    text = re.sub(r"(?m)^lock = .*$", f'lock = "{LOCK}"', text)
    text = re.sub(r"(?m)^slurm_bin = .*$", 'slurm_bin = "/tmp/slow"', text)
    root.write("/tmp/slow/malleable.toml", text)
    # As a site's root crontab would leave it: the tick's user owns the directory.
    root.run(["chown", "-R", "root:", "/run/slurm-malleable"])
    argv = ["malleable", "reconcile", "--settings", "/tmp/slow/malleable.toml"]
    started = root.start(argv, {"PATH": "/usr/bin:/bin", **box["environment"]})
    is_free = ["flock", "--nonblock", LOCK, "true"]
    assert wait_until(lambda: root.run(is_free, check=False).returncode == 1)
    assert started.poll() is None
    return started


def test_a_training_grows_and_finishes_from_the_installed_example(
    packages: Packages, root: Root, box: dict[str, Any]
) -> None:
    """The demo in short: torchrun finds the client, two fragments form a round, and it ends."""
    work, env = box["work"], box["environment"]
    for name in ("train.py", "train.sh"):
        root.run(["cp", f"{SHARE}/examples/digits/{name}", work])
    path = f"{Path(sys.executable).parent}:{env['PATH']}"
    argv = ["sbatch", f"--chdir={work}", "--parsable", "--malleable=2-2", f"{work}/train.sh"]
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    job = root.run([*nobody, *argv, "--steps=30"], env={**env, "PATH": path}).stdout.strip()
    try:
        result = ["cat", f"{work}/result.json"]
        log = ["sh", "-c", f"tail -n 30 {work}/digits-*.log"]

        def is_done() -> bool:
            root.run(["malleable", "reconcile"], env=env)
            return root.run(result, check=False).returncode == 0

        wait_until(is_done, explain=lambda: root.run(log, check=False).stdout, every_s=2)
        rounds = root.run(["sh", "-c", f"cat {work}/.malleable-65534/*/{job}/rounds.jsonl"]).stdout
        assert json.loads(rounds.splitlines()[0])["size"] == 2
    finally:
        root.run(["scancel", job], env=env)


OF_THE_SOURCE = ("test_ondemand.py", "test_spank_releases.py")  # of its forms, and of other builds


@pytest.mark.skipif("PACKAGES_DEMO" not in os.environ, reason="four minutes: PACKAGES_DEMO=1")
@pytest.mark.timeout(900)  # the only test of all that may take more than five minutes
def test_the_demo_runs_from_the_installed_files(
    packages: Packages, root: Root, box: dict[str, Any]
) -> None:
    argv = [sys.executable, f"{SHARE}/examples/demo/run.py", "--out=/tmp/demo"]
    done = root.run(argv, env=INSTALLED, check=False, timeout_s=800)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.nightly
def test_the_tests_of_the_plugin_pass_on_the_installed_files(
    packages: Packages, root: Root, box: dict[str, Any]
) -> None:
    root.put(TREE / "tests", "/tmp/installed")
    root.put(TREE / "pyproject.toml", "/tmp/installed")
    words = ["-q", "-p", "no:cacheprovider", "-m", "slurm", "-x", "/tmp/installed/tests/spank"]
    words += [f"--ignore=/tmp/installed/tests/spank/{name}" for name in OF_THE_SOURCE]
    done = root.run(
        [sys.executable, "-m", "pytest", "--rootdir=/tmp/installed", *words],
        env=INSTALLED,
        check=False,
        timeout_s=280,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert " passed" in done.stdout


def test_removing_names_the_lines_to_take_out_and_leaves_no_file(
    packages: Packages, root: Root, box: dict[str, Any]
) -> None:
    root.run(["malleable", "sandbox", *base(root), "down", "--all"])
    said = packages.remove(root)
    for word in ("Epilog=", "plugstack.conf", "job_submit.lua", "malleable_policy.lua", "cron.d"):
        assert word in said
    if packages.kind == "deb":
        root.run(["dpkg", "--purge", *(f"slurm-malleable{part}" for part in PARTS)])
        assert root.run(["id", "slurm-malleable"], check=False).returncode != 0
    else:
        root.run(["rm", "-rf", "/etc/slurm-malleable"])  # malleable.toml.rpmsave
    gone = ["find", "/usr", "/etc", "/var", "/run", "-xdev", "-iname", "*malleable*"]
    books = "/var/lib/(dpkg|rpm)/"
    left = [line for line in root.run(gone).stdout.splitlines() if not re.match(books, line)]
    assert left == []
    assert foreign(root, packages) == set()


def test_an_epilog_that_slurm_still_names_is_kept_as_an_empty_script(
    packages: Packages, root: Root
) -> None:
    """Slurm drains every node whose Epilog is missing."""
    epilog = "/usr/libexec/slurm-malleable/epilog.sh"
    root.run(["mkdir", "-p", "/etc/slurm"])
    root.write("/etc/slurm/slurm.conf", f"Epilog={epilog}\n")
    packages.install(root)
    said = packages.remove(root)
    assert "does nothing stays there" in said
    root.run([epilog], env={"SPANK_MALLEABLE": "1", "SLURM_JOB_ID": "1"})
    assert "exit 0" in root.run(["cat", epilog]).stdout
