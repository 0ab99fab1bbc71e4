"""A command in a gang, which restarts at each change: several agents on this host."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shown import files_shown
from slurm_hooks.elastic.engines.gang.crew import slots
from slurm_hooks.elastic.mailbox import LENT, MAILBOX, find_files
from waiting import wait_until

from .gang import Gang

MODULE = "slurm_hooks.elastic.engines.gang.run"
RUN = f"import sys; from {MODULE} import main; sys.exit(main(sys.argv[1:]))"
FOREVER = 100_000


@pytest.fixture
def job(gang: Gang) -> Iterator[Gang]:
    gang.launcher = ["-c", RUN]
    gang.flags = ["--grace=2", "--", sys.executable]
    gang.script = Path(__file__).with_name("work_anew.py")
    gang.extra |= {
        "MALLEABLE_ENGINE": "command",
        "MALLEABLE_DIR": str(gang.shared),
        "MALLEABLE_ADDR": "127.0.0.1",
        "MALLEABLE_MIN": "1",
        "MALLEABLE_MAX": "4",
        "MALLEABLE_UNIT": "1",
    }
    gang.pretend_slurm()
    yield gang
    gang.stop()
    for begin in begins(gang):  # the command of a killed agent is not ended otherwise
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(begin["pid"]), signal.SIGKILL)


def start(job: Gang, fragment: int, steps: int = FOREVER, *more: str, restarts: int = 0) -> None:
    job.extra["SLURM_ARRAY_TASK_ID"] = str(fragment)
    job.start(fragment, "1:4", steps, *more, restarts=restarts)


def begins(job: Gang) -> list[dict[str, str]]:
    """The findings of the commands in all rounds."""
    path = job.work / "begins.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def newest(job: Gang) -> list[dict[str, str]]:
    """The findings of the newest round's commands, by rank."""
    records = begins(job)
    last = max((int(begin["round"]) for begin in records), default=0)
    return sorted((b for b in records if int(b["round"]) == last), key=lambda b: int(b["rank"]))


def runs(job: Gang, *fragments: int) -> None:
    """Wait until exactly these fragments work together, and work goes on."""

    def has_begun() -> bool:
        records = newest(job)
        sizes = {int(begin["world_size"]) for begin in records}
        return sorted(int(b["fragment"]) for b in records) == sorted(fragments) and sizes == {
            len(fragments)
        }

    wait_until(has_begun)
    before = step(job)
    wait_until(lambda: step(job) > before)


def step(job: Gang) -> int:
    kept = job.work / "step"
    return int(kept.read_text()) if kept.exists() else 0


def is_alive(pid: object) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_unequal_fragments_count_by_their_workers(job: Gang) -> None:
    job.extra["SLURM_SPANK_MALLEABLE"] = "4-8,unit=gpu,engine=command"
    for fragment, gpus in ((0, 1), (1, 3)):
        job.extra["SLURM_GPUS_ON_NODE"] = str(gpus)
        start(job, fragment)
    runs(job, 0, 1)
    assert [r["size"] for r in job.rounds()] == [4]


def test_tensorflow_counts_nodes(job: Gang) -> None:
    job.extra |= {"MALLEABLE_ENGINE": "tensorflow", "SLURM_GPUS_ON_NODE": "1"}
    job.extra |= {"SLURM_SPANK_MALLEABLE": "1-8,unit=gpu,engine=tensorflow"}
    start(job, 0)
    assert job.wait_exit(0) == [os.EX_USAGE]
    assert "without unit=: --malleable=1-4,engine=tensorflow" in job.log(0)


@pytest.mark.parametrize(
    ("env", "count"),
    [
        ({"SLURM_NTASKS": "6"}, 6),
        ({}, 1),
        (
            {
                "SLURM_NTASKS": "1",
                "SLURM_GPUS_ON_NODE": "3",
                "SLURM_SPANK_MALLEABLE": "1-8,unit=gpu,engine=mpi",
            },
            3,
        ),
    ],
)
def test_an_mpi_starts_a_process_for_each_worker(env: dict[str, str], count: int) -> None:
    assert slots(env) == count


