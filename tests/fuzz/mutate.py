"""Makes texts from sound texts by small damage. It has no grammar, so damage hits every part."""

from __future__ import annotations

import random
from collections.abc import Sequence

from slurm_hooks.slurm.rows import RECORD_END

LONGEST = 100_000
WORDS = (
    *("", "\0", "\n", "\r\n", " ", "\t", "|", "|;|", RECORD_END, f"{RECORD_END}\n", "\x1b[2J"),
    *("{", "}", "[", "]", "(", ")", "=", ",", ";", ":", "@", "+", "-", "/", "%", "\\", '"', "'"),
    *("0", "-1", "1", "00", "1.5", "1e309", "-inf", "nan", "9" * 10, "9" * 19, "9" * 400),
    *("9" * 5000, "0x10", "1_0", "\u0663", "\u00b2", "\udcff", "\ufeff", "\U0001f600"),
    *("(null)", "N/A", "None", "UNLIMITED", "Unknown", "null", "true", "[]", "{}", "[[[[[["),
    *("n[1-999999999]", "n[1-9]r[1-99999]q[1-99999]", "n[001-3,7]", "n[3-1]", "n1!n1", "n1^n2"),
    *("malleable{", "trained{0}", "wish{9,1}", "progress{", "others=9", "NodeName=", "format"),
)


class Mutator:
    """Damages texts. The same seed gives the same texts."""

    def __init__(self, seed: int, sound: Sequence[str]) -> None:
        self._chance, self._sound = random.Random(seed), tuple(sound)

    def text(self) -> str:
        """A sound text with up to eight faults."""
        text = self._chance.choice(self._sound)
        for _ in range(self._chance.choice((1, 1, 2, 3, 8))):
            text = self._damaged(text)[:LONGEST]
        return text

    def _damaged(self, text: str) -> str:
        start = self._chance.randint(0, len(text))
        end = min(len(text), start + self._chance.choice((0, 1, 1, 2, 5, 40, len(text))))
        head, middle, rest = text[:start], text[start:end], text[end:]
        kinds = (
            lambda: head + rest,
            lambda: head + self._chance.choice(WORDS) + rest,
            lambda: text[:start] + self._chance.choice(WORDS) + text[start:],
            lambda: head + middle * self._chance.choice((2, 3, 50)) + rest,
            lambda: head + chr(self._chance.choice((0, 7, 34, 92, 127, 160, 0x2028))) + rest,
            lambda: head + self._piece() + rest,
            lambda: head + "".join(self._chance.sample(middle, len(middle))) + rest,
        )
        return self._chance.choice(kinds)()

    def _piece(self) -> str:
        """A part of another sound text."""
        other = self._chance.choice(self._sound)
        start = self._chance.randint(0, len(other))
        return other[start : start + self._chance.choice((1, 8, 80, len(other)))]
