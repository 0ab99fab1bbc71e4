"""Heartbeats, leases, options and the job path: small pure pieces."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from slurm_hooks import __version__
from slurm_hooks.elastic.agent.membership import open_membership
from slurm_hooks.elastic.agent.options import (
    BACKENDS,
    OptionError,
    agents,
    identity,
    kept,
    options,
)
from slurm_hooks.elastic.batch import lease as lease_module
from slurm_hooks.elastic.batch.expected import ArrayFacts, epoch
from slurm_hooks.elastic.batch.lease import Lease, Step, decide, hint, request
from slurm_hooks.elastic.engines.torchrun.flags import is_ours, overrides
from slurm_hooks.elastic.liveness.ping import Answer, PingListener, is_dead, ping, ping_all
from slurm_hooks.elastic.liveness.watch import BLOCK, Unchanged, Watch, watched, watchers
from slurm_hooks.elastic.private_directory import DirectoryError
from slurm_hooks.elastic.rendezvous.read_interval import ReadInterval
from slurm_hooks.elastic.rendezvous.state import Admission, Member, Phase, State, join
from slurm_hooks.elastic.signals import SignalListener
from slurm_hooks.protocol.jobpath import write_job_path


def state_of(size: int) -> State:
    state = State(run="7")
    for n in range(size):
        state = join(state, Member(f"{n:016x}", n, 0, "1.0", "h"))
    return state


def test_every_agent_is_watched_by_few() -> None:
    state = state_of(20)
    tokens = [m.token for m in state.members]
    assert watched(state, tokens[0]) == tuple(tokens[1:])
    assert watched(state, tokens[7]) == (tokens[6], tokens[5])
    assert watched(state, tokens[1]) == (tokens[0], tokens[19])
    assert watched(state_of(1), tokens[0]) == ()
    assert watched(state_of(2), tokens[1]) == (tokens[0],)
    assert watched(state, "stranger") == ()


@pytest.mark.parametrize("size", [1, 2, 3, 5, BLOCK, BLOCK + 1, 3 * BLOCK + 5])
def test_every_agent_names_its_watchers(size: int) -> None:
    state = state_of(size)
    state = replace(
        state, members=tuple(replace(m, phase=phase(m.fragment)) for m in state.members)
    )
    tokens = [m.token for m in state.members]
    views = {t: watched(state, t) for t in tokens if t in ring_of(state)}
    for token in tokens:
        if token in ring_of(state):
            assert watchers(state, token) == {t for t in views if token in views[t]}
    assert all(len(view) <= 2 * BLOCK for view in views.values())


def phase(number: int) -> Phase:
    return Phase.DONE if number % 7 == 3 else Phase.ACTIVE


def ring_of(state: State) -> set[str]:
    """The agents that take part. An agent that is done still watches, but is not watched."""
    return {m.token for m in state.members if m.phase is not Phase.DONE}


def test_reads_become_rarer_at_rest() -> None:
    read_interval = ReadInterval()
    assert read_interval.is_due(0.0)
    read_interval.has_read(0.0, True)
    assert read_interval.is_due(0.0)  # no agent announces news yet
    read_interval.longest_s = 5.0
    reads, now = [], 0.0
    while now < 60.0:
        if read_interval.is_due(now):
            read_interval.has_read(now, is_news=abs(now - 30.0) < 1e-6)
            reads.append(now)
        now = round(now + 0.1, 1)
    pauses = [round(b - a, 1) for a, b in zip(reads, reads[1:])]
    assert max(pauses) == 5.0
    assert len(reads) < 35
    read_interval.longest_s = 0.0  # no agent announces news any more
    assert read_interval.is_due(now)


def test_silence_is_measured_per_agent() -> None:
    watch = Watch(6.0)
    for t in range(6):
        silent = watch.observe(float(t), {"a": t, "b": 0, "c": None})
        assert silent == {"a": 0.0, "b": float(t), "c": float(t)}


def test_silence_is_no_sign_to_a_blind_observer() -> None:
    watch = Watch(3.0)
    watch.observe(0.0, {"a": 1})
    assert watch.observe(60.0, {"a": 1}) == {"a": 0.0}  # suspended during that time
    assert watch.observe(61.0, {"a": 1}) == {"a": 1.0}
    watch.reset()  # the directory could not be read
    assert watch.observe(62.0, {"a": 1}) == {"a": 0.0}


@pytest.mark.parametrize(
    ("silent_s", "answer", "dead"),
    [
        (2.0, Answer.GONE, False),
        (2.5, Answer.GONE, True),
        (5.9, Answer.SILENT, False),
        (6.0, Answer.SILENT, True),
        (59.0, Answer.ALIVE, False),
        (60.0, Answer.ALIVE, True),
    ],
)
def test_the_moment_to_give_an_agent_up(silent_s: float, answer: Answer, dead: bool) -> None:
    assert is_dead(silent_s, answer, beat_s=1.0, keep_alive_s=6.0) is dead


def test_probing() -> None:
    listener = PingListener("a" * 16)
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(ping_all, [("127.0.0.1", listener.port, "a" * 16)])
        while not asked.done():
            listener.answer()
    assert asked.result() == {"a" * 16: Answer.ALIVE}
    assert ping("127.0.0.1", listener.port, "a" * 16) is Answer.ALIVE  # hung, but there
    listener.answer()
    with ThreadPoolExecutor() as pool:
        stranger = pool.submit(ping, "127.0.0.1", listener.port, "b" * 16)
        while not stranger.done():
            listener.answer()
    assert stranger.result() is Answer.GONE
    listener.close()
    assert ping("127.0.0.1", listener.port, "a" * 16) is Answer.GONE
    assert ping("no-such-host.invalid", 1, "a" * 16) is Answer.SILENT


def test_many_agents_are_pinged_in_the_time_of_a_single_agent() -> None:
    """Each by its own answer: a host that drops pings, refuses, hangs, or has no name."""
    full, hung = socket.create_server(("127.0.0.1", 0), backlog=0), PingListener("c" * 16)
    held = [socket.socket() for _ in range(4)]
    for end in held:  # the last pings are dropped
        end.setblocking(False)
        end.connect_ex(full.getsockname())
    places = [(1, "127.0.0.1"), (hung.port, "localhost"), *[(1, "a..b")] * 20]
    places += [(full.getsockname()[1], "127.0.0.1")] * 60  # 30 s in turn
    began_at = time.monotonic()
    answers = ping_all((host, port, f"{n:016x}") for n, (port, host) in enumerate(places))
    assert time.monotonic() - began_at < 25.0
    expected = [Answer.GONE, Answer.ALIVE, *[Answer.SILENT] * 80]
    assert list(answers.values()) == expected
    for end in (full, hung, *held):
        end.close()


@pytest.mark.parametrize(
    ("line", "flag"),
    [
        ("torchrun train.py --standalone", ""),
        ("torchrun --nnodes 2 --rdzv-backend malleable train.py", ""),
        ("torchrun --standalone train.py", "--standalone"),
        ("torchrun --rdzv_backend=c10d train.py", "--rdzv-backend=c10d"),
        ("torchrun --rdzv-backend static train.py", "--rdzv-backend=static"),
        (f"torchrun --rdzv-backend={BACKENDS[1]} train.py", ""),
        ("torchrun -m train --standalone", ""),
        ("torchrun --no-python --nproc-per-node 2 run.sh --rdzv-backend=c10d", ""),
        ("torchrun -r 3 -t3 --log-dir=x.py --standalone -m train", "--standalone"),
    ],
)
def test_flags_that_bypass_the_rendezvous(line: str, flag: str) -> None:
    assert overrides(line.split(), {"PET_RDZV_BACKEND": "malleable"}) == flag


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ({"PET_RDZV_BACKEND": "malleable", "PET_STANDALONE": "0"}, ""),
        ({"PET_RDZV_BACKEND": "malleable", "PET_STANDALONE": "1"}, "PET_STANDALONE=1"),
        ({"PET_RDZV_BACKEND": "c10d"}, "PET_RDZV_BACKEND=c10d"),
        ({}, "unset PET_RDZV_BACKEND"),
    ],
)
def test_variables_that_bypass_the_rendezvous(env: dict[str, str], name: str) -> None:
    assert overrides(["torchrun", "train.py"], env) == name
    assert is_ours({**env, "MALLEABLE_ENGINE": "torchrun", "MALLEABLE_FRAGMENT": "0"})


def test_torchrun_outside_of_a_fragment_is_left_alone() -> None:
    assert is_ours({"PET_RDZV_BACKEND": BACKENDS[1]})
    assert not is_ours({})
    assert not is_ours({"PET_RDZV_BACKEND": "c10d", "MALLEABLE_ENGINE": "torchrun"})
    other = {"MALLEABLE_ENGINE": "mpi", "MALLEABLE_FRAGMENT": "0"}
    assert not is_ours({"PET_RDZV_BACKEND": "c10d", **other})


def test_the_time_for_which_a_value_has_not_changed() -> None:
    quiet = Unchanged()
    assert quiet.observe(5.0, "a") == 0.0
    assert quiet.observe(7.0, "a") == 2.0
    assert quiet.observe(8.0, "b") == 0.0


@pytest.mark.parametrize(
    ("left_s", "asked", "together", "step"),
    [
        (300, False, False, Step.KEEP),
        (22, False, False, Step.ASK),
        (21, True, False, Step.KEEP),
        (20, True, False, Step.LEAVE),
        (-5, False, False, Step.ASK),
        (60, False, True, Step.KEEP),
        (45, False, True, Step.ASK),
        (45, True, True, Step.LEAVE),
    ],
)
def test_lease_steps(left_s: float, asked: bool, together: bool, step: Step) -> None:
    assert decide(1000.0, int(1000 + left_s), 20.0, asked, together) is step


def test_an_unknown_end_never_ends() -> None:
    assert decide(1000.0, 0, 20.0, False) is Step.KEEP


@pytest.mark.parametrize(
    ("text", "ends"), [("1700000000\n", 1700000000), ("N/A", 0), ("", 0), ("-1", 0), ("1e9", 0)]
)
def test_answers_of_squeue(text: str, ends: int) -> None:
    assert epoch(text) == ends
    assert request("12")[2] == "--job=12"
    assert hint({"SLURM_JOB_END_TIME": text.strip()}) == ends


def test_a_renewed_lease_lasts_and_silence_of_slurm_does_not_renew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = [1000, 1600, 0]
    monkeypatch.setattr(lease_module, "ask", lambda env: answers.pop(0))
    lease = Lease({}, 20.0)
    assert not lease.is_over(900.0)
    assert not lease.is_over(979.0)  # asks: renewed to 1600
    assert lease.ends == 1600
    assert not lease.is_over(1579.0)  # asks: no answer
    assert lease.is_over(1580.0)


def asks_at(monkeypatch: pytest.MonkeyPatch, ends: int) -> list[float]:
    """The moments of questions about a lease that ends at 1000, with a notice of 20 s.

    Slurm answers `ends`.
    """
    asked: list[float] = []
    clock = [0.0]

    def ask(env: object) -> int:
        asked.append(clock[0])
        return ends

    monkeypatch.setattr(lease_module, "ask", ask)
    monkeypatch.setattr(lease_module, "_in_background", lambda do: do())
    lease = Lease({"SLURM_JOB_ID": "7"}, 20.0, ArrayFacts(ends=1000))
    for tenth in range(9000, 9790):
        clock[0] = tenth / 10
        assert not lease.is_over(clock[0])
    return asked


def test_fragments_whose_leases_end_together_do_not_ask_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A site may limit the requests of a user, and without an answer the known end counts."""
    asked = [asks_at(monkeypatch, 1600) for _ in range(64)]
    assert {len(moments) for moments in asked} == {1}
    moments = [moment for (moment,) in asked]
    assert 948 <= min(moments) < 955
    assert 970 < max(moments) <= 978.1
    assert max(sum(abs(m - n) < 1 for n in moments) for m in moments) < 24


