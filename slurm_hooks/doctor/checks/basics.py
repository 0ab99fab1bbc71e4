"""Checks of the basics: settings, an answer from Slurm, its release, clocks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from slurm_hooks.doctor.facts import Facts, Unread, known
from slurm_hooks.doctor.finding import Category, Check, Finding, error, note, warning
from slurm_hooks.model.moments import plural
from slurm_hooks.slurm.releases import is_tested, known_releases, tried_instead
from slurm_hooks.slurm.scontrol import Words

SKEW_NOTED_S = 2.0
SKEW_BAD_S = 60.0


def _settings(facts: Facts) -> Iterator[Finding]:
    for fault in facts.settings_faults:
        yield error(
            fault, advice=f"correct {facts.settings_path}; doctor used the defaults instead"
        )


def _answers(facts: Facts) -> Iterator[Finding]:
    if isinstance(facts.slurm, Unread):
        yield error(
            facts.silence or facts.slurm.because,
            advice="start slurmctld, or correct SLURM_CONF or tick.slurm_bin",
        )


def _release(facts: Facts) -> Iterator[Finding]:
    slurm = known(facts.slurm)
    if not is_tested(slurm.version):
        yield warning(
            f"Slurm {slurm.value('SLURM_VERSION')} is not a release on which this was tested "
            f"({known_releases()})",
            advice="run `malleable test` on a small partition first, or install a version of this "
            "package that was tested on the release",
        )
    elif tried := tried_instead(slurm.version):
        yield note(
            f"the tests ran on Slurm {tried}, not on {slurm.value('SLURM_VERSION')}",
            advice="run `malleable test`, which sends a small job through its whole life",
        )


def _clocks(facts: Facts) -> Iterator[Finding]:
    slurm = known(facts.slurm)
    ahead = slurm.offset_s
    seen = f"this host's clock is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} "
    if abs(ahead) > SKEW_BAD_S:
        yield error(seen + "slurmctld's", advice="synchronise both with chrony or ntpd")
    elif abs(ahead) > SKEW_NOTED_S:
        yield warning(seen + "slurmctld's", advice="synchronise both with chrony or ntpd")
    if slurm.now is not None:
        yield from _nodes_ahead(slurm.now, slurm.nodes)


def _nodes_ahead(now: datetime, nodes: tuple[Words, ...]) -> Iterator[Finding]:
    """A slurmd records its start by its own clock, and that cannot be in the future."""
    ahead = [words["NodeName"] for words in nodes if _started_s(words) > now.timestamp() + 60]
    if ahead:
        shown = ", ".join(ahead[:5]) + (" ..." if len(ahead) > 5 else "")
        yield error(
            f"the clock of {plural(len(ahead), 'node')} is ahead of slurmctld's: {shown}",
            advice="synchronise them with chrony or ntpd; `malleable doctor --node clocks` on a "
            "node prints the difference",
        )


def _started_s(words: Words) -> int:
    text = words.get("SlurmdStartTime", "")
    return int(text) if re.fullmatch(r"\d{1,12}", text, re.ASCII) else 0


_SETTINGS = Check(
    "settings",
    Category.BASICS,
    "the settings are valid",
    "A tick with invalid settings stops with exit code 78. Then leases run out, and no job grows.",
    _settings,
    is_ours=True,
)
_ANSWERS = Check(
    "slurm-answers",
    Category.BASICS,
    "slurmctld answers",
    "Without an answer no other check can run, and no tick can do its work.",
    _answers,
)
_RELEASE = Check(
    "release",
    Category.BASICS,
    "the tests of this package passed on this release of Slurm",
    "Slurm's releases differ in the meaning of a hold, a requeue or a listing. On a release "
    "without tests the plugin does not register its option. There `sbatch --malleable` is an "
    "unknown option, and all else works as before. On another patch of a tested release the plugin "
    "works, and a note names the patch that was tried.",
    _release,
)
_CLOCKS = Check(
    "clocks",
    Category.BASICS,
    "the clocks of slurmctld and this host agree, and no node is seen ahead",
    "A lease ends by slurmctld's clock, and agents leave by the clock of their node. On a node "
    "whose clock is behind they leave too late. Doctor sees only nodes that are ahead, and soon "
    "after the start of slurmd. On a node, `malleable doctor --node clocks` compares its clock. "
    "Munge refuses credentials if clocks differ by five minutes.",
    _clocks,
)
TABLE = (_SETTINGS, _ANSWERS, _RELEASE, _CLOCKS)
