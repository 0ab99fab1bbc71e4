"""Commands of the documents: every command exists, and commands that can run here succeed.

Other tests run the rest on a real Slurm (`ELSEWHERE`), test_submissions.py the calls of sbatch.
"""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path
from typing import Any

import pytest

from promises.bench import Bench
from slurm_hooks import cli
from slurm_hooks.commands.following import split
from slurm_hooks.elastic.selfservice.submit import order
from slurm_hooks.sandbox import Sandbox

ROOT = Path(__file__).resolve().parents[2]
LAB = sorted((ROOT / "docs" / "lab").glob("*.md"))  # commands as they were then
TREES = [ROOT / "docs", ROOT / "examples"]
WRITTEN = {page for tree in TREES for page in tree.rglob("*.md")}
PAGES = sorted({ROOT / "README.md", ROOT / "CHANGELOG.md", *WRITTEN} - {*LAB})
ELSEWHERE = {
    "map": "promises/test_map.py",
    "pool": "promises/test_map.py",
    "submit": "selfservice/test_submit_slurm.py",
    "wait": "selfservice/test_submit_slurm.py",
    "sandbox": "sandbox/test_sandbox_slurm.py",
    "test": "trial/test_trial_slurm.py",
    "top": "top/test_top_slurm.py",
}
IN_A_JOB = ("run", "finish")  # of the command that a job has in PATH
# Of the fields that the pages ask sacct for.
WEEK = """JobIDRaw|Submit|Start|End|NodeList|AllocTRES
1|0|1000|4600|n[1-4]|cpu=8,mem=8G,node=4
2|8000|8300|11800|n[1-4]|cpu=8,mem=8G,node=4
"""
CODES = (0, 1, 2, 3)  # the exit codes 1 to 3 of doctor and render --check are findings


