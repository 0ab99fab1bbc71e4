"""Any training of this directory, TRAIN_AS, which ignores SIGTERM here.

With TRAIN_STALL_S, `ready()` waits so long for its agent to stop it.
"""

import os
import runpy
import signal
from pathlib import Path

from slurm_hooks.elastic.script import step_boundary

if "TRAIN_STALL_S" in os.environ:
    step_boundary.STALL_S = float(os.environ["TRAIN_STALL_S"])
signal.signal(signal.SIGTERM, signal.SIG_IGN)
runpy.run_path(str(Path(__file__).with_name(os.environ["TRAIN_AS"])), run_name="__main__")
