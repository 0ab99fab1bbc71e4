"""A command that restarts at each change of size. It counts steps, which rank 0 keeps.

work_anew.py WORK STEPS [EXIT]    ends with EXIT after so many steps in all
"""

import json
import os
import sys
import time
from pathlib import Path


def main() -> int:
    work, steps = Path(sys.argv[1]), int(sys.argv[2])
    code = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    rank, size = int(os.environ["MALLEABLE_RANK"]), int(os.environ["MALLEABLE_WORLD_SIZE"])
    begin = {
        name.lower()[10:]: os.environ[name] for name in os.environ if name[:10] == "MALLEABLE_"
    }
    begin["tf_config"] = os.environ.get("TF_CONFIG", "")
    with open(work / "begins.jsonl", "a") as file:
        file.write(json.dumps({**begin, "pid": os.getpid(), "t": time.time()}) + "\n")
    kept = work / "step"
    while True:
        step = int(kept.read_text()) if kept.exists() else 0
        if step >= steps:
            return code
        time.sleep(0.05)
        if rank == 0:
            draft = kept.with_suffix(".new")
            draft.write_text(str(step + 1))
            draft.replace(kept)
            with open(work / "steps", "a") as file:
                file.write(f"{time.time():.3f} {step + 1} {size}\n")


if __name__ == "__main__":
    sys.exit(main())