def blocks(page: Path) -> list[str]:
    """The lines of code in a page, with continued lines joined."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    fenced = re.findall(r"^```bash\n(.*?)^```", text, re.M | re.S)
    indented = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    return [*indented, *"".join(fenced).splitlines()]


def commands(program: str) -> list[tuple[str, tuple[str, ...]]]:
    """Every call of a program in a line of code, with its page. Comments are left out."""
    typed = []
    for page in PAGES:
        for line in blocks(page):
            for part in re.split(r"&&|\|\||[;|()`]", line):
                if re.match(rf"\$?{program} ", part.strip()):
                    words = shlex.split(part.strip().lstrip("$"), comments=True)[1:]
                    typed.append((page.name, tuple(word.rstrip(",") for word in words)))
    return typed


def is_prose(words: tuple[str, ...]) -> bool:
    """Tell whether the line is a drawing or a tree, not a command: `malleable replay` alone is
    incomplete.
    """
    if not words or not words[0].isalpha() or words[0] in IN_A_JOB:
        return True
    return words in [("replay",), ("sandbox",), ("map",), ("pool",)]


MALLEABLE = sorted({words for _, words in commands("malleable") if not is_prose(words)})


def filled(words: tuple[str, ...], job: str = "7", python: str = "/usr/bin/python3") -> list[str]:
    """The words with values in place of placeholders."""
    values = {"JOBID": job, "ID": job, "PATH": python, "DIR": "/tmp/somewhere"}
    return [values.get(word, word) for word in words]


@pytest.fixture(scope="module")
def reference() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "packaging" / "reference.py"))


@pytest.mark.parametrize("words", MALLEABLE, ids=" ".join)
def test_every_command_line_is_valid(reference: dict[str, Any], words: tuple[str, ...]) -> None:
    if words[0] == "submit":
        order(words[1:], {})
    elif words[0] in ("pool", "map"):  # sbatch gets the options that they do not know
        parser = reference["subcommands"](reference["whole_parser"]())[words[0]]
        parser.parse_known_args(split(words[1:])[0])
    else:
        reference["whole_parser"]().parse_args(filled(words))


def test_the_pages_show_the_commands() -> None:
    shown = {words[0] for words in MALLEABLE}
    assert {"doctor", "test", "off", "on", "report", "plan", "top", "render"} <= shown


def test_code_between_fences_is_seen() -> None:
    """Of a shell; other tests read the other languages."""
    fences = {f for page in PAGES for f in re.findall(r"^```(\w.*)$", page.read_text(), re.M)}
    assert fences == {"bash", "python", "toml"}
    assert ("reconcile", "--loop", "10") in MALLEABLE


@pytest.mark.parametrize(("command", "file"), ELSEWHERE.items())
def test_a_command_that_does_not_run_here_runs_in_another_test(command: str, file: str) -> None:
    text = (ROOT / "tests" / file).read_text(encoding="utf-8")
    assert "pytest.mark.slurm" in text
    assert re.search(rf'["/]{command}"', text)


@pytest.mark.parametrize("words", [w for w in MALLEABLE if w[0] == "replay"], ids=" ".join)
def test_a_replay_answers(
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("week.txt").write_text(WEEK)
    assert cli.main([*words]) == 0
    assert re.match(r"[\d,]+ node-hours a week were idle in gaps of at ", capsys.readouterr().out)


@pytest.mark.parametrize("target", sorted({words[0] for _, words in commands("make") if words}))
def test_every_make_target_exists(target: str) -> None:
    if re.match(r"[A-Z_]+=", target) or target == "install":
        return
    assert re.search(rf"^([\w-]+ )*{target}( [\w-]+)*:", (ROOT / "Makefile").read_text(), re.M)


def test_every_make_target_does_something() -> None:
    """Except `soak`, another name of a benchmark."""
    text = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    phony = re.findall(r"^\.PHONY: (.*)$", text, re.M)[0].split()
    with_lines = re.findall(r"^([\w -]+):(?! export)[^=\n]*\n\t", text, re.M)
    busy = {name for names in with_lines for name in names.split()}
    assert set(phony) - busy == {"soak"}


@pytest.mark.parametrize("page", PAGES + LAB, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)
    files = [link for link in links if not link.startswith("http")]
    assert [link for link in files if not (page.parent / link).exists()] == []


def test_every_lab_entry_that_code_names_is_there() -> None:
    named = {
        name
        for file in (ROOT / "slurm_hooks").rglob("*.py")
        for name in re.findall(r"docs/lab/[\w.-]+\.md", file.read_text(encoding="utf-8"))
    }
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_the_index_of_the_lab_has_every_entry() -> None:
    index, *entries = sorted(LAB, key=lambda page: page.name != "README.md")
    listed = re.findall(r"\]\(([\d-]+[\w-]+\.md)\)", index.read_text(encoding="utf-8"))
    assert listed == [entry.name for entry in entries]


def test_every_benchmark_has_a_figure_to_keep() -> None:
    text = (ROOT / "docs" / "developers" / "performance.md").read_text(encoding="utf-8")
    names = re.findall(r"\| `bench-([a-z-]+)` \|", text)
    scripts = [path.stem.replace("_", "-") for path in (ROOT / "benchmarks").glob("*.py")]
    assert sorted(names) == sorted(scripts)


FIGURES = ("admins/measured.md", "admins/should-i.md", "developers/performance.md")


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_its_command_or_its_entry(name: str) -> None:
    """Each row of a table with a column for them."""
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    tables = re.findall(r"^\|.*\| (?:lab|measured) \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.M)
    rows = [row for rows in tables for row in rows.splitlines() if re.search(r"\d", row)]
    source = re.compile(r"`make [a-z]|\]\(\.\./lab/|\]\([a-z]+\.md\)|`[a-z]+/test_\w+\.py`")
    assert len(rows) > 4
    assert [row for row in rows if not source.search(row)] == []


@pytest.mark.slurm
def test_shown_commands_run(sandbox: Sandbox, tmp_path: Path, monkeypatch: Any) -> None:
    """The commands run in a single sandbox, in the order of their names. Their files are written
    elsewhere.
    """
    bench = Bench(sandbox)
    job = str(bench.submit("sleep 60", "1-1"))
    monkeypatch.chdir(tmp_path)
    assert bench.malleable("plan", "--save", "seen.json").returncode == 0
    (tmp_path / "other.toml").write_text(sandbox.settings.read_text())
    for words in (words for words in MALLEABLE if words[0] not in {"replay", *ELSEWHERE}):
        if "--listen" in words or "--loop" in words:
            continue
        typed = [re.sub(r"^(/etc/slurm|\$etc)/", f"{tmp_path}/", w) for w in filled(words, job)]
        done = bench.malleable(*typed)
        assert done.returncode in CODES, (words, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr, (words, done.stderr)
    bench.cancel_all()
