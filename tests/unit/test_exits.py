"""The table of exit codes: the man page and the commands agree."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from programs import write_program
from slurm_hooks import cli
from slurm_hooks.errors import MEANINGS, Exit, MalleableError

ROOT = Path(__file__).parents[2]
Output = pytest.CaptureFixture[str]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")


def leaves(kind: type[MalleableError]) -> list[type[MalleableError]]:
    return [kind, *(leaf for below in kind.__subclasses__() for leaf in leaves(below))]


def test_the_man_page_prints_the_table() -> None:
    page = (ROOT / "docs" / "man" / "malleable.1").read_text().replace("\\-", "-")
    section = page.split(".SH EXIT STATUS\n")[1].split(".SH ")[0]
    table = re.findall(r"\.TP\n\.B (\d+)\n([^\n]+)\n", section)
    assert table == [(str(int(code)), text) for code, text in MEANINGS.items()]
    assert set(MEANINGS) == set(Exit)


def test_every_error_ends_with_a_code_of_the_table() -> None:
    for module in ("replay.logs.log_lines", "doctor.trial.run"):
        __import__(f"slurm_hooks.{module}")
    kinds = leaves(MalleableError)
    assert len(kinds) > 9
    assert [kind for kind in kinds if not isinstance(kind.exit_code, Exit)] == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "COMMAND"),
        ("stat", "did you mean status?"),
        ("status --jsn", "did you mean --json?"),
        ("reconcile --loop 0", "--loop"),
        ("explain", "JOBID"),
        ("sandbox ups", "did you mean up?"),
        ("sandbox up --node 3", "did you mean --nodes?"),
        ("replay --jsn", "required"),
        ("render luaa", "did you mean lua?"),
        ("wish 3 --job=x", "not a job id"),
        ("hold 83_1", "hold takes a job, not a fragment: malleable hold 83"),
        ("release 83_1", "malleable release 83"),
        ("wish --job 83_1 2", "malleable wish 83"),
        ("wish 83_1 2", "malleable wish 83"),
        ("explain 1 --job 2", "not allowed with"),
        ("doctor 1 --job 2", "give a single job, not 2"),
        ("report -o r.txt", "give a name with the ending .html or .png"),
        ("metrics --listen 127.0.0.1:9777 --json", "leave --json out"),
        ("pool --max=0 -- true", "must be at least 1"),
        ("pool --max=1 --unit=node -- true", "there is no 'node'"),
        ("map --max=0 -- true ::: a", "must be at least 1"),
        ("pool --max=2 --min=3 -- true", "--min 3 is more than --max 2"),
        ("pool --max=2", "give the worker behind --"),
    ],
)
def test_wrong_words_end_with_64(capsys: Output, site: Path, line: str, said: str) -> None:
    assert cli.main(line.split()) == Exit.USAGE
    printed = capsys.readouterr().err
    assert said in printed
    assert len(printed.splitlines()) <= 2
    assert all(row.startswith("malleable: ") for row in printed.splitlines())


def test_wrong_words_name_the_help_of_their_command(capsys: Output) -> None:
    cli.main(["status", "--jsn"])
    assert "see `malleable status --help`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("complaint", "code"),
    [
        ("sbatch: unrecognized option '--bogus=3'", Exit.USAGE),
        ("sbatch: error: Access/permission denied", Exit.NOT_ALLOWED),
    ],
)
def test_a_refusal_of_sbatch_is_shown_in_its_own_words(
    capsys: Output, site: Path, complaint: str, code: Exit
) -> None:
    write_program(site / "bin" / "sbatch", f'echo "{complaint}" >&2\nexit 1')
    assert cli.main(["pool", "--max=2", "--bogus=3", "--", "true"]) == code
    assert capsys.readouterr().err == f"malleable: {complaint}\n"


@needs_root
@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_only_the_user_of_the_tick_may_hold_jobs(tmp_path: Path, mode: int) -> None:
    """The rule holds also where the directory hides the lock."""
    program = (
        "import os, sys; from pathlib import Path\n"
        "from slurm_hooks.settings.values import Tick\n"
        "from slurm_hooks.errors import MalleableError\n"
        "from slurm_hooks.tick.lock import between_ticks\n"
        "os.setuid(65534)\n"
        "try:\n with between_ticks(Tick(lock=sys.argv[1])): pass\n"
        "except MalleableError as error: print(error); sys.exit(error.exit_code)\n"
    )
    place = Path("/tmp") / f"lock-of-root-{os.getpid()}-{mode}"
    place.mkdir(mode=mode)
    try:
        (place / "tick.lock").touch(0o600)
        done = subprocess.run(
            [sys.executable, "-c", program, str(place / "tick.lock")],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
        )
    finally:
        (place / "tick.lock").unlink()
        place.rmdir()
    assert done.returncode == Exit.NOT_ALLOWED, done.stderr
    assert f"run this as user {pwd.getpwuid(0).pw_name}" in done.stdout
    assert "sudo -u root malleable" in done.stdout
    assert "remove" not in done.stdout


@pytest.fixture
def books_of_root() -> Iterator[Path]:
    """Settings of a site whose ledger only root may read."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        place = Path(name)
        place.chmod(0o755)
        (place / "ledger.sqlite").touch(0o600)
        (place / "malleable.toml").write_text(f'[tick]\nstate_dir = "{name}"\n')
        yield place / "malleable.toml"


@needs_root
@pytest.mark.parametrize("is_closed", [False, True], ids=["file", "directory"])
@pytest.mark.parametrize("line", ["report", "metrics"])
def test_books_of_another_user_are_not_readable(
    books_of_root: Path, line: str, is_closed: bool
) -> None:
    if is_closed:
        state = books_of_root.parent / "state"
        state.mkdir(mode=0o700)
        books_of_root.write_text(f'[tick]\nstate_dir = "{state}"\n')
    program = (
        "import os, sys; from slurm_hooks import cli\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534); sys.exit(cli.main(sys.argv[1:]))\n"
    )
    words = [*line.split(), "--settings", str(books_of_root)]
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert (done.returncode, done.stdout) == (Exit.NOT_ALLOWED, ""), done.stderr
    (complaint,) = done.stderr.splitlines()
    assert "permission denied; run this as root or as the user that runs the tick" in complaint
    assert complaint.endswith(", root") is not is_closed


@pytest.mark.parametrize("words", [["sandbox", "status", "--json"], ["sandbox", "status"]])
def test_output_that_cannot_be_written_is_a_line(words: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "slurm_hooks.cli", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=150,
            check=False,
        )
    assert done.returncode == Exit.FILE
    assert done.stderr.splitlines() == ["malleable: this host: No space left on device"]
