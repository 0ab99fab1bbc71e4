"""What is news about a training, written into the Comment of the fragment's own element behind
where the fragment stands: what a hit costs, how fast the job trains. All of it at once, in the
background, and once a minute at most.
"""

from __future__ import annotations

import subprocess
import threading
import time
from dataclasses import replace
from typing import Optional

from slurm_hooks.elastic.batch import job_comment
from slurm_hooks.elastic.batch.progress_entry import Progress, entry
from slurm_hooks.elastic.batch.remark import wait_s
from slurm_hooks.elastic.log import endured, suppressed
from slurm_hooks.words.comment import Comment, Loss, parse

CONFIRM_S = 1.0  # another process may have written in between
GATHER_S = 0.2  # what is told in the same moment is one change


class News:
    """Of this element of a job array; nothing is written where it has no name. Methods neither
    raise nor wait. What is told stays so until the Comment says something else for certain."""

    def __init__(self, element: str, every_s: float = job_comment.EVERY_S) -> None:
        self.told_loss: Optional[Loss] = None
        self.told_progress: Optional[Progress] = None
        self._element = element
        self._every_s = every_s
        self._next = 0.0
        self._loss: Optional[Loss] = None  # what is to be written, if it is new
        self._is_loss_new = False
        self._progress: Optional[Progress] = None
        self._lock = threading.Lock()
        self._writer: Optional[threading.Thread] = None

    def report_loss(self, loss: Optional[Loss]) -> None:
        """See OwnElement."""
        with self._lock:
            self._loss, self._is_loss_new = loss, True
            self._begin()

    def report_progress(self, progress: Progress) -> None:
        """See OwnElement."""
        with self._lock:
            self._progress = progress
            self._begin()

    def _begin(self) -> None:
        if not self._element or self._writer is not None:
            return
        writer = threading.Thread(target=self._write_all, daemon=True)
        with suppressed(RuntimeError, doing="starting a thread for news"):  # of too many processes
            writer.start()
            self._writer = writer

    def _write_all(self) -> None:
        is_endured = endured("writing news of the training to Slurm")
        while True:
            time.sleep(max(GATHER_S, self._next - time.monotonic(), wait_s(self._every_s)))
            with self._lock:
                loss, is_loss_new, progress = self._loss, self._is_loss_new, self._progress
                self._is_loss_new, self._progress = False, None
                if not is_loss_new and progress is None:
                    self._writer = None
                    return
            self._next = time.monotonic() + self._every_s
            errors = OSError, subprocess.SubprocessError
            with is_endured, suppressed(*errors, doing="writing news of the training"):
                self._write(loss, is_loss_new, progress)

    def _write(self, loss: Optional[Loss], is_loss_new: bool, progress: Optional[Progress]) -> None:
        text = entry(progress) if progress else ""

        def edit(before: Comment) -> Comment:
            after = replace(before, loss=loss) if is_loss_new else before
            return replace(after, progress=text) if text else after

        job_comment.change(self._element, edit)
        time.sleep(CONFIRM_S)
        found = parse(job_comment.read(self._element))
        if is_loss_new and found.loss == loss:
            self.told_loss = loss
        if text and found.progress == text:
            self.told_progress = progress
