"""RPMs and debs, as an administrator meets them: installed, used, upgraded, removed.

Each kind has one root, and the tests follow each other in it: a later one needs the earlier ones.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from packages.conftest import NEWER, Packages
from packages.root import TREE, Root
from slurm_hooks import __version__
from waiting import wait_until

pytestmark = [pytest.mark.package, pytest.mark.slurm]
HOME = "/usr/lib/slurm-malleable"
SHARE = "/usr/share/slurm-malleable"
INSTALLED = {"PYTHONPATH": HOME, "PYTHONDONTWRITEBYTECODE": "1"}
LOCK = "/run/slurm-malleable/tick.lock"
# What packaging itself writes: its databases, the system user and what is made of lists of files.
BOOKS = re.compile(
    r"/var/(lib/(dpkg|rpm|systemd)|cache|log)(/|$)|/root/\.rpmdb|/etc/(passwd|group|shadow|gshadow)-?$"
    r"|/etc/\.pwd\.lock$|/etc/hosts$|/usr/share/mime/|.*\.dpkg-(old|new|dist)$"
)

# Directories of a system made of RPMs, which this host is not.
SYSTEM = {"/usr/share/licenses", "/usr/lib64/slurm"}


def foreign(root: Root, packages: Packages) -> set[str]:
    """What has changed and neither belongs to the packages nor to packaging itself."""
    owned = packages.contents(root) if root.run(["test", "-e", HOME], check=False) else set()
    return {path for path in root.changed() - owned - SYSTEM if not BOOKS.match(path)}


def test_installing_switches_nothing_on_and_touches_no_file_of_others(
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
    for path, mode in (("/run/slurm-malleable", "700"), ("/var/lib/slurm-malleable", "750")):
        seen = root.run(["stat", "-c", "%U %a", path]).stdout.split()
        assert seen == ["slurm-malleable", mode]


def test_the_units_hold(packages: Packages, root: Root) -> None:
    units = [f"/usr/lib/systemd/system/slurm-malleable.{kind}" for kind in ("service", "timer")]
    done = root.run(["systemd-analyze", "verify", "--man=no", *units], check=False)
    assert "slurm-malleable" not in done.stdout + done.stderr
    text = root.run(["cat", units[0]]).stdout
    assert "User=slurm-malleable\n" in text
    assert "ExecStart=/usr/bin/malleable reconcile\n" in text


def test_the_command_needs_nothing_but_its_own_directory(packages: Packages, root: Root) -> None:
    root.run(["mkdir", "-p", "/tmp/hostile/rich"])
    root.write("/tmp/hostile/rich/__init__.py", "raise SystemExit('not this one')")
    root.write("/tmp/hostile/sitecustomize.py", "raise SystemExit('nor this')")
    hostile = {"PYTHONPATH": "/tmp/hostile", "PYTHONSTARTUP": "/tmp/hostile/sitecustomize.py"}
    done = root.run(["malleable", "--version"], env=hostile)
    assert done.stdout == f"malleable {__version__}\n"
    where = "import sys; print({m.__file__ for n, m in sys.modules.items() if n in wanted})"
    wanted = "wanted = 'slurm_hooks rich pulp ClusterShell filelock'.split()"
    launcher = root.run(["cat", "/usr/bin/malleable"]).stdout.replace("sys.exit(main())", "")
    found = root.run(["python3", "-I", "-c", f"{launcher}\n{wanted}\n{where}"]).stdout
    assert found.count(HOME) == 5, found


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


def test_a_job_imports_the_client_with_any_python(packages: Packages, root: Root) -> None:
    root.run(["cp", "-rL", f"{SHARE}/jobpath", "/tmp/elsewhere"])  # wherever it lies
    ask = "import slurm_hooks.elastic.engines.entry as e; print(e.__file__)"
    as_user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    for where in (f"{SHARE}/jobpath", "/tmp/elsewhere"):
        env = {"PYTHONPATH": where, "PYTHONDONTWRITEBYTECODE": "1"}
        for python in ("/usr/bin/python3", sys.executable):
            done = root.run([*as_user, python, "-c", ask], env=env)
            assert done.stdout.startswith(where)


@pytest.mark.parametrize("solver", ["auto", "highs", "cbc"])
def test_a_plan_without_any_solver_of_the_host(
    packages: Packages, root: Root, box: dict[str, Any], solver: str
) -> None:
    """Where the solver asked for is missing, the answer says so, and there is one."""
    job = submit(root, box, "1-3")
    settings = root.run(["cat", box["environment"]["MALLEABLE_SETTINGS"]]).stdout
    root.write("/tmp/solver.toml", f'{settings}\n[plan]\nsolver = "{solver}"\n')
    asked = ["malleable", "plan", "--settings", "/tmp/solver.toml", "--json"]
    plan = json.loads(root.run(asked, env=box["environment"]).stdout)
    assert len([act for act in plan["actions"] if "grow" in json.dumps(act).lower()]) >= 1
    said = json.dumps(plan["solve"])
    assert solver == "auto" or f"no solver {solver} on this host" in said, said
    root.run(["scancel", job], env=box["environment"])


@pytest.fixture(scope="session")
def box(packages: Packages, root: Root) -> dict[str, Any]:
    """A Slurm made of the installed files alone, as `malleable sandbox up --json` tells of it."""
    made = root.run(["malleable", "sandbox", "up", "--nodes", "4", "--json"], timeout_s=120)
    found: dict[str, Any] = json.loads(made.stdout)
    return found


def submit(root: Root, box: dict[str, Any], request: str) -> str:
    """A job of user nobody that sleeps; its id."""
    argv = ["malleable", "sandbox", "run", "--user", "nobody", "--", "sbatch", "--parsable"]
    argv += [f"--malleable={request}", "--output=/dev/null", "--wrap=exec sleep 600"]
    return root.run(argv, env=box["environment"]).stdout.strip()


def running(root: Root, box: dict[str, Any], job: str) -> list[str]:
    """The nodes of its running fragments, with the seconds since their starts."""
    argv = ["squeue", "--noheader", f"--jobs={job}", "--states=R", "--array", "-o", "%i %N %S"]
    return sorted(root.run(argv, env=box["environment"]).stdout.splitlines())


def test_a_job_grows_and_the_running_one_and_the_tick_outlive_an_upgrade(
    packages: Packages, root: Root, box: dict[str, Any]
) -> None:
    env = box["environment"]
    job = submit(root, box, "1-3")
    root.run(["malleable", "reconcile"], env=env)
    assert wait_until(lambda: len(running(root, box, job)) == 3, 30)
    assert job in root.run(["malleable", "status"], env=env).stdout
    before, path = running(root, box, job), root.run(["readlink", "-f", f"{SHARE}/jobpath"]).stdout
    root.run(["sed", "-i", "1s/^/# ours\\n/", "/etc/slurm-malleable/malleable.toml"])

    tick = slow_tick(root, box)
    said = packages.install(root, "new")
    ended = tick.poll()
    _, complaints = tick.communicate(timeout=30)
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
    root.run(["chown", "root:", "/run/slurm-malleable"])
    argv = ["malleable", "reconcile", "--settings", "/tmp/slow/malleable.toml"]
    started = root.start(argv, {"PATH": "/usr/bin:/bin", **box["environment"]})
    assert wait_until(
        lambda: root.run(["test", "-s", f"{LOCK}.holder"], check=False).returncode == 0, 20
    )
    time.sleep(0.5)
    assert started.poll() is None
    return started


def test_the_tests_of_the_plugin_pass_on_the_installed_files(
    packages: Packages, root: Root, box: dict[str, Any]
) -> None:
    root.put(TREE / "tests", "/tmp/installed")
    root.put(TREE / "pyproject.toml", "/tmp/installed")
    words = ["-q", "-p", "no:cacheprovider", "-m", "slurm", "-x", "/tmp/installed/tests/spank"]
    done = root.run(
        [sys.executable, "-m", "pytest", "--rootdir=/tmp/installed", *words],
        env=INSTALLED,
        check=False,
        timeout_s=280,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert " passed" in done.stdout


def test_removing_says_what_to_take_out_and_leaves_nothing(
    packages: Packages, root: Root, box: dict[str, Any]
) -> None:
    root.run(["malleable", "sandbox", "down", "--all"])
    said = packages.remove(root)
    for word in ("Epilog=", "plugstack.conf", "job_submit.lua", "malleable_policy.lua", "cron.d"):
        assert word in said
    if packages.kind == "deb":
        root.run(["dpkg", "--purge", "slurm-malleable"])
        assert root.run(["id", "slurm-malleable"], check=False).returncode != 0
    else:
        root.run(["rm", "-r", "/etc/slurm-malleable"])  # malleable.toml.rpmsave
    gone = ["find", "/usr", "/etc", "/var", "/run", "-xdev", "-iname", "*malleable*"]
    books = "/var/lib/(dpkg|rpm)/"
    left = [line for line in root.run(gone).stdout.splitlines() if not re.match(books, line)]
    assert left == []
    assert foreign(root, packages) == set()


def test_an_epilog_that_slurm_still_names_stays_as_one_that_does_nothing(
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
