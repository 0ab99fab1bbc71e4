"""The files, programs and refusals of a sandbox, without starting it."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_hooks.commands import sandbox as cli
from slurm_hooks.errors import MissingProgram, UnreadableOutput, UsageError
from slurm_hooks.sandbox import SandboxSpec, accounting, project
from slurm_hooks.sandbox.commands import additions, clean_environment
from slurm_hooks.sandbox.config import render_conf
from slurm_hooks.sandbox.installation import Installation, find_installation, parse_version
from slurm_hooks.sandbox.processes import Process
from slurm_hooks.sandbox.record import Record, read_record, write_record
from slurm_hooks.sandbox.spec import Layout, Preemption
from slurm_hooks.settings import values as settings

LAYOUT = Layout(Path("/b/sb1"), "alice", 20000, 20001, is_loopback_only=True)


def slurm(*version: int) -> Installation:
    return Installation(Path("/usr/bin"), Path("/usr/sbin"), Path("/usr/sbin"), None, version)


def conf_lines(spec: SandboxSpec, layout: Layout = LAYOUT) -> list[str]:
    return render_conf(spec, slurm(22, 5, 8), layout)["slurm.conf"].splitlines()


@pytest.mark.parametrize(
    ("version", "cgroup"),
    [
        ((22, 5, 8), None),
        ((23, 11, 4), None),
        ((24, 5, 2), "CgroupPlugin=disabled\n"),
        ((24, 11, 5), "CgroupPlugin=disabled\n"),
        ((26, 5, 5), "CgroupPlugin=disabled\n"),
    ],
)
def test_cgroups_are_disabled_where_slurm_can_do_it(version, cgroup):
    assert render_conf(SandboxSpec(), slurm(*version), LAYOUT).get("cgroup.conf") == cgroup


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        (
            SandboxSpec(nodes=8),
            "NodeName=n[1-8] NodeHostname=localhost NodeAddr=127.0.0.1 Port=20001-20008 "
            "CPUs=2 RealMemory=2000",
        ),
        (
            SandboxSpec(nodes=1, cpus=4, memory_mib=500),
            "NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port=20001 "
            "CPUs=4 RealMemory=500",
        ),
        (SandboxSpec(), "SlurmctldHost=localhost(127.0.0.1)"),
        (SandboxSpec(), "SlurmctldPort=20000"),
        (SandboxSpec(), "SlurmUser=alice"),
        (SandboxSpec(), "AuthInfo=socket=/b/sb1/run/munge.sock"),
        (SandboxSpec(), "SlurmdSpoolDir=/b/sb1/spool/%n"),
        (SandboxSpec(), "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny"),
        (SandboxSpec(kill_wait_s=9), "KillWait=9"),
        (SandboxSpec(), "JobFileAppend=1"),
        (SandboxSpec(nodes=65), "MessageTimeout=30"),
        (SandboxSpec(lua_dir=Path("/lua")), "JobSubmitPlugins=lua"),
        (SandboxSpec(epilog=Path("/h/epilog.sh")), "Epilog=/b/sb1/etc/epilog.sh"),
        (
            SandboxSpec(backfill_interval_s=5),
            "SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1,"
            "bf_interval=5,bf_continue",
        ),
    ],
)
def test_slurm_conf_has_the_line(spec, line):
    assert line in conf_lines(spec)


GPUS = SandboxSpec(nodes=5, cpus=8, memory_mib=800, gpus=4, gpu_types=("a100", "h100"))
BY_QOS = replace(GPUS, is_accounting=True, preemption=Preemption.QOS)
LARGE = SandboxSpec(nodes=3, cpus=8, memory_mib=800, gpus=8, large_nodes=1)


@pytest.mark.parametrize(
    ("spec", "name", "start"),
    [
        (GPUS, "slurm.conf", "NodeName=n[1-2] NodeHostname=localhost NodeAddr=127.0.0.1 "),
        (GPUS, "slurm.conf", "SelectTypeParameters=CR_Core_Memory"),
        (GPUS, "slurm.conf", "DefMemPerCPU=100"),
        (GPUS, "gres.conf", "NodeName=n[1-2] Name=gpu Type=a100 File=/b/sb1/dev/gpu[0-3]"),
        (GPUS, "gres.conf", "NodeName=n[3-5] Name=gpu Type=h100 File=/b/sb1/dev/gpu[0-3]"),
        (LARGE, "gres.conf", "NodeName=n3 Name=gpu File=/b/sb1/dev/gpu[0-15]"),
        (GPUS, "malleable.toml", 'partitions = ["malleable", "parts"]'),
        (GPUS, "malleable.toml", 'part_nodes = "parts"'),
        (BY_QOS, "malleable.toml", 'partitions = ["malleable"]'),
    ],
)
def test_with_gpus_a_file_has_the_line(spec, name, start):
    lines = render_conf(spec, slurm(22, 5, 8), LAYOUT)[name].splitlines()
    assert [line for line in lines if line.startswith(start)]


def test_gpus_stand_at_the_end_of_the_line_of_their_nodes():
    lines = [line for line in conf_lines(LARGE) if line.startswith("NodeName=")]
    assert [line.partition("RealMemory=")[2] for line in lines] == [
        "800 Gres=gpu:8",
        "1600 Gres=gpu:16 Feature=large",
    ]


def test_without_gpus_no_line_names_parts():
    files = render_conf(SandboxSpec(), slurm(22, 5, 8), LAYOUT)
    assert "gres.conf" not in files
    assert not [text for text in files.values() if "parts" in text or "CR_Core_Memory" in text]


@pytest.mark.parametrize("word", ["JobSubmitPlugins", "Prolog", "Epilog", "MessageTimeout"])
def test_slurm_conf_leaves_out_parts_without_a_request(word):
    assert not [line for line in conf_lines(SandboxSpec()) if line.startswith(word)]


def test_daemons_bind_everywhere_where_the_host_name_does_not_resolve():
    lines = conf_lines(SandboxSpec(), replace(LAYOUT, is_loopback_only=False))
    assert not [line for line in lines if line.startswith("CommunicationParameters")]


ACCOUNTING = SandboxSpec(is_accounting=True, preemption=Preemption.QOS)
WITH_ACCOUNTING = replace(LAYOUT, accounting_port=19999)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("slurm.conf", "PreemptType=preempt/qos"),
        ("slurm.conf", "AccountingStoragePort=19999"),
        ("slurm.conf", "AccountingStoragePass=/b/sb1/run/munge.sock"),
        ("slurmdbd.conf", "DbdPort=19999"),
        ("slurmdbd.conf", "StorageUser=alice"),
    ],
)
def test_accounting_has_the_line(name, line):
    files = render_conf(ACCOUNTING, slurm(22, 5, 8), WITH_ACCOUNTING)
    assert line in files[name].splitlines()


def test_gpus_are_accounted_for_where_there_is_accounting():
    line = "AccountingStorageTRES=gres/gpu"
    for layout, is_there in ((WITH_ACCOUNTING, True), (LAYOUT, False)):
        conf = render_conf(GPUS, slurm(22, 5, 8), layout)["slurm.conf"].splitlines()
        assert (line in conf) is is_there


def test_without_accounting_no_line_names_it():
    files = render_conf(SandboxSpec(), slurm(22, 5, 8), LAYOUT)
    assert "slurmdbd.conf" not in files
    assert "Accounting" not in files["slurm.conf"]


def test_preemption_by_qos_needs_accounting():
    with pytest.raises(UsageError, match="preemption by QOS needs is_accounting"):
        SandboxSpec(preemption=Preemption.QOS)


def test_accounting_that_is_not_installed_names_the_packages(tmp_path):
    bare = replace(slurm(22, 5, 8), prefix=("chroot", str(tmp_path)))
    with pytest.raises(MissingProgram, match="mariadb-server slurmdbd"):
        accounting.check_installed(bare)


def test_the_ports_of_a_record_begin_with_slurmdbd_s():
    assert Record(WITH_ACCOUNTING, slurm(22, 5, 8), 2).ports == range(19999, 20003)


def test_extra_files_lie_beside_slurm_conf():
    spec = SandboxSpec(extra_files=(("topology.conf", "SwitchName=s Nodes=n1\n"),))
    assert render_conf(spec, slurm(22, 5, 8), LAYOUT)["topology.conf"].startswith("SwitchName=s")


def test_extra_conf_is_last_and_whole():
    assert conf_lines(SandboxSpec(extra_conf="A=1\nB=2\n"))[-2:] == ["A=1", "B=2"]


def test_only_the_malleable_partition_can_be_preempted():
    partitions = {
        line.split()[0]: line.split() for line in conf_lines(SandboxSpec()) if "Partition" in line
    }
    assert "PreemptMode=OFF" in partitions["PartitionName=main"]
    assert {"PreemptMode=REQUEUE", "GraceTime=0"} <= set(partitions["PartitionName=malleable"])


def test_parts_have_the_lowest_tier_and_no_partition_is_exclusive():
    lines = [line for line in conf_lines(GPUS) if line.startswith("PartitionName=")]
    partitions = [dict(word.split("=") for word in line.split()) for line in lines]
    assert [(words["PartitionName"], words["PriorityTier"]) for words in partitions] == [
        ("main", "10"),
        ("malleable", "2"),
        ("parts", "1"),
    ]
    assert {words["OverSubscribe"] for words in partitions} == {"NO"}
    assert [words["PreemptMode"] for words in partitions] == ["OFF", "REQUEUE", "REQUEUE"]


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"gpus": 4}, "cpus=2 must be at least gpus=4"),
        ({"gpus": -1}, "gpus=-1 must be from 0 to 64"),
        ({"gpu_types": ("a100",)}, "gpu_types needs gpus"),
        ({"gpus": 1, "nodes": 1, "gpu_types": ("a", "b")}, "gpu_types has 2 types for 1 node"),
        ({"gpus": 1, "gpu_types": ("a=b",)}, "gpu_types has 'a=b'"),
    ],
)
def test_gpus_that_cannot_be_are_refused(fields, fault):
    with pytest.raises(UsageError, match=fault):
        SandboxSpec(**fields)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (SandboxSpec(), None),
        (
            SandboxSpec(spank=Path("/x/malleable.so"), job_path=Path("/x/jobpath")),
            "optional /b/sb1/etc/malleable.so pythonpath=/b/sb1/jobpath "
            "max_restarts=1000 dir=%w/.malleable-%U/%C/%A\n",
        ),
        (
            SandboxSpec(spank=Path("/x/malleable.so"), max_restarts=7, job_dir="/s/%A"),
            "optional /b/sb1/etc/malleable.so max_restarts=7 dir=/s/%A\n",
        ),
    ],
)
def test_plugstack_conf(spec, text):
    assert render_conf(spec, slurm(22, 5, 8), LAYOUT).get("plugstack.conf") == text


def test_default_settings_are_valid_and_fit_the_sandbox():
    text = render_conf(SandboxSpec(), slurm(22, 5, 8), LAYOUT)["malleable.toml"]
    parsed = settings.parse(text)
    assert parsed.site.operators == ("alice",)
    assert parsed.tick.lock == "/b/sb1/run/tick.lock"
    assert parsed.tick.state_dir == "/b/sb1/run/malleable"


def test_given_settings_and_policy_are_written_as_they_are():
    spec = SandboxSpec(settings_text="[lease]\nlength_s = 60\n", policy="return {}\n")
    files = render_conf(spec, slurm(22, 5, 8), LAYOUT)
    assert files["malleable.toml"] == spec.settings_text
    assert files["malleable_policy.lua"] == spec.policy


def test_a_wrong_spec_names_every_fault():
    with pytest.raises(UsageError) as caught:
        SandboxSpec(nodes=0, cpus=0, memory_mib=0, kill_wait_s=0, name="a b")
    for word in ("nodes=0", "cpus=0", "memory_mib=0", "kill_wait_s=0", "'a b'"):
        assert word in str(caught.value)


@pytest.mark.parametrize("name", ["../x", "", ".new-a", "a/b", "x" * 21, "-"])
def test_a_name_cannot_lead_elsewhere(name):
    with pytest.raises(UsageError, match="name="):
        SandboxSpec(name=name)


def test_a_directory_too_deep_for_sockets_is_refused():
    with pytest.raises(UsageError, match="shorter base"):
        replace(LAYOUT, dir=Path("/" + "d" * 60))


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("slurm-wlm 22.05.8\n", (22, 5, 8)),
        ("slurm 24.11.0-0rc1", (24, 11, 0)),
        ("slurm 26.05", (26, 5)),
    ],
)
def test_parse_version(text, version):
    assert parse_version(text) == version


def test_parse_version_quotes_its_input():
    with pytest.raises(UnreadableOutput, match="no such thing"):
        parse_version("no such thing")


def test_missing_programs_are_named_with_their_packages(tmp_path):
    with pytest.raises(MissingProgram) as caught:
        find_installation(root=tmp_path)
    for word in ("slurmctld", "slurmd", "munged", "sinfo", "slurm-client", "munge", str(tmp_path)):
        assert word in str(caught.value)
    assert "apt-get install munge slurm-client slurmctld slurmd" in str(caught.value)


def test_a_malleable_without_the_other_parts_starts_no_sandbox(tmp_path, monkeypatch):
    """`pip install .` copies the commands alone."""
    monkeypatch.setattr(project, "TREE", tmp_path)
    monkeypatch.setattr(project, "PLUGIN_DIRS", (str(tmp_path)[1:],))
    monkeypatch.setattr(project, "INSTALLED_LUA", str(tmp_path / "lua"))
    monkeypatch.setattr(project, "INSTALLED_JOB_PATH", tmp_path / "jobpath")
    with pytest.raises(MissingProgram) as refusal:
        project.project_spec(nodes=2)
    (text,) = str(refusal.value).splitlines()
    assert text.startswith(
        "This malleable has no plugin malleable.so and no job_submit.lua and no software for jobs: "
        "install the packages slurm-malleable-slurm and slurm-malleable-client, or run"
    )
    assert "make setup" in text
    assert text.endswith("(--plain).")


def test_the_command_line_reports_a_missing_slurm(tmp_path):
    with pytest.raises(MissingProgram, match="apt-get install"):
        cli.main(["up", "--slurm-root", str(tmp_path)])


def spec_of(*words: str, monkeypatch) -> SandboxSpec:
    """The spec that `malleable sandbox up` makes of these words."""
    specs: list[SandboxSpec] = []

    def up(spec):
        specs.append(spec)
        raise UsageError("enough")

    monkeypatch.setattr(cli, "_up_with_bar", up)
    monkeypatch.setattr(cli, "find_installation", lambda _: slurm(22, 5, 8))
    with pytest.raises(UsageError, match="enough"):
        cli.main(["up", "--plain", *words])
    return specs[0]


@pytest.mark.parametrize(
    ("words", "cpus"),
    [([], 2), (["--gpus", "1"], 2), (["--gpus", "8"], 8), (["--gpus", "4", "--cpus", "6"], 6)],
)
def test_a_node_has_a_cpu_for_each_gpu(words, cpus, monkeypatch):
    assert spec_of(*words, monkeypatch=monkeypatch).cpus == cpus


def test_a_plain_sandbox_has_nothing_of_ours(monkeypatch):
    spec = spec_of(monkeypatch=monkeypatch)
    text = render_conf(spec, slurm(22, 5, 8), LAYOUT)["slurm.conf"]
    assert "PartitionName=preempt PriorityTier=1 Nodes=ALL PreemptMode=REQUEUE" in text
    assert "JobFileAppend=0" in text
    assert "malleable" not in text
    assert "Epilog" not in text
    by_qos = spec_of("--qos", monkeypatch=monkeypatch)
    assert (by_qos.is_accounting, by_qos.preemption) == (True, Preemption.QOS)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run", "sb1", "--", "sinfo", "-N"], (["run", "sb1"], ["sinfo", "-N"])),
        (["run", "--", "sinfo", "--", "x"], (["run"], ["sinfo", "--", "x"])),
        (["down", "sb1"], (["down", "sb1"], [])),
        ([], ([], [])),
    ],
)
def test_split_command(words, expected):
    assert cli.split_command(words) == expected


def test_the_environment_hides_other_slurms():
    environ = {"SLURM_JOB_ID": "1", "SBATCH_PARTITION": "x", "PET_NNODES": "2", "HOME": "/h"}
    assert clean_environment(environ, None) == {"HOME": "/h"}


def test_another_user_gets_an_own_home_and_no_part_of_ours():
    kept = clean_environment({"HOME": "/secret", "TOKEN": "x", "LANG": "C"}, "root")
    assert kept["HOME"] == "/root"
    assert kept["LANG"] == "C"
    assert "TOKEN" not in kept


def test_path_puts_the_sandbox_first_only_if_another_slurm_would_win(tmp_path):
    other = tmp_path / "sinfo"
    other.write_text("")
    other.chmod(0o755)
    path = additions(slurm(22, 5, 8), LAYOUT, f"{tmp_path}:/bin")["PATH"]
    assert path.split(":")[:2] == ["/usr/bin", str(tmp_path)]


def test_record_survives_the_disk():
    with tempfile.TemporaryDirectory(prefix="r") as place:  # pytest's own may be too long
        _survives_the_disk(Path(place))


def _survives_the_disk(tmp_path):
    layout = replace(LAYOUT, dir=tmp_path)
    record = Record(layout, slurm(22, 5, 8), 3, {"n1": Process(7, 8)})
    write_record(record)
    assert read_record(tmp_path) == record


@pytest.mark.parametrize("text", ["", "{", "[]", "{}"])
def test_an_unreadable_record_is_reported(tmp_path, text):
    (tmp_path / "sandbox.json").write_text(text)
    with pytest.raises(UsageError, match="cannot be read"):
        read_record(tmp_path)