def test_a_lease_that_was_not_renewed_in_time_is_asked_for_at_the_last_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, last = asks_at(monkeypatch, 1000)[:2]
    assert 948 <= first <= 978.1
    assert 978 <= last <= 978.2


def test_a_late_answer_about_an_end_does_not_undo_a_renewal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The question in the background was put before the question of the last moment."""
    lease = Lease({"SLURM_JOB_ID": "7"}, 20.0, ArrayFacts(ends=1000))
    late: list[Callable[[], None]] = []
    monkeypatch.setattr(lease_module, "_in_background", late.append)
    monkeypatch.setattr(lease_module, "ask", lambda env: 1600)
    assert not lease.is_over(979.0)  # asks twice, and has a single answer
    monkeypatch.setattr(lease_module, "ask", lambda env: 1000)
    for answer in late:
        answer()
    assert (len(late), lease.ends) == (1, 1600)


def test_an_end_that_is_not_known_is_logged_once_and_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    answers = [ArrayFacts(), ArrayFacts(), ArrayFacts(starts=100, ends=1000, wanted=(3,))]
    monkeypatch.setattr(lease_module, "ask_all", lambda env: answers.pop(0))
    monkeypatch.setattr(lease_module, "ask", lambda env: 1000)
    monkeypatch.setattr(lease_module, "AGAIN_S", 0.2)
    lease = Lease({"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3"}, 20.0)
    deadline = time.monotonic() + 10
    while not lease.ends:  # the training is not delayed
        assert time.monotonic() < deadline
        assert not lease.is_over(900.0)
        time.sleep(0.01)
    assert lease.is_over(990.0)
    assert capfd.readouterr().err.count("squeue does not report when this lease ends") == 1
    monkeypatch.setattr(lease_module, "ask_all", lambda env: ArrayFacts())
    Lease({}, 20.0).is_over(0.0)  # outside of a job there is no lease
    assert not capfd.readouterr().err


@dataclass
class Parameters:
    backend: str = "malleable"
    endpoint: str = "/shared/7"
    run_id: str = "7"
    min_nodes: int = 2
    max_nodes: int = 16
    local_addr: str = "n1"
    config: dict[str, str] = field(default_factory=dict)

    def get(self, key: str, default: object = None) -> object:
        return self.config.get(key, default)


def test_command_line_before_environment_before_default() -> None:
    env = {"MALLEABLE_LAST_CALL_S": "9", "MALLEABLE_NOTICE_S": "30"}
    values = options(Parameters(config={"last_call_s": "1"}), env)
    assert (values.limits.last_call_s, values.notice_s, values.keep_alive_s) == (1.0, 30.0, 6.0)
    assert options(Parameters(max_nodes=512), {}).poll_s > values.poll_s


@pytest.mark.parametrize(
    ("parameters", "env", "hint_"),
    [
        (Parameters(endpoint="host:29500"), {}, "PET_RDZV_ENDPOINT"),
        (Parameters(local_addr="a b"), {}, "PET_LOCAL_ADDR"),
        (Parameters(), {"MALLEABLE_NOTICE_S": "soon"}, "notice_s='soon'"),
        (Parameters(), {"MALLEABLE_NOTICE_S": "nan"}, "notice_s='nan'"),
    ],
)
def test_bad_options_are_named(parameters: Parameters, env: dict[str, str], hint_: str) -> None:
    with pytest.raises(OptionError, match=hint_):
        options(parameters, env)


def test_two_clusters_on_a_file_system_do_not_share_a_training(tmp_path: Path) -> None:
    """The array ids of their jobs may be equal, and dir= of the site may not have %C."""
    parameters = Parameters(endpoint=str(tmp_path / "7"), run_id="7")
    first, second = (options(parameters, {"SLURM_CLUSTER_NAME": c}) for c in ("alpha", "beta"))
    of_first, of_second = (
        open_membership(job, identity({}, "n1", 0), SignalListener()) for job in (first, second)
    )
    try:
        assert of_first.ask_in(0) is Admission.JOIN
        of_first.tell_success()  # the remains would tell the second that its training has finished
        with pytest.raises(DirectoryError, match="the job 7 of alpha, not to 7 of beta"):
            of_second.directory.once.read()
    finally:
        of_first.fall_silent()
        of_second.fall_silent()
    unknown = options(parameters, {"SLURM_CLUSTER_NAME": "(null)"})  # Slurm 23.11.4
    assert unknown.owner == options(parameters, {}).owner == "7"
    assert first.run == second.run == "7"  # the variables that torch gives the script


def test_identity_comes_from_slurm() -> None:
    env = {"SLURM_JOB_ID": "88", "SLURM_RESTART_COUNT": "2", "MALLEABLE_FRAGMENT": "5"}
    me = identity(env, "n1", 600)
    assert (me.position, me.incarnation, me.ends) == ((5, 0), "88.2", 600)
    assert me.token != identity(env, "n1", 600).token


def test_settings_of_the_user_are_reported() -> None:
    env = {"MALLEABLE_KEPT": "PET_MAX_RESTARTS;`x`"}
    assert kept(env) == "your own settings are kept: PET_MAX_RESTARTSx"
    assert kept({}) == kept({"MALLEABLE_KEPT": "PET_NNODES,PET_RDZV_ID"}) == ""


def test_the_job_path_holds_only_the_rendezvous(tmp_path: Path) -> None:
    write_job_path(tmp_path)
    path = write_job_path(tmp_path)  # renewing is fine
    info = f"slurm_malleable_elastic-{__version__}.dist-info"
    assert {p.name for p in path.iterdir()} == {"slurm_hooks", info, "__main__.py", "bin"}
    assert [p.name for p in (path / "bin").iterdir()] == ["malleable"]
    packages = sorted(p.name for p in (path / "slurm_hooks").iterdir())
    assert packages == ["__init__.py", "elastic", "protocol"]
    code = (
        "import sys; from importlib.metadata import distributions;"
        "from slurm_hooks.protocol.engines import BACKENDS;"
        "entries = {e for d in distributions() for e in d.entry_points};"
        "handlers = {e for e in entries if e.group == 'torchrun.handlers'};"
        "assert sorted(e.name for e in handlers) == sorted(BACKENDS), entries;"
        "assert all(callable(e.load()()) for e in handlers);"
        "assert all(callable(e.load()) for e in entries); assert 'torch' not in sys.modules"
    )
    subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=path, env={"PYTHONPATH": str(path)}, check=True
    )


@pytest.mark.parametrize(
    ("largest", "unit", "expected"),
    [
        (4, "2", (1, 3)),  # the batch script starts an agent on the first node of a fragment
        (8, "2", (1, 1, 3, 3)),  # launch=srun: PET_NNODES counts nodes
    ],
)
def test_the_wanted_number_counts_agents(
    largest: int, unit: str, expected: tuple[int, ...]
) -> None:
    class Params:
        backend, endpoint, run_id, local_addr = "malleable", "/shared", "7", "127.0.0.1"
        min_nodes, max_nodes = 1, largest

        def get(self, name: str, default: object = None) -> object:
            return default

    env = {"MALLEABLE_MAX": "8", "MALLEABLE_UNIT": unit}
    assert agents((1, 1, 3, 3), options(Params(), env), env) == expected
    for text, sizes in (("sizes=2,4,8,engine=torchrun", {2, 4, 8}), ("sizes=x2", {1, 2, 4, 8})):
        env["SLURM_SPANK_MALLEABLE"] = f"1-8,unit={unit},{text}"
        each = 8 // largest  # an agent counts as so many nodes
        expected_sizes = {n // each for n in sizes if n >= each}
        assert options(Params(), env).limits.sizes == expected_sizes
    env |= {"SLURM_SPANK_MALLEABLE": "1-8,unit=gpu"}
    assert agents((1, 3), options(Params(), env), env) == (1, 3)
