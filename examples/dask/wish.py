"""Tells Slurm how many Dask workers there is work for: `wish.py JOB_ID scheduler.json [EVERY_S]`.

The number is the one that Dask's own adaptive clusters use. Run it beside the scheduler.
"""

from __future__ import annotations

import subprocess
import sys
import time

from distributed import Client

EVERY_S = 15.0


def main(job_id: str, scheduler_file: str, every_s: str = "") -> None:
    """Until the scheduler has gone, or the job has."""
    told = -1
    with Client(scheduler_file=scheduler_file, set_as_default=False) as client:
        while True:
            wanted = int(client.sync(client.scheduler.adaptive_target))
            if wanted != told:
                subprocess.run(["malleable", "wish", "--job", job_id, str(wanted)], check=True)
                told = wanted
            time.sleep(float(every_s or EVERY_S))


if __name__ == "__main__":
    main(*sys.argv[1:])
