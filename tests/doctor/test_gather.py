"""Facts of a host: files, plugstack.conf, hard links, an interpreter."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from known_sites import GOOD_SITE, answer, says

from captured_slurm import Recorded, recorded
from programs import write_program
from slurm_hooks.doctor.catalogue import CHECKS
from slurm_hooks.doctor.facts import Unread, known
from slurm_hooks.doctor.finding import Run
from slurm_hooks.doctor.gather import files
from slurm_hooks.doctor.gather.cgroups import read_cgroups
from slurm_hooks.doctor.gather.controller import cron_user, hooks, runs_cron, submission
from slurm_hooks.doctor.gather.job import ask_job
from slurm_hooks.doctor.gather.plugstack import ARGUMENTS, read_plugstack
from slurm_hooks.doctor.gather.python import ask_python
from slurm_hooks.doctor.gather.shared import file_system, job_directory, try_links
from slurm_hooks.doctor.gather.site import Asked, gather
from slurm_hooks.doctor.gather.slurm import ask_accounting, read_slurm
from slurm_hooks.doctor.run import run
from slurm_hooks.errors import UsageError
from slurm_hooks.settings.values import Settings, Site
from slurm_hooks.slurm.live import Asked as Made
from slurm_hooks.slurm.text import Command

ROOT = os.geteuid() == 0


def test_lines_continue_and_files_are_included(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.conf").write_text("B=2 # two\n")
    conf = tmp_path / "slurm.conf"
    conf.write_text("# head\nA=1 \\\n  C=3\n\ninclude more/*.conf\nD=4\n")
    conf_lines = files.configuration(conf)
    assert [(line.text.split(), line.number, line.lines) for line in conf_lines] == [
        (["A=1", "C=3"], 2, 2),
        (["B=2"], 1, 1),
        (["D=4"], 6, 1),
    ]


def test_a_file_that_includes_itself_ends(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(f"A=1\ninclude {conf}\n")
    assert len(files.configuration(conf)) == files.DEEPEST_INCLUDE + 1


def test_an_unreadable_file_has_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = files.attempt(lambda: files.read_text(tmp_path / "none"))
    assert isinstance(missing, Unread)
    assert "none: No such file" in missing.because
    os.mkfifo(tmp_path / "pipe")
    pipe = files.attempt(lambda: files.read_text(tmp_path / "pipe"))
    assert isinstance(pipe, Unread)
    assert "not a plain file" in pipe.because
    odd = files.attempt(lambda: int("one"))
    assert isinstance(odd, Unread)
    assert odd.because.startswith("it cannot be read: ValueError: ")
    monkeypatch.setattr(files, "PATIENCE_S", 0.05)
    assert files.attempt(lambda: time.sleep(0.5)) == Unread("no answer within 0 s")
    assert files.attempt(lambda: time.sleep(0.1) or "late", commands_s=5) == "late"


def test_a_directory_that_others_cannot_enter(tmp_path: Path) -> None:
    inner = tmp_path / "closed" / "script"
    inner.parent.mkdir(mode=0o700)
    inner.write_text("")
    inner.chmod(0o755)
    seen = files.see(inner)
    assert seen is not None
    assert not seen.is_reachable
    assert not seen.is_for_all
    assert files.see(tmp_path / "none") is None


def test_plugstack_beside_slurm_conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spank_pyxis.so").write_bytes(b"\x7fELF\x00pyxis\x000.20.0\x00")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "x.conf").write_text(
        f"required {tmp_path}/malleable.so pythonpath={tmp_path} dir=/s/%A "
        f"env_store={tmp_path}/d odd=1\n"
    )
    (tmp_path / "plugstack.conf").write_text(
        f"include d/*.conf\noptional {tmp_path}/spank_pyxis.so\n"
    )
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    stack = read_plugstack(says())
    assert stack.path == str(tmp_path / "plugstack.conf")
    assert stack.pyxis_version == (0, 20, 0)
    assert stack.ours is not None
    assert stack.ours.is_required
    assert stack.ours.plugin_file is None
    assert stack.ours.tested == ()
    (tmp_path / "malleable.so").write_bytes(b"\0malleable: tested with Slurm 2205, 2411\0x")
    loaded = read_plugstack(says()).ours
    assert loaded is not None
    assert loaded.tested == ((22, 5), (24, 11))
    assert stack.ours.where.file == str(tmp_path / "d" / "x.conf")
    assert stack.ours.unknown == ("odd",)
    store = f"{tmp_path}/d"
    named = {"pythonpath": str(tmp_path), "dir": "/s/%A", "env_store": store}
    assert stack.ours.arguments == named
    assert stack.ours.env_store_file == files.see(tmp_path / "d")
    assert stack.ours.job_path_file is not None


def test_the_arguments_belong_to_the_plugin() -> None:
    source = Path(__file__).resolve().parents[2] / "plugins" / "spank" / "settings.c"
    table = source.read_text().partition("arguments[] = {")[2].partition("};")[0]
    assert tuple(re.findall(r'\{"(\w+)="', table)) == ARGUMENTS


def test_cgroup_conf_is_read_as_slurmd_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    assert read_cgroups(says()).settings == {}
    text = "# ours\nConstraindevices=YES # GPUs\nConstrainRAMSpace = yes\n"
    (tmp_path / "cgroup.conf").write_text(text)
    cgroups = read_cgroups(says())
    assert cgroups.path == str(tmp_path / "cgroup.conf")
    assert cgroups.settings == {"constraindevices": "YES", "constrainramspace": "yes"}


def test_a_missing_plugstack_is_reported_at_its_expected_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    stack = read_plugstack(says(config={"SLURM_CONF": str(tmp_path / "slurm.conf")}))
    assert (stack.path, stack.ours) == (str(tmp_path / "plugstack.conf"), None)
    assert stack.directory == "/usr/lib64/slurm"


def test_a_configless_node_has_plugstack_in_its_spool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_CONF", raising=False)
    cache = tmp_path / "conf-cache"
    cache.mkdir()
    (cache / "plugstack.conf").write_text("optional malleable.so pythonpath=/x\n")
    config = {"SlurmdSpoolDir": str(tmp_path), "SLURM_CONF": str(tmp_path / "none" / "slurm.conf")}
    stack = read_plugstack(says(config=config))
    assert stack.path == str(cache / "plugstack.conf")
    assert stack.ours is not None
    assert stack.ours.plugin == "/usr/lib64/slurm/malleable.so"


@pytest.mark.parametrize(
    ("named", "wanted"),
    [
        ("%w/.malleable-%U/%C/%A", "/here"),
        ("/scratch/.malleable-%U/%A", "/scratch"),
        ("/scratch/%U/%A", "/scratch"),
    ],
)
def test_the_directory_of_a_job(named: str, wanted: str) -> None:
    assert job_directory(named, Path("/here")) == Path(wanted)


def test_hard_links_work_here(tmp_path: Path) -> None:
    seen = try_links(tmp_path)
    assert (seen.trouble, seen.winners, seen.no_locks) == ("", 1, "")
    assert list(tmp_path.iterdir()) == []


def test_links_that_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_one: object, _two: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    assert try_links(tmp_path).trouble == "link: Operation not permitted"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not ROOT, reason="only root can do harm there")
def test_root_makes_no_file_in_a_directory_of_others(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65534)
    with pytest.raises(UsageError, match="as the user whose jobs run there"):
        try_links(tmp_path)
    os.chown(tmp_path, 0, 0)
    tmp_path.chmod(0o777)
    with pytest.raises(UsageError, match="not root's"):
        try_links(tmp_path)


def test_the_file_system_of_a_path(tmp_path: Path) -> None:
    mounts = [
        "1 0 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw",
        f"2 1 0:5 / {tmp_path} rw,nosuid - nfs4 server:/x rw,vers=4.2,acdirmax=30",
        f"3 1 0:6 / {tmp_path}-other rw - tmpfs none rw",
        "odd",
    ]
    kind, options = file_system(tmp_path, mounts)
    assert (kind, options) == ("nfs4", "rw,nosuid,rw,vers=4.2,acdirmax=30")
    assert file_system(Path("/"), mounts)[0] == "ext4"


# As printed by a real slurmdbd with MariaDB behind it (22.05.8).
PRINTED = {
    "qos": "Name|Preempt|PreemptMode|GraceTime|UsageFactor|MaxSubmitPU|MaxSubmitPA|GrpSubmit\n"
    "normal|low|cluster|00:00:00|1.000000|||\nlow||cluster|00:00:00|1.000000|10||\n",
    "assoc": "Cluster|Account|User|Partition|MaxSubmit|GrpSubmit\n"
    "dbd|root||||\ndbd|root|root|||\ndbd|physics||||30\ndbd|physics|games||20|\n",
    "user": "User|Admin\ngames|None\nroot|Administrator\n",
}


class Dbd:
    """A port whose sacctmgr prints captured output."""

    def __init__(self) -> None:
        self.asked: list[Made] = []

    def ask(self, command: Command) -> str:
        assert "--readonly" in command.argv
        return PRINTED[command.argv[-2]]


def test_accounting_in_the_form_of_sacctmgr() -> None:
    accounting = ask_accounting(Dbd())
    assert accounting.levels == {"games": "None", "root": "Administrator"}
    facts = replace(
        GOOD_SITE,
        accounting=accounting,
        settings=Settings(site=Site(qos="low")),
        slurm=says(config={"PreemptType": "preempt/qos"}),
    )
    outcomes = {o.check.id: o for o in run(CHECKS, facts, is_before=False)}
    assert outcomes["preempt-qos"].word == "ok"
    assert [
        finding.seen.split(" is below")[0] for finding in outcomes["submit-limits"].findings
    ] == [
        "qos low: MaxSubmitPU=10",
        "association physics/games: MaxSubmit=20",
        "association physics: GrpSubmit=30",
    ]


def test_the_wanted_policy_is_the_rendered_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The policy contains the QOS and their limits, so output of `malleable render lua` passes the
    check.

    The accounting database gets the time limit of a command.
    """
    monkeypatch.setattr(files, "PATIENCE_S", 0.05)
    printed = "low||cluster|||10||\nnormal|low|cluster|||20||\n"

    class Qos(Dbd):
        def ask(self, command: Command) -> str:
            time.sleep(0.2)
            return printed

    said = answer({"PreemptType": "preempt/qos", "SLURM_CONF": str(tmp_path / "slurm.conf")},
                  {"PreemptMode": "OFF"})  # fmt: skip
    settings = Settings(site=Site(qos="low"))
    policies = submission(settings, read_slurm(said, ["malleable"]), said, Qos())
    assert 'submit_limits = {["low"] = {all = 10}' in str(policies.wanted)
    assert "unfit = {}," in str(policies.wanted)


