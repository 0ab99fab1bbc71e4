"""Replace the names of a site by words that have a meaning only within a bundle. Pure.

Within a bundle the same name always becomes the same word. With another salt it becomes another
word, so that two bundles cannot be compared.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from ClusterShell.NodeSet import NodeSetParseError

from slurm_hooks.slurm.text import expand

# Every Linux has these; hiding them would hide the fault.
COMMON = frozenset({"root", "slurm", "slurm-malleable", "munge", "nobody", "daemon", "localhost"})
LENGTH = 8
_TOKEN = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?")
_LIST = re.compile(r"[A-Za-z0-9_.-]+\[[\d,-]{1,400}\][A-Za-z0-9_.-]*")
_HOME = re.compile(r"(/(?:home|users|export/home)/)([^/\s\"',:]+)")
_MAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_IPV4 = re.compile(r"\b(?!127\.0\.0\.1\b)\d{1,3}(?:\.\d{1,3}){3}\b")
_IPV6 = re.compile(r"(?<![\w:])(?:[0-9a-fA-F]{1,4}:){3,7}(?::|[0-9a-fA-F]{1,4})(?![\w:])")


class Anonymiser:
    """Replaces known names. `names` gives the kind of each: host, user, account, ..."""

    def __init__(self, salt: bytes, names: Mapping[str, str]) -> None:
        self._salt = salt
        self._kinds = {name: kind for name, kind in names.items() if name and name not in COMMON}

    def word(self, kind: str, name: str) -> str:
        """The word for a name: its kind and a few digits."""
        digest = hashlib.blake2s(f"{kind}:{name}".encode(), key=self._salt).hexdigest()
        return f"{kind}-{digest[:LENGTH]}"

    def text(self, text: str) -> str:
        """A text without the names, with host lists written out."""
        text = _LIST.sub(lambda match: self._written_out(match.group()), text)
        text = _MAIL.sub(lambda match: self.word("mail", match.group()), text)
        text = _HOME.sub(lambda match: match.group(1) + self._user(match.group(2)), text)
        text = _TOKEN.sub(lambda match: self._token(match.group()), text)
        text = _IPV6.sub(lambda match: self.word("address", match.group()), text)
        return _IPV4.sub(lambda match: self.word("address", match.group()), text)

    def data(self, value: Any) -> Any:
        """Plain data without the names. Keys of mappings are kept."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {key: self.data(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.data(item) for item in value]
        return value

    def _written_out(self, hosts: str) -> str:
        """Write out a list of hosts. A list that cannot be unfolded may begin with a name."""
        try:
            names = sorted(expand(hosts))
        except NodeSetParseError:
            names = []
        if not names:
            return self.word("hosts", hosts)
        known = any(name in self._kinds for name in names)
        return ",".join(names) if known else hosts

    def _user(self, name: str) -> str:
        return name if name in COMMON else self.word(self._kinds.get(name, "user"), name)

    def _token(self, token: str) -> str:
        """The whole token, a host with its domain, or the known names between dots or dashes."""
        if token in self._kinds:
            return self.word(self._kinds[token], token)
        head = token.split(".", 1)[0]
        if self._kinds.get(head) == "host":
            return self.word("host", head)
        for mark in (".", "-"):
            parts = token.split(mark)
            if len(parts) > 1:
                return mark.join(self._token(part) for part in parts)
        return token