def test_a_command_that_cannot_see_its_agent_is_lent_the_mailbox(job: Gang) -> None:
    """As in a container with its own process ids."""
    start(job, 0)
    runs(job, 0)
    (begin,) = newest(job)
    not_seen = {MAILBOX: "999999999:3", LENT: begin.get("lent", "")}
    with os.fdopen(find_files(not_seen, MAILBOX)[0], "r+b") as mailbox:
        assert "malleable-news" in os.readlink(f"/proc/self/fd/{mailbox.fileno()}")


def test_a_gang_grows_and_shrinks_and_every_member_has_the_world(job: Gang) -> None:
    start(job, 0)
    runs(job, 0)
    start(job, 1)
    start(job, 2)
    runs(job, 0, 1, 2)
    records = newest(job)
    assert len({b["coordinator"] for b in records}) == 1
    assert {b["hosts"] for b in records} == {"127.0.0.1,127.0.0.1,127.0.0.1"}
    job.agents[1].send_signal(signal.SIGURG)
    runs(job, 0, 2)
    assert not any(is_alive(begin["pid"]) for begin in records), "an old command is still there"
    start(job, 3)
    runs(job, 0, 2, 3)
    job.agents[2].kill()
    runs(job, 0, 3)


def test_the_members_meet_at_the_addresses_that_the_script_exports(job: Gang) -> None:
    """NodeAddr often belongs to another network than the network for the work."""
    job.extra["MALLEABLE_ENGINE"] = "tensorflow"
    addresses = ["127.0.0.2", "127.0.0.3"]
    for fragment, address in enumerate(addresses):
        job.extra["MALLEABLE_ADDR"] = address
        start(job, fragment)
    runs(job, 0, 1)
    for begin in newest(job):
        assert begin["hosts"].split(",") == addresses
        assert begin["coordinator"].startswith("127.0.0.2:")
        ring = json.loads(begin["tf_config"])["cluster"]["worker"]
        assert [worker.partition(":")[0] for worker in ring] == addresses


HOROVOD = """
class Horovod:
    def variables(self, world):
        return {"TF_CONFIG": f"{world.rank}/{world.size} at {world.places[0].address}"}
"""


def install(job: Gang, text: str, engine: str = "our_horovod:Horovod") -> None:
    """A package with an engine, in the environment of the job's user."""
    module, _, class_ = engine.partition(":")
    site = job.work / "site"
    info = site / "our_horovod-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: our-horovod\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[slurm_malleable.engines]\n{class_.lower()} = {engine}\n"
    )
    (site / f"{module}.py").write_text(text)
    job.extra |= {
        "PYTHONPATH": f"{job.job_path}:{site}",
        "MALLEABLE_ENGINE": class_.lower(),
        "SLURM_SPANK_MALLEABLE_TRAITS": "gang+rounds",
    }


def test_an_engine_of_the_user_s_environment_describes_the_world_to_the_command(job: Gang) -> None:
    install(job, HOROVOD)
    for fragment in (0, 1):
        start(job, fragment)
    runs(job, 0, 1)
    for begin in newest(job):
        assert begin["tf_config"] == f"{begin['rank']}/2 at {begin['coordinator']}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no attribute 'Horovod'"),
        ("import no_such_module", "No module named 'no_such_module'"),
        ("raise SystemExit(0)", "our_horovod:Horovod: SystemExit in our_horovod.py:1: 0"),
        ("def Horovod():\n    return absent", "NameError in our_horovod.py:2: name 'absent'"),
        ("class Horovod: pass", "our_horovod:Horovod has no method variables(world)"),
        (None, "engine=horovod: no package of this Python names it"),
    ],
)
def test_an_engine_that_cannot_be_loaded_is_a_line(job: Gang, text: str | None, said: str) -> None:
    install(job, text or "")
    if text is None:
        job.extra["PYTHONPATH"] = str(job.job_path)
    start(job, 0)
    assert job.wait_exit(0) == [os.EX_USAGE]
    (line,) = [line for line in job.log(0).splitlines() if "engine=" in line]
    assert said in line


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ('{"PS_WORKERS": world.size}', "variables(world) gives PS_WORKERS = 1, which is no text"),
        ("{7: 'a'}", "variables(world) gives 7 = 'a', which is no text"),
        ("None", "variables(world) gives None, which is no mapping"),
    ],
)
def test_a_variable_that_is_no_text_is_a_line(job: Gang, returned: str, said: str) -> None:
    install(job, f"class Horovod:\n    def variables(self, world):\n        return {returned}\n")
    start(job, 0)
    assert job.wait_exit(0) == [os.EX_USAGE]
    assert f"malleable: engine=horovod: {said}" in job.log(0)
    assert "Traceback" not in job.log(0)


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ('{"hosts": 1}', "lay_out(world) gives hosts = 1, which is no text"),
        ('{"hosts": b"n1"}', "lay_out(world) gives hosts = b'n1', which is no text"),
        ("{7: 'a'}", "lay_out(world) gives 7 = 'a', which is no text"),
        ("None", "lay_out(world) gives None, which is no mapping"),
    ],
)
def test_a_file_that_is_no_text_is_a_line(job: Gang, returned: str, said: str) -> None:
    lays = f"    def lay_out(self, world):\n        return {returned}\n"
    install(job, f"{HOROVOD}{lays}")
    start(job, 0)
    assert job.wait_exit(0) == [os.EX_USAGE]
    assert f"malleable: engine=horovod: {said}" in job.log(0)
    assert "Traceback" not in job.log(0)
    assert not list(job.shared.rglob("laid-out-*"))


