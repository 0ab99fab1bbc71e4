"""Tell Slurm how many Dask workers have work: `wish.py JOB_ID scheduler.json [EVERY_S]`.

Dask's own adaptive clusters use the same number. Run it beside the scheduler.
"""

from __future__ import annotations

import subprocess
import sys
import time

from distributed import Client

EVERY_S = 15.0


def main(job_id: str, scheduler_file: str, every_s: str = "") -> None:
    """Repeat until the scheduler or the job has ended."""
    last_wish = -1
    with Client(scheduler_file=scheduler_file, set_as_default=False) as client:
        while True:
            wanted = int(client.sync(client.scheduler.adaptive_target))
            if wanted != last_wish:
                subprocess.run(["malleable", "wish", "--job", job_id, str(wanted)], check=True)
                last_wish = wanted
            time.sleep(float(every_s or EVERY_S))


if __name__ == "__main__":
    main(*sys.argv[1:])
