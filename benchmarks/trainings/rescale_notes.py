"""The notes of a training that `benchmarks/rescale.py` disturbs, for rescale_steps.py.

They include its newest step for the next start. Standard library only: it runs in jobs of all
kinds.
"""

import json
import os
import time
from pathlib import Path

STEP_S = float(os.environ.get("TRAIN_STEP_S", "0.03"))
UNTIL = float(os.environ.get("TRAIN_UNTIL", "inf"))  # seconds since 1970, then a training ends


def is_over() -> bool:
    """True once the training shall end."""
    return time.time() >= UNTIL


class Notes:
    """Notes of a process, `rank` of `size`. `step` is the newest finished step of the training."""

    def __init__(self, work: Path, rank: int, size: int) -> None:
        self._rank, self._size = rank, size
        self._checkpoint = work / "step"
        self.step = int(self._checkpoint.read_text()) if self._checkpoint.exists() else 0
        fragment = int(os.environ["MALLEABLE_FRAGMENT"])
        begin = {"rank": rank, "fragment": fragment, "restarts": 0}
        with open(work / "begins.jsonl", "a") as file:
            file.write(json.dumps(begin) + "\n")
        self._log = open(work / f"steps-{fragment}.log", "a", buffering=1)  # noqa: SIM115

    def finish_step(self) -> None:
        """Note a finished step, which rank 0 keeps."""
        self.step += 1
        if self._rank == 0:
            draft = self._checkpoint.with_suffix(".new")
            draft.write_text(str(self.step))
            draft.replace(self._checkpoint)
        self._log.write(f"{time.time():.3f} {self.step} {self._size}\n")