RAISING = """
class Horovod:
    def variables(self, world):
        return {"PORT": self.port(world)}

    def port(self, world):
        return world.places[7]
"""
LAYING = (
    "class Horovod(dict):\n    variables = dict\n    def lay_out(self, world): return world.no\n"
)
LEAVING = "import sys\nclass Horovod:\n    def variables(self, world):\n        sys.exit(0)\n"
WRONG_CALL = "class Horovod:\n    def variables(self): return {}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (RAISING, "IndexError in our_horovod.py:7: tuple index out of range"),
        (LAYING, "AttributeError in our_horovod.py:3: 'GangWorld' object has no attribute 'no'"),
        (LEAVING, "SystemExit in our_horovod.py:4: 0"),
        (WRONG_CALL, "TypeError: "),
    ],
)
def test_an_engine_that_raises_is_a_line_and_its_own_frames(
    job: Gang, text: str, said: str
) -> None:
    install(job, text)
    start(job, 0)
    assert job.wait_exit(0) == [1]
    log = job.log(0)
    begins = log.index(f"malleable: engine=horovod: {said}")
    assert "Traceback" not in log[:begins]
    assert "slurm_hooks" not in log[begins:].partition(": ")[2]
    assert ("our_horovod.py" in log[begins:]) == (text is not WRONG_CALL)


def test_a_package_with_damaged_entry_points_is_a_line(job: Gang) -> None:
    """It does not matter which package: Python reads the entry points of all packages."""
    install(job, HOROVOD)
    info = job.work / "site" / "another-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: another\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[console_scripts]\nanother\n")
    start(job, 0)
    assert job.wait_exit(0) == [os.EX_USAGE]
    assert "engine=horovod: the entry points of this Python's packages: " in job.log(0)
    assert "Traceback" not in job.log(0)


def test_a_gang_goes_on_after_its_secret_was_removed(job: Gang) -> None:
    for fragment in (0, 1):
        start(job, fragment)
    runs(job, 0, 1)
    (secret,) = job.shared.rglob("secret")
    secret.unlink()
    start(job, 2)
    runs(job, 0, 1, 2)


SERVE = """
[ ! -e $1/began.$MALLEABLE_RANK ] || exit 3
touch $1/began.$MALLEABLE_RANK
[ $MALLEABLE_RANK = 1 ] || until [ -e $1/go-on ]; do sleep 0.1; done
"""


def test_a_server_that_goes_on_holds_the_finished_members(job: Gang) -> None:
    """A finished member waits. A change of size then neither stops nor starts a command."""
    job.script = job.work / "serve.sh"
    job.script.write_text(SERVE)
    job.flags = ["--grace=2", "--", "sh"]
    start(job, 0)
    start(job, 1)
    wait_until(lambda: ',"done",' in job.state())
    start(job, 2)
    wait_until(lambda: ',"ready",' in job.state())
    time.sleep(1.0)
    assert [agent.poll() for agent in job.agents.values()] == [None] * 3
    job.agents[1].send_signal(signal.SIGURG)
    wait_until(lambda: "fragment 1 leaves as it was asked to" in job.log(1))
    (job.work / "go-on").touch()
    assert job.wait_exit(0, 2) == [0, 0]
    assert sorted(path.name for path in job.work.glob("began.*")) == ["began.0", "began.1"]


