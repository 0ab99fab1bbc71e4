"""What agents read was written by others: each text is understood or refused, never a crash."""

from __future__ import annotations

import json

from hypothesis import example, given, settings
from hypothesis import strategies as st

from slurm_hooks.elastic.batch.expected import MOST, parse
from slurm_hooks.elastic.batch.job_comment import merged
from slurm_hooks.elastic.engines.torchrun.flags import overrides
from slurm_hooks.elastic.rendezvous.causes import Cause, CauseKind
from slurm_hooks.elastic.rendezvous.codec import StateFormatError, decode, encode
from slurm_hooks.elastic.rendezvous.state import Member, Outcome, Phase, Round, State

many = settings(max_examples=200, deadline=None)
COUNT = st.integers(0, 2**53 - 1)
LINE = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20)
HOST = st.from_regex(r"[A-Za-z0-9._:%-]{1,20}", fullmatch=True)
TOKEN = st.from_regex(r"[0-9a-f]{16}", fullmatch=True)
MEMBERS = st.builds(
    Member,
    token=TOKEN,
    fragment=COUNT,
    node=COUNT,
    incarnation=LINE,
    host=HOST,
    ends=COUNT,
    probe_port=st.integers(0, 65535),
    phase=st.sampled_from(Phase),
    failed=st.booleans(),
    round=COUNT,
)
CAUSES = st.builds(Cause, st.sampled_from(CauseKind)) | st.builds(
    Cause, st.sampled_from([CauseKind.JOINED, CauseKind.LEFT, CauseKind.LOST]), COUNT
)
ROUNDS = st.builds(
    Round,
    number=COUNT,
    order=st.lists(TOKEN, min_size=1, max_size=4, unique=True).map(tuple),
    fragments=st.lists(COUNT, max_size=4).map(tuple),
    host=HOST,
    port=st.integers(0, 65535),
    causes=st.lists(CAUSES, max_size=3).map(tuple),
    formed_at=COUNT,
)
STATES = st.builds(
    State,
    run=LINE,
    revision=COUNT,
    stage=COUNT,
    members=st.lists(MEMBERS, max_size=4, unique_by=lambda m: m.token).map(tuple),
    round=st.none() | ROUNDS,
    rounds=COUNT,
    gone=st.lists(CAUSES, max_size=3).map(tuple),
    crashes=COUNT,
    outcome=st.sampled_from(Outcome),
    outcome_at=COUNT,
    done=st.lists(st.tuples(COUNT, COUNT, LINE), max_size=3).map(tuple),
    wanted=st.lists(COUNT, max_size=4).map(tuple),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@many
@given(STATES)
def test_a_state_survives_the_file(state: State) -> None:
    assert decode(encode(state)) == state


@many
@given(STATES, st.data())
def test_one_wrong_field_is_refused_or_read_as_a_state(state: State, data: st.DataObject) -> None:
    """Whatever is accepted can be written again and means the same."""
    document = json.loads(encode(state))
    document[data.draw(st.sampled_from(sorted(document)))] = data.draw(JSON)
    try:
        read = decode(json.dumps(document))
    except StateFormatError:
        return
    assert decode(encode(read)) == read


@many
@given(st.text(max_size=100) | JSON.map(json.dumps))
@example("[" * 100_000)
@example("9" * 5000)
def test_text_that_is_not_a_state_is_refused(text: str) -> None:
    try:
        state = decode(text)
    except StateFormatError:
        return
    raise AssertionError(f"{text!r} is not a state, and was read as {state}")


SQUEUE = st.lists(
    st.tuples(
        *(
            st.sampled_from(
                ["0", "7", "RUNNING", "PENDING", "N/A", "1800000000", "9" * 12, "\u0663"]
            )
            for _ in range(6)
        ),
        st.sampled_from(["BeginTime", "None", "a|b", ""]),
    ).map("|".join)
    | st.text(max_size=30),
    max_size=6,
)


@many
@given(SQUEUE, st.integers(0, 9))
def test_any_answer_of_squeue_says_who_is_wanted_or_nothing(lines: list[str], own: int) -> None:
    facts = parse("\n".join(lines), own)
    assert list(facts.wanted) == sorted(facts.wanted)
    assert len(facts.wanted) <= MOST
    assert not facts.wanted or own in facts.wanted
    assert min(facts.starts, facts.ends) >= 0


@many
@given(st.integers(0, 9), st.integers(1, 9), st.integers(0, 2_000_000_000))
def test_who_runs_is_wanted_on_all_its_nodes(own: int, nodes: int, end: int) -> None:
    facts = parse(f"{own}|RUNNING|5|{nodes}|0|{end}|None", own)
    assert (facts.wanted, facts.ends) == ((own,) * nodes, end)


PLAIN = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="{};"), max_size=20)
ENTRIES = st.builds(
    "{}{{{}}}".format,
    st.sampled_from(["progress", "remark"]),
    st.from_regex(r"[a-z0-9]{0,8}", fullmatch=True),
)


@many
@given(st.text(max_size=60), ENTRIES)
def test_our_entry_stands_in_any_comment_once(comment: str, entry: str) -> None:
    again = merged(merged(comment, entry), entry)
    assert again.count(entry) == 1
    assert merged(again, entry) == again


@many
@given(PLAIN, st.lists(ENTRIES, max_size=3), ENTRIES)
def test_what_the_user_wrote_is_kept(text: str, before: list[str], entry: str) -> None:
    comment = text
    for each in [*before, entry]:
        comment = merged(comment, each)
    assert text.strip(" ;") in comment or text == "(null)"


FLAGS = st.lists(
    st.sampled_from(
        [
            *("-", "--", "-m", "-x", "--standalone", "--rdzv-backend", "--rdzv_backend=c10d"),
            *(
                "--rdzv-backend=malleable",
                "--nnodes=2",
                "--nnodes",
                "2",
                "",
                "train.py",
                "=",
                "-=x",
            ),
        ]
    )
    | st.text(max_size=6),
    max_size=6,
)


@many
@given(FLAGS, st.dictionaries(st.sampled_from(["PET_RDZV_BACKEND", "PET_STANDALONE"]), PLAIN))
@example(["-"], {})
def test_any_command_line_of_torchrun_is_read(words: list[str], env: dict[str, str]) -> None:
    assert isinstance(overrides(["torchrun", *words], env), str)


@many
@given(FLAGS)
def test_what_follows_the_script_is_not_torchrun_s(words: list[str]) -> None:
    env = {"PET_RDZV_BACKEND": "malleable"}
    assert overrides(["torchrun", "train.py", *words], env) == ""
