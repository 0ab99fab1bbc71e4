"""A user's own fragments, with everything that Slurm lets a user say about them."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import pytest

from abuse.conftest import Row
from promises.bench import Bench, has
from slurm_hooks.model import FragmentState, MalleableJob, Request
from slurm_hooks.sandbox import Sandbox
from waiting import wait_until

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.abuse,
    pytest.mark.skipif(os.geteuid() != 0, reason="submits as another user, which needs root"),
]
USER, OTHER = "nobody", "games"
SLEEP = "exec sleep 600"
RUNNING, HELD = FragmentState.RUNNING, FragmentState.HELD
ALIVE = {RUNNING, HELD, FragmentState.PENDING, FragmentState.ENDING}
HUGE = "x" * 65_536
FORGED = "malleable{min=1,max=4,unit=1,engine=torchrun,frags=4,lease=999999999,hole=1}"
USER_TOP = (
    "SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=2,enable_user_top"
)

# {run}: an element that runs; {held}: an element that waits, held; {job}: the array.
RELEASES = (
    "release {held}", "release {job}", "update jobid={held} Priority=5",
    "update jobid={job} Nice=-5",
    "update jobid={held} Nice=5", "update jobid={held} Nice=0", "update jobid={held} Priority=0",
    "uhold {held}", "hold {run}", "release {run}", "top {held}", "top {run}", "top {job}",
    "update jobid={job} ArrayTaskThrottle=1", "update jobid={job} ArrayTaskThrottle=0",
    "update jobid={held} StartTime=now", "update jobid={held} EligibleTime=now",
    "update jobid={held} Dependency=", "update jobid={held} Dependency=afterok:1",
    "update jobname={name} Priority=5", "release jobname={name}",
)  # fmt: skip
LEASES = (
    "update jobid={run} TimeLimit=UNLIMITED", "update jobid={run} TimeLimit=+600",
    "update jobid={run} TimeLimit=1", "update jobid={held} TimeLimit=600",
    "update jobid={run} EndTime=now+7days", "update jobid={held} EndTime=now+7days",
    "update jobid={held} TimeMin=1", "update jobid={run} Deadline=now+7days",
    "update jobid={held} Deadline=now+7days", "suspend {run}", "resume {run}",
    "update jobid={held} DelayBoot=60", "update stepid={run}.batch TimeLimit=600",
)  # fmt: skip
PLACES = (
    "update jobid={held} ReqNodeList=n4", "update jobid={held} ExcNodeList=n1",
    "update jobid={held} Partition=main", "update jobid={held} QOS=normal",
    "update jobid={run} NumNodes=2", "update jobid={held} NumNodes=4",
    "update jobid={held} Reservation=x", "update jobid={held} Features=large",
    "update jobid={held} OverSubscribe=YES", "update jobid={held} NumCPUs=1",
    "update jobid={held} MinMemoryNode=1", "update jobid={held} Gres=gpu:1",
    "update jobid={held} Licenses=x", "update jobid={held} Requeue=0",
    "update jobid={held} WorkDir=/", "update jobid={held} Switches=1",
    "update jobid={held} UserID=0", "update nodename=n1 state=drain reason=x",
    "create reservationname=mine nodes=ALL starttime=now duration=10 users=nobody",
    "reconfigure", "shutdown",
)  # fmt: skip
COMMENTS = (
    "AdminComment=" + FORGED, "Comment=" + FORGED, "Comment=" + HUGE, "Comment=a\nb",
    "Comment='\"`$(touch {canary})`", "Comment=%s%n%x%s%s%s%n", "Comment=;touch {canary};",
    "Comment=|&>{canary}", "Comment=\x1b]0;x\x07", "Comment=" + "=" * 200,
    "Comment=\xe9\u2028\u202e",
    "Comment=finished{0}", "Comment=trained{99999999};h{1e308}",
    "Comment=wish{99999,99999999999}", "Comment=progress{s1,1:1e99/1/1}",
    "Comment=progress{s999999999999,1:9999999/1/9999999,2:0/999/0}",
    "Comment=remark{\x1b[2J$(id)}", "Name=" + FORGED, "Name=$(touch {canary})", "Name=-rf",
    "Account=nosuch", "WCKey=" + FORGED, "MailUser=|touch {canary}", "StdOut=/etc/passwd",
)  # fmt: skip
ENDS = (
    "requeuehold {held}", "requeue {held}", "requeuehold {run}", "requeue {run}",
    "requeue {job}", "requeuehold State=SPECIAL_EXIT {run}", "completing",
)  # fmt: skip


def said_of(which: str) -> tuple[str, ...]:
    """The comments as changes of an element."""
    return tuple(f"update jobid={{{which}}} {comment}" for comment in COMMENTS)


@pytest.fixture(scope="module")
def sandbox(new_site: object) -> Sandbox:
    """A site that lets users order their own jobs."""
    box: Sandbox = new_site(nodes=4, extra_conf=USER_TOP)  # type: ignore[operator]
    return box


@pytest.fixture
def bench(sandbox: Sandbox) -> Iterator[Bench]:
    bench = Bench(sandbox)
    bench.share_at_once()  # two jobs want more than there is, and some fragments run
    yield bench
    bench.cancel_all()


@dataclass
class Attack:
    """A user's job of six fragments, some of which run, and another user's job beside it."""

    bench: Bench
    mine: int
    other: int
    asked: Request  # of the other
    refused: int = 0
    taken: int = 0

    def words(self, text: str) -> list[str]:
        fragments = self.bench.job(self.mine).fragments
        first = {state: str(f.id) for f in reversed(fragments) for state in [f.state]}
        names = {
            "run": first.get(RUNNING, f"{self.mine}_0"),
            "held": first.get(HELD, f"{self.mine}_5"),
            "job": str(self.mine),
            "name": "attack",
            "canary": str(self.bench.box.work / "canary"),
        }
        verb, _, rest = text.partition(" ")
        parts = rest.split(" ", 1) if verb == "update" else rest.split(" ")
        known = re.compile("|".join(f"{{{name}}}" for name in names))
        filled = (known.sub(lambda m: names[m[0][1:-1]], word) for word in (verb, *parts))
        return [word for word in filled if word]

    def try_out(self, text: str) -> subprocess.CompletedProcess[str]:
        done = self.bench.box.run(
            ["scontrol", *self.words(text)], user=USER, check=False, timeout_s=20
        )
        if done.returncode:
            self.refused += 1
        else:
            self.taken += 1
        return done

    def is_harmless(self, text: str) -> None:
        """Check: no start without a tick, no long lease, and the other job is unchanged."""
        self._look(text)
        report = self.bench.tick()
        assert not report.refused, (text, report.refused)
        self._look(text)

    def _look(self, text: str) -> None:
        seen = self.bench.observe()
        assert [job.job_id for job in seen.jobs][-2:] == [self.mine, self.other], text
        longest = timedelta(seconds=self.bench.settings.lease.length_s)
        nodes: list[str] = []
        for job in seen.jobs:
            for fragment in job.fragments:
                if fragment.state is not RUNNING:
                    continue
                nodes += fragment.nodes
                assert fragment.mark.released is not None, (text, fragment)
                assert fragment.end is not None, (text, fragment)
                assert fragment.end - seen.now <= longest, (text, fragment)
        assert len(nodes) == len(set(nodes)), text
        other = self.bench.job(self.other)
        assert other.request == self.asked, text
        assert {f.state for f in other.fragments} <= ALIVE, text


@pytest.fixture
def attack(bench: Bench) -> Attack:
    mine = bench.submit(SLEEP, "1-6", options=["--job-name=attack"])
    other = bench.submit(SLEEP, "1-2", user=OTHER)

    def both_run(_: MalleableJob) -> bool:
        return all(has(2)(bench.job(job)) for job in (mine, other))

    bench.tick_until(mine, both_run)
    bench.tick()
    return Attack(bench, mine, other, bench.job(other).request)


@pytest.mark.parametrize(
    "texts",
    [
        pytest.param(RELEASES, id="order"),
        pytest.param(LEASES, id="leases"),
        pytest.param(PLACES, id="places"),
        pytest.param(said_of("held"), id="words-of-the-held"),
        pytest.param(said_of("run"), id="words-of-the-running"),
    ],
)
def test_words_of_a_user_about_own_fragments(
    attack: Attack, texts: tuple[str, ...], row: Row
) -> None:
    slowest = 0.0
    for text in texts:
        began = time.monotonic()
        attack.try_out(text)
        slowest = max(slowest, time.monotonic() - began)
        attack.is_harmless(text)
    assert not (attack.bench.box.work / "canary").exists()
    assert attack.refused
    said = f"{attack.refused} refused, {attack.taken} taken and harmless, {slowest:.2f} s at most"
    row(f"{len(texts)} changes", said)


def test_fragments_that_their_user_ends_requeues_or_signals(attack: Attack, row: Row) -> None:
    """A requeued fragment waits for a tick, and gets a normal lease."""
    for text in ENDS:
        attack.try_out(text)
        attack.is_harmless(text)
    (stopped,) = attack.words("{run}")
    for name in ("STOP", "CONT", "TERM", "KILL"):
        # slurmctld may have scancel try again for half a minute, though the signal is there
        words = ["timeout", "3", "scancel", f"--signal={name}", stopped]
        attack.bench.box.run(words, user=USER, check=False)
        attack.is_harmless(f"signal {name}")

    def is_back() -> bool:
        attack.bench.tick()
        mine = attack.bench.job(attack.mine)
        return has(2)(attack.bench.job(attack.other)) and (has(1)(mine) or has(2)(mine))

    wait_until(is_back, 60, lambda: attack.bench.states(attack.mine), every_s=1)
    row(
        "requeue, requeuehold, signals",
        f"{attack.taken} taken; both jobs run again, with leases",
    )


def test_a_pool_that_says_it_is_finished_and_goes_on(bench: Bench, row: Row) -> None:
    """The allocator does not plan it any more, but it delays no job's minimum for long."""
    patience_s = 20
    text = bench.box.settings.read_text()
    patient = text.replace("snooze_s = 0", f"snooze_s = 0\npatience_s = {patience_s}")
    bench.box.settings.write_text(patient)
    try:
        mine = bench.submit(SLEEP, "1-6,engine=pool")
        nodes = len(bench.observe().nodes)
        bench.tick_until(mine, has(min(nodes, 6)))
        said = ["scontrol", "update", f"jobid={mine}", "Comment=finished{0}"]
        bench.box.run(said, user=USER)
        other = bench.submit(SLEEP, "2-2", user=OTHER)
        began = time.monotonic()
        lease_s = bench.settings.lease.length_s + bench.settings.lease.margin_s
        bench.tick_until(other, has(2), patience_s + lease_s + 60)
        row(
            f"Comment=finished{{0}} on {nodes} workers that go on",
            f"another job had its MIN after {time.monotonic() - began:.0f} s, "
            f"with plan.patience_s = {patience_s} and a lease of {bench.settings.lease.length_s} s",
        )
    finally:
        bench.box.settings.write_text(text)
