"""Compare the commands with which the members of a training were started.

A script may decide in the shell how to begin: `[ -f ckpt ] && INIT=resume`. The shell runs again in
each fragment, so a newcomer gets another command than the members that train. Pure.
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


def launch_of(words: Sequence[str]) -> Launch:
    """For a script and its arguments."""
    digest = hashlib.sha256("\0".join(words).encode("utf-8", "surrogatepass")).hexdigest()
    return Launch(_ODD.sub("?", shlex.join(words))[:LENGTH], digest[:16])


def difference(mine: Launch, other: Launch) -> str:
    """Return the line for the log."""
    return (
        f"this fragment was started with {_shown(mine)}, and others of this training with "
        f"{_shown(other)}: {ADVICE}"
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