@pytest.mark.parametrize("number", [None, signal.SIGTERM])
def test_the_directory_of_the_page_s_engine_ends_with_its_agent(
    job: Gang, number: signal.Signals | None
) -> None:
    install(job, files_shown("engines.md")["flock.py"], "flock:Flock")
    job.script = job.work / "flock.sh"
    job.script.write_text(
        'cp "$FLOCK_LIST" $1/peers; echo "$FLOCK_LIST" > $1/place; '
        "while [ ! -e $1/go-on ]; do sleep 0.1; done"
    )
    job.flags = ["--grace=2", "--", "sh"]
    start(job, 0)
    place = job.work / "place"
    wait_until(lambda: place.exists() and place.read_text() != "")
    written = Path(place.read_text().strip())
    assert written.name == "peers.1"
    assert written.read_text() == (job.work / "peers").read_text()
    if number is None:
        (job.work / "go-on").touch()
    else:
        job.agents[0].send_signal(number)
    job.wait_exit(0)
    assert not written.parent.exists()


SUBCLASS = """
from slurm_hooks.elastic.engines.gang.mpi import Mpi


class Horovod(Mpi):
    def variables(self, world):
        names = " ".join(place.name for place in world.places)
        return {"FLOCK_SSH": f"{world.folder}/launch", "FLOCK_NODES": names}
"""


def test_a_subclass_of_mpi_starts_commands_on_all_nodes(job: Gang) -> None:
    install(job, SUBCLASS)
    job.script = job.work / "flock.sh"
    job.script.write_text('for n in $FLOCK_NODES; do "$FLOCK_SSH" $n touch $1/on.$n || exit; done')
    job.flags = ["--grace=2", "--", "sh"]
    for fragment in (0, 1):
        job.extra["SLURMD_NODENAME"] = f"n{fragment}"
        start(job, fragment)
    assert job.wait_exit(0, 1) == [0, 0]
    assert sorted(path.name for path in job.work.glob("on.*")) == ["on.n0", "on.n1"]


def test_a_leader_that_alone_has_a_command_is_not_to_blame(job: Gang) -> None:
    """The command fails at the leader, wherever its processes fail."""
    job.extra |= {"MALLEABLE_MAX_CRASHES": "2", "SLURMD_NODENAME": "n0"}
    install(job, SUBCLASS)
    job.script = job.work / "fails.sh"
    job.script.write_text("exit 3")
    job.flags = ["--grace=2", "--", "sh"]
    for fragment in (0, 1):
        start(job, fragment)
    assert job.wait_exit(0, 1) == [1, 1]
    assert "failed 2 times in a row" in job.log(0)


def test_the_example_of_the_page_ends_when_its_last_worker_has(job: Gang) -> None:
    shown = files_shown("engines.md")
    job.script = job.work / "train.py"
    assert "sleep(60)" in shown["train.py"]
    job.script.write_text(shown["train.py"].replace("sleep(60)", "sleep(1)"))
    install(job, shown["paramserver.py"], "paramserver:ParameterServer")
    for fragment in (0, 1, 2):
        start(job, fragment)
    assert job.wait_exit(0, 1, 2) == [0, 0, 0]
    assert [r["size"] for r in job.rounds()] == [3]


def test_a_finish_ends_all(job: Gang) -> None:
    for fragment in (0, 1):
        start(job, fragment, 40)
    assert job.wait_exit(0, 1) == [0, 0]
    assert "finished{" in (job.work / "comment.77_0").read_text()
    assert step(job) == 40


def test_a_command_that_keeps_failing_is_given_up(job: Gang) -> None:
    for fragment in (0, 1):
        start(job, fragment, 5, "3")
    codes = job.wait_exit(0, 1)
    assert 0 not in codes
    assert "failed 3 times in a row" in job.log(0)


def test_sigterm_ends_the_command_too(job: Gang) -> None:
    start(job, 0)
    runs(job, 0)
    (begin,) = newest(job)
    job.agents[0].terminate()
    assert job.wait_exit(0) == [128 + signal.SIGTERM]
    assert not is_alive(begin["pid"])


def test_no_command_no_fragment_no_program(job: Gang) -> None:
    job.flags = ["--grace=2", "--"]
    job.script = Path("/nonexistent/program")
    start(job, 0)
    assert job.wait_exit(0) == [127]
    assert "/nonexistent/program" in job.log(0)