def test_a_script_gets_the_time_that_a_command_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Recorded):
        def ask(self, command: Command) -> str:
            if "write" in command.argv:
                time.sleep(0.2)
                return "#!/bin/sh"
            return "JobId=5" if "job" in command.argv else super().ask(command)

    monkeypatch.setattr(files, "PATIENCE_S", 0.05)
    assert ask_job(Slow(recorded("running").answers), Settings(), 5).script == "#!/bin/sh"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('[mode]\nnodes = ["n[1-"]\n', "write Nodes=NAMES at a partition of malleable jobs only"),
        ('[plan]\nobjective = "nobodys"\n', "no installed package has it"),
    ],
)
def test_settings_that_no_tick_would_take(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "malleable.toml"
    path.write_text(f'{text}[tick]\nslurm_bin = "{tmp_path}"\n')
    (complaint,) = gather(Asked(path)).settings_faults
    assert fault in complaint


def test_an_interpreter_is_described_without_importing_torch(tmp_path: Path) -> None:
    packages = tmp_path / "path"
    info = packages / "slurm_malleable-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: slurm-malleable\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[torchrun.handlers]\nmalleable = a:b\n")
    (packages / "torch").mkdir()
    (packages / "torch" / "__init__.py").write_text("raise SystemExit('imported')")
    (packages / "torch" / "distributed" / "elastic" / "rendezvous").mkdir(parents=True)
    torch = packages / "torch-2.7.0.dist-info"
    torch.mkdir()
    (torch / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.7.0\n")
    seen = ask_python("/usr/bin/python3" if ROOT else sys.executable, str(packages))
    assert seen.torch == "2.7.0"
    assert seen.has_rendezvous
    assert "malleable" in seen.handlers
    assert seen.version >= (3, 9)


def test_each_of_several_epilogs_is_read(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("exit 0\n")
    config = {"Epilog[0]": str(own), "Epilog[1]": "/nowhere/slurm-malleable/epilog.sh"}
    epilogs = hooks(says(config=config))
    assert [(hook.value, hook.text) for hook in epilogs] == [
        (str(own), "exit 0\n"),
        ("/nowhere/slurm-malleable/epilog.sh", None),
    ]


def test_a_program_that_is_no_interpreter(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not an interpreter"):
        ask_python(str(tmp_path / "python"), "")


@pytest.mark.skipif(not ROOT, reason="only root runs too much")
@pytest.mark.parametrize("which", ["file", "directory", "link"])
def test_root_runs_no_program_that_others_could_have_written(tmp_path: Path, which: str) -> None:
    place = tmp_path / "bin"
    place.mkdir()
    trace = tmp_path / "ran"
    script = write_program(place / "python", f"touch {trace}")
    if which == "file":
        os.chown(script, 65534, 65534)
    elif which == "directory":
        place.chmod(0o777)
    else:
        os.chown(script, 65534, 65534)
        (tmp_path / "python").symlink_to(script)
        script = tmp_path / "python"
    with pytest.raises(UsageError, match="as the user of that environment"):
        ask_python(str(script), "")
    assert not trace.exists()


def test_the_user_of_the_cron_line_is_the_one_that_doctor_s_command_writes() -> None:
    shipped = Path(__file__).parents[2] / "etc" / "cron" / "slurm-malleable"
    assert cron_user(shipped.read_text()) == "slurm-malleable"
    (check,) = (check for check in CHECKS if check.id == "rights")
    by_cron = replace(known(GOOD_SITE.tick), timer="", cron="/etc/cron.d/x", user="bob")
    (outcome,) = run([check], replace(GOOD_SITE, tick=by_cron), is_before=False)
    (finding,) = outcome.findings
    (command,) = (
        fix.command for fix in finding.fixes if isinstance(fix, Run) and "told" in fix.command
    )
    here = command.replace("/usr/share/slurm-malleable/cron/slurm-malleable", str(shipped))
    written = subprocess.check_output(["sh", "-c", here.split(" >")[0]], text=True)
    assert cron_user(written) == "slurm"


@pytest.mark.parametrize(
    ("names", "runs"),
    [
        ({"1": "init", "7": "cron"}, True),
        ({"1": "init", "7": "cronometer"}, False),
        ({"7": "a"}, True),
    ],
)
def test_a_cron_daemon_is_seen_among_the_processes(
    names: dict[str, str], runs: bool, tmp_path: Path
) -> None:
    for number, name in names.items():
        (tmp_path / number).mkdir()
        (tmp_path / number / "comm").write_text(f"{name}\n")
    assert runs_cron(tmp_path) is runs


def test_this_host_s_processes_can_be_read() -> None:
    assert files.text_or_none(Path("/proc/self/comm"))
