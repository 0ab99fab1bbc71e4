"""Compare the commands with which the members of a training were started.

A script may decide in the shell how to begin: `[ -f ckpt ] && INIT=resume`. The shell runs again in
each fragment, so a newcomer gets another command than the members that train. It has seen the
newest files, so all take its command over if its options differ. If only values differ, as in
`--log=log-3`, each fragment keeps its own. Pure.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Sequence
from typing import Optional

from slurm_hooks.elastic.rendezvous.state import Launch

LENGTH = 200  # characters of either text
_ODD = re.compile(r"[^ -~]")
_OPTION = re.compile(
    r"(--[A-Za-z][^=]*|-[A-Za-z]+)|([+~]*[A-Za-z_][\w.@]*)="
)  # `--lr=1`, `-j8`, `lr=1`


def launch_of(words: Sequence[str]) -> Launch:
    """For a script and its arguments."""
    digest = hashlib.sha256("\0".join(words).encode("utf-8", "surrogatepass")).hexdigest()
    return Launch(_ODD.sub("?", shlex.join(words))[:LENGTH], digest[:16])


def other_option(newest: tuple[str, ...], mine: tuple[str, ...]) -> str:
    """Return an option that only one of two commands has. It is empty if they have the same
    options, or another script.
    """
    if _script(newest) != _script(mine):
        return ""
    return min(_options(newest) ^ _options(mine), default="")


def _script(words: tuple[str, ...]) -> tuple[str, ...]:
    return words[: 2 if words[:1] == ("-m",) else 1]


def _options(words: Sequence[str]) -> set[str]:
    """Return the names of the options. A negative number is a value."""
    options = filter(None, map(_OPTION.match, words))
    return {match[1] or match[2] for match in options}


def difference(mine: Launch, other: Launch, option: str) -> str:
    """Return a newcomer's line for the log. `option` is as from other_option."""
    result = f"all go on as the newest does, because of {option}; " if option else ""
    return (
        f"this fragment was started with {_shown(mine)}, and others of this training with "
        f"{_shown(other)}: {result}{ADVICE}"
    )


def adoption(mine: Launch, newest: Launch, fragment: int, option: str) -> str:
    """Return the line for the log of a member that goes on with the command of `fragment`."""
    return (
        f"this fragment goes on with {_shown(newest)} as fragment {fragment} was started, instead "
        f"of {_shown(mine)}, because of {option}; {ADVICE}"
    )


def told_adoption(fragment: int, option: str) -> str:
    """Return the same for other users, without values."""
    return f"all fragments now start as fragment {fragment} does, because of {option}; {ADVICE}"


def unread(launch: Launch, why: str) -> str:
    """Return the line for a command that cannot be compared."""
    return (
        f"others of this training were started with {_shown(launch)}, and this fragment keeps its "
        f"own arguments, because all of theirs cannot be read: {why}"
    )


def summary(mine: Launch, other: Launch, fragment: int) -> str:
    """Return the line that other users may read too: it has no values."""
    name = _option(mine.text.split(" "), other.text.split(" ")) or "arguments"
    return f"fragment {fragment} was started with other {name} than the training: {ADVICE}"


ADVICE = "decide in the script that torchrun starts, which runs at every change of size"


def _shown(launch: Launch) -> str:
    cut = "..." if len(launch.text) == LENGTH else ""
    return f"`{launch.text}{cut}`"


def _option(mine: Sequence[str], others: Sequence[str]) -> Optional[str]:
    """Return the first option that differs: `--init_from` for `--init_from=resume` and for
    `--init_from resume`.
    """
    before = ""
    for word, other in zip([*mine, ""], [*others, ""]):
        name = word if word.startswith("-") else other
        if word != other:
            return (name if name.startswith("-") else before).partition("=")[0]
        before = word if word.startswith("-") else ""
    return None
