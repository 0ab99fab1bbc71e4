"""The training that `benchmarks/rescale.py` restarts at each change of size.

`malleable run` starts it on every fragment, with the new size in its environment. A step is 30 ms.
Its processes need no agreement, so the time between two steps is only the restart.
"""

import os
import sys
import time
from pathlib import Path

from rescale_notes import STEP_S, Notes, is_over


def main() -> None:
    rank, size = int(os.environ["MALLEABLE_RANK"]), int(os.environ["MALLEABLE_WORLD_SIZE"])
    notes = Notes(Path(sys.argv[1]), rank, size)
    while not is_over():
        time.sleep(STEP_S)
        notes.finish_step()


if __name__ == "__main__":
    main()
