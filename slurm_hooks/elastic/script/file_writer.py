"""The file of a checkpoint, written by a thread while the training goes on. It is complete or
absent.

One file is written at a time. A process that exits waits for it. A process that is killed leaves
the older file.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from slurm_hooks.elastic.log import say
from slurm_hooks.elastic.mailbox import MailboxReader
from slurm_hooks.elastic.script.draft import Draft

_under_way: set[threading.Thread] = set()


class FileWriter:
    """The writer of a path, to be used by a single process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._draft: Draft | None = None
        self._has_swept = self._has_complained = False
        self._put = -1  # the step that this writer put there last
        self._thread: threading.Thread | None = None
        self._failure: OSError | None = None

    def start(
        self, content: Callable[[], dict[str, Any]], holding: AbstractContextManager[None]
    ) -> None:
        """Write the result of `content()`, and hold `holding`, in which it lies, until then. Raises
        OSError if the file cannot even be opened, or if the last file could not be written.
        """
        self.wait()
        self._draft = Draft(self._path, os.environ)
        holding.__enter__()
        self._thread = threading.Thread(
            target=self._run, args=(content, holding), name="malleable-checkpoint-file"
        )
        _under_way.add(self._thread)
        self._thread.start()

    def write(self, data: dict[str, Any]) -> None:
        """Write `data` while the caller waits. Raises OSError if it cannot be written."""
        try:
            self._draft = Draft(self._path, os.environ)
            self._write(data)
        except (OSError, RuntimeError) as error:
            self._failed(error)
        self.check()

    def wait(self) -> None:
        """Wait until no file is under way. Raises OSError if the last file could not be written."""
        if self._thread is not None:
            self._thread.join()
        self.check()

    def check(self) -> None:
        """Raise OSError, once, if the last file could not be written."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _run(
        self, content: Callable[[], dict[str, Any]], holding: AbstractContextManager[None]
    ) -> None:
        try:
            self._write(content())
        except Exception as error:  # torch's zip writer raises RuntimeError
            self._failed(error)
        finally:
            holding.__exit__(None, None, None)
            _under_way.discard(threading.current_thread())

    def _write(self, data: dict[str, Any]) -> None:
        assert self._draft is not None
        began = time.monotonic()
        if not self._has_swept:
            self._has_swept = True
            self._draft.sweep()
        torch.save(data, self._draft.path)
        with open(self._draft.path, "rb") as file:
            os.fsync(file.fileno())
        there = self._draft.put(data["step"], own=self._put)
        self._put = data["step"] if there == data["step"] else self._put
        self._tell_newer(data["step"], there)
        MailboxReader(os.environ).write_file_s(time.monotonic() - began)

    def _tell_newer(self, step: int, there: int) -> None:
        if there > step and not self._has_complained:
            self._has_complained = True
            say(
                f"step {step} is not written, because {self._path} holds step {there}; remove "
                "that file to train from the beginning"
            )

    def _failed(self, error: Exception) -> None:
        why = str(error).partition("\n")[0]
        text = f"cannot write the checkpoint {self._path}: {why}; the last file is still there"
        self._failure = OSError(text)
        self._failure.__cause__ = error
        if self._draft is not None:
            self._draft.drop()
        say(text)


def await_files(limit_s: float | None = None) -> None:
    """Wait until this process has no file under way, at most `limit_s`."""
    deadline = None if limit_s is None else time.monotonic() + limit_s
    for thread in list(_under_way):
        thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
