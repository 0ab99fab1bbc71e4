"""The training that `benchmarks/rescale.py` has started anew at each change of size: by `malleable
run`, on every fragment, with the new size in its environment. A step is 30 ms; there is nothing to
agree on, so what passes between two steps is the restart and nothing else.
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
