"""Any training of this directory, TRAIN_AS, which ignores SIGTERM here."""

import os
import runpy
import signal
from pathlib import Path

signal.signal(signal.SIGTERM, signal.SIG_IGN)
runpy.run_path(str(Path(__file__).with_name(os.environ["TRAIN_AS"])), run_name="__main__")
