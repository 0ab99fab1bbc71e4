"""The secret of a job, which its agents know and no other user can read. A caller proves to an
agent that it knows the secret, without sending it.
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
    """Return the secret of the job with this shared directory. The first agent makes it. Raises
    DirectoryError, OSError.
    """
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
    """Return the present secret. Raises DirectoryError, OSError."""
    secret = read_file(directory, NAME, _LENGTH)
    if len(secret) < _LENGTH:
        raise DirectoryError(f"{directory / NAME} is too short; remove it")
    return secret


def answer(secret: bytes, challenge: bytes) -> str:
    """Return the answer to a challenge. Only a process that knows the secret can give it."""
    return hmac.new(secret, challenge, hashlib.sha256).hexdigest()


def is_answer(secret: bytes, challenge: bytes, given: str) -> bool:
    """Tell whether `given` is that answer."""
    return hmac.compare_digest(answer(secret, challenge).encode(), given.encode())
