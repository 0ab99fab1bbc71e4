"""Answers of sacctmgr about QOS, and their effect on preemption."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from slurm_hooks.errors import UnreadableOutput
from slurm_hooks.settings.values import parse
from slurm_hooks.slurm.live import Asked
from slurm_hooks.slurm.qos import parse_qos, qos_command
from slurm_hooks.slurm.site_policy import SitePolicy, render_site
from slurm_hooks.slurm.text import Command

# sacctmgr of 22.05.8 on a sandbox with accounting
SEEN = "normal|scavenge|cluster||||\nscavenge||cluster||||\n"
CLUSTER = """PartitionName=malleable Nodes=n1 PreemptMode={partition} QoS=Scavenge State=UP
Configuration data as of 1795287648
PreemptMode             = {mode}
PreemptType             = preempt/{kind}
SLURM_VERSION           = 22.05.8
"""


def test_submit_limits_of_three_kinds() -> None:
    rows = parse_qos("a||cluster|100|30|50|DenyOnLimit,OverPartQOS\nb||cluster||||DenyOnLimit\n")
    assert rows["a"].submits == {"user": 100, "account": 30, "all": 50}
    assert rows["b"].submits == {}
    assert (rows["a"].overrides_partition, rows["b"].overrides_partition) == (True, False)


@pytest.mark.parametrize("text", ["normal", "normal||cluster|||soon|", "a||cluster||x||"])
def test_an_unreadable_row_is_no_qos(text: str) -> None:
    with pytest.raises(UnreadableOutput, match="not a QOS"):
        parse_qos(text)


@dataclass
class Canned:
    """A Slurm with two answers."""

    cluster: str
    qos: str
    asked: list[Asked] = field(default_factory=list)

    def ask(self, command: Command) -> str:
        return self.qos if command == qos_command() else self.cluster


def rendered(
    kind: str, qos: str = "scavenge", seen: str = SEEN, partition: str = "OFF"
) -> SitePolicy:
    says = CLUSTER.format(kind=kind, mode="REQUEUE", partition=partition)
    settings = parse(f'[site]\nqos = "{qos}"\noperators = ["root"]\n')
    return render_site(settings, Canned(says, seen))


def test_where_qos_decide_the_partition_has_no_say() -> None:
    policy = rendered("qos")
    assert not policy.faults
    assert 'qos = "scavenge",' in policy.text
    assert "unfit = {}," in policy.text


@pytest.mark.parametrize("qos", ["", "idle", "normal"])
def test_without_the_right_qos_jobs_are_refused(qos: str) -> None:
    policy = rendered("qos", qos, partition="REQUEUE")
    assert any("partition malleable is not for malleable jobs" in one for one in policy.faults)
    assert 'unfit = {["malleable"] = "' in policy.text


def test_where_partitions_decide_a_qos_may_be_named_as_well() -> None:
    assert not rendered("partition_prio", partition="REQUEUE").faults
    assert rendered("partition_prio", "idle", partition="REQUEUE").faults
    text = rendered("partition_prio", partition="OFF").text
    assert 'unfit = {["malleable"] = "PartitionName=malleable PreemptMode=OFF: ' in text


def test_submit_limits_reach_job_submit_with_the_qos_of_partitions() -> None:
    limited = SEEN.replace("scavenge||cluster|||", "scavenge||cluster||40|9|OverPartQOS")
    text = rendered("qos", seen=limited).text
    assert 'submit_limits = {["scavenge"] = {account = 40, all = 9}},' in text
    assert 'part_qos = {["malleable"] = "scavenge"},' in text
    assert 'over_qos = {["scavenge"] = true},' in text
    assert "submit_limits" not in rendered("qos").text


@pytest.mark.parametrize(("enforced", "is_asked"), [("qos,safe", True), ("associations", False)])
def test_qos_are_asked_for_where_limits_are_enforced(enforced: str, is_asked: bool) -> None:
    says = CLUSTER.format(kind="partition_prio", mode="REQUEUE", partition="REQUEUE")
    says += f"AccountingStorageEnforce = {enforced}\n"
    slurm = Canned(says, "normal||cluster|32||||\n")
    policy = render_site(parse('[site]\noperators = ["root"]\n'), slurm)
    assert ('submit_limits = {["normal"] = {user = 32}},' in policy.text) is is_asked


@pytest.mark.parametrize("state", ["UP", "DOWN", "DRAIN", "INACTIVE"])
def test_job_submit_knows_the_gpus_of_a_partition_in_any_state(state: str) -> None:
    says = CLUSTER.format(kind="partition_prio", mode="REQUEUE", partition="REQUEUE")
    says = says.replace("State=UP", f"State={state}")
    for name, gres in (("n1", "gpu:a100:8(S:0-1)"), ("n2", "gpu:4"), ("n3", "(null)")):
        says += f"NodeName={name} CPUTot=8 Gres={gres} State=IDLE Partitions=malleable,main\n"
    text = render_site(parse(""), Canned(says, SEEN)).text
    assert 'gpus = {["malleable"] = {["gpu"] = {4, 8}, ["gpu:a100"] = {8}}},' in text
