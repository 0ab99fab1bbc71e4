"""Every program of the examples is run by a test, or by a demo that the night's run plays."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
PROGRAMS = sorted(
    path
    for path in EXAMPLES.rglob("*")
    if path.suffix in (".py", ".sh", ".m", ".ipynb") and path.parent.name != "demo"
)
NAMING = [
    path.read_text(encoding="utf-8")
    for path in [*(ROOT / "tests").rglob("*.py"), EXAMPLES / "demo" / "work.py"]
    if path != Path(__file__)
]


def names(text: str, file: Path) -> bool:
    """Whether a test names the folder and the file of an example."""
    folder = re.escape(file.parent.name)
    return bool(re.search(rf'"{folder}[/"]', text)) and bool(
        re.search(rf'["/]{re.escape(file.name)}\b', text)
    )


def uses(program: Path, file: Path) -> bool:
    """Whether a program of an example starts or imports another file of its folder."""
    text = program.read_text(encoding="utf-8")
    if program.suffix == ".py":  # which may speak of a script that its user starts
        return bool(re.search(rf"^(?:from|import) {re.escape(file.stem)}\b", text, re.M))
    return bool(re.search(rf"\b{re.escape(file.name)}\b", text))


def tried(programs: list[Path], texts: list[str]) -> set[Path]:
    """The programs that tests name, with all that these use."""
    run = {file for file in programs if any(names(text, file) for text in texts)}
    while True:
        beside = [file for file in programs if file not in run]
        more = {f for f in beside for p in run if p.parent == f.parent and uses(p, f)}
        if not more:
            return run
        run |= more


TRIED = tried(PROGRAMS, NAMING)


@pytest.mark.parametrize("file", PROGRAMS, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_a_test_or_a_demo_runs_it(file: Path) -> None:
    assert file in TRIED, f"write a test that runs {file.relative_to(ROOT)}"


def test_a_new_program_is_seen(tmp_path: Path) -> None:
    """Also if another example has a file of that name, and if only a comment speaks of it."""
    for folder, name, text in [
        ("known", "train.sh", "torchrun train.py\n"),
        ("known", "train.py", "from model import Model\n"),
        ("known", "model.py", ""),
        ("fresh", "train.sh", "torchrun train.py\n"),
        ("fresh", "train.py", ""),
        ("known", "later.py", "import train\n"),
    ]:
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_text(text)
    programs = sorted(path for path in tmp_path.rglob("*.*"))
    run = tried(programs, ['Recipe.copied(bench, "known").submit("train.sh")  # not later.py'])
    assert {path.name for path in run} == {"train.sh", "train.py", "model.py"}
    assert {path.parent.name for path in run} == {"known"}
