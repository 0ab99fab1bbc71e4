"""The secret of a job: what its agents know and no other user can read. Who connects to an agent
shows that it knows it, without saying it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path

from slurm_hooks.elastic.private_directory import DirectoryError, make_private, read_file

NAME = "secret"
_LENGTH = 64


def job_secret(directory: Path) -> bytes:
    """The secret of the job with this shared directory, made by whoever comes first. Raises
    DirectoryError, OSError."""
    make_private(directory)
    draft = directory / f"{NAME}.{secrets.token_hex(8)}"
    handle = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        with open(handle, "wb") as file:
            file.write(secrets.token_hex(_LENGTH // 2).encode())
        with suppress(FileExistsError):
            os.link(draft, directory / NAME)
    finally:
        os.unlink(draft)
    return read_secret(directory)


def read_secret(directory: Path) -> bytes:
    """The secret that is there. Raises DirectoryError, OSError."""
    found = read_file(directory, NAME, _LENGTH)
    if len(found) < _LENGTH:
        raise DirectoryError(f"{directory / NAME} is too short; remove it")
    return found


def answer(secret: bytes, challenge: bytes) -> str:
    """What only who knows the secret can answer to a challenge."""
    return hmac.new(secret, challenge, hashlib.sha256).hexdigest()


def is_answer(secret: bytes, challenge: bytes, given: str) -> bool:
    """Whether it is that answer."""
    return hmac.compare_digest(answer(secret, challenge).encode(), given.encode())
