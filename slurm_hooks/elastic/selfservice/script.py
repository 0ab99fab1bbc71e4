"""The batch script that is submitted in place of the user's. Only values.

Slurm ends a job when its batch script ends. So our script runs the user's as a child.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from slurm_hooks.protocol.engines import LAUNCHERS

_OPTION = re.compile(r"\s--malleable(?:=|\s+)(\S+)")
_SHORTEST = re.compile(r"\s--time-min(?:=|\s+)\S+")  # Slurm would give all elements that limit
_SRUN_PYTHON = re.compile(r"(?:exec\s+)?srun(?:\s+\S+)*?\s+(?:\S*/)?python[0-9.]*\s")
_MARK = "#SBATCH"
_FLAGS = """
contiguous dry-run exclusive get-user-env help hold ignore-pbs nice no-kill no-requeue overcommit
oversubscribe parsable propagate quiet reboot requeue spread-job stepmgr test-only usage
use-min-nodes verbose version wait
"""
FLAGS = frozenset(f"--{name}" for name in _FLAGS.split())
"""Long options of sbatch, and one of ours, that do not take the next word as their value."""
WHOLE = frozenset({"--gpus", "--time"})
"""Names of options that other names begin with, such as --time-min."""
SHORT_FLAGS = frozenset("hHIkOQsvVW")


class ScriptError(ValueError):
    """The script cannot be submitted. The message says why."""


@dataclass(frozen=True)
class Script:
    """A user's batch script: the words of its first line (`interpreter`), the lines for sbatch
    (`options`), and the value of its own `--malleable`, empty if it has none."""

    interpreter: tuple[str, ...]
    options: tuple[str, ...]
    request: str


def read(text: str) -> Script:
    """Read a batch script as sbatch does: options end at the first command. Raises ScriptError."""
    first, _, _ = text.partition("\n")
    interpreter = tuple(first[2:].strip().split(maxsplit=1))
    if not first.startswith("#!") or not interpreter:
        raise ScriptError("the first line is not #! and a program, such as #!/bin/bash")
    if "\r" in first:
        raise ScriptError("it has line ends of Windows: write dos2unix SCRIPT")
    options, request = [], ""
    for line in text.split("\n"):
        if line.strip() and not line.startswith("#"):
            break
        if line.startswith(_MARK):
            ours = _OPTION.search(line)
            request = ours[1] if ours else request
            kept = _SHORTEST.sub("", _OPTION.sub("", line))
            if kept.strip() != _MARK:
                options.append(kept)
    return Script(interpreter, tuple(options), request)


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words for sbatch, and the script with its arguments."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        if words[at] == "--":
            return list(words[:at]), list(words[at + 1 :])
        at += 1 + _takes_next(words[at])
    return list(words[:at]), list(words[at:])


def _takes_next(word: str) -> bool:
    if word.startswith("--"):
        return "=" not in word and word not in FLAGS
    letter, rest = _short(word)
    return bool(letter) and not rest


def _short(word: str) -> tuple[str, str]:
    """Return the letter of the option with a value among bundled short options, and what follows
    it: `-Hpmain` is ("p", "main"). Empty without such an option.
    """
    for at, letter in enumerate(word[1:], start=2):
        if letter not in SHORT_FLAGS:
            return letter, word[at:]
    return "", ""


def value(options: Sequence[str], *names: str) -> str:
    """Return the last value of an option in words for sbatch or in lines of a script, empty
    without it. The short name comes last. As sbatch does, it takes `--part` for `--partition`.
    """
    words = [word for option in options for word in _words(option)]
    last = ""
    for at, word in enumerate(words):
        name, equals, own = word.partition("=")
        following = words[at + 1] if at + 1 < len(words) else ""
        if name.startswith("--") and name != "--":
            if any(_means(name, long) for long in names):
                last = own if equals else "" if name in FLAGS else following
        elif word.startswith("-"):
            letter, rest = _short(word)
            last = (rest or following) if f"-{letter}" in names else last
    return last


def has(options: Sequence[str], *names: str) -> str:
    """Return the first of these options that is there, empty if none is."""
    given = [name for option in options for word in _words(option) for name in _names(word)]
    return next((n for n in names for name in given if name == n or _means(name, n)), "")


def _names(word: str) -> list[str]:
    """Return the options in a word: `-Ha1-3` has -H and -a."""
    if word.startswith("--"):
        return [word.partition("=")[0]]
    if not word.startswith("-"):
        return []
    letter, rest = _short(word)
    flags = word[1 : len(word) - len(rest)] if letter else word[1:]
    return [f"-{flag}" for flag in flags]


def _means(name: str, long: str) -> bool:
    """Tell whether sbatch may take this name for the long option. Two letters are never unique."""
    is_short = len(name) > 4 and name not in FLAGS | WHOLE
    return name == long or (is_short and long.startswith(name))


def _words(option: str) -> list[str]:
    """Return the words of a line of a script, or of one word for sbatch. Raises ScriptError."""
    if not option.startswith(_MARK):
        return [option]
    try:
        return shlex.split(option[len(_MARK) :], comments=True)
    except ValueError as error:
        raise ScriptError(f"{option}: {error}") from None


def copies(text: str) -> str:
    """Return the line of a script that has srun start Python, if nothing in it starts torch's
    launcher, else an empty text.
    """
    if any(word in text for word in LAUNCHERS):
        return ""
    lines = (line.strip() for line in text.splitlines())
    return next((line[:80] for line in lines if _SRUN_PYTHON.match(line)), "")


def batch_script(script: Script, python: str, job_path: str, plan: str) -> str:
    """Return the script for sbatch. It has the user's lines for sbatch, and runs the plan."""
    command = shlex.join([python, job_path, "element", plan])
    missing = f"malleable: {plan} cannot be read here: submit from a directory that all nodes share"
    return "\n".join(
        [
            "#!/bin/sh",
            *script.options,
            "# Written by `malleable submit`. The plan names the script that it runs.",
            f"[ -r {shlex.quote(plan)} ] || {{ echo {shlex.quote(missing)} >&2; exit 69; }}",
            f'exec {command} "$@"',
            "",
        ]
    )
