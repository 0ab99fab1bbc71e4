"""Survive the loss of workers: `squares.py spark://host:7077 TASKS NOTES`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

SURVIVES = {
    "spark.decommission.enabled": "true",
    "spark.storage.decommission.enabled": "true",  # blocks move when their worker leaves
    "spark.storage.decommission.rddBlocks.enabled": "true",
    "spark.storage.decommission.shuffleBlocks.enabled": "true",
    "spark.task.maxFailures": "100",  # a lost worker is no failure of the task
    "spark.executor.cores": "1",
    "spark.executor.memory": "500m",
    "spark.driver.memory": "500m",
    "spark.ui.enabled": "false",
}


def main(master: str, tasks: int, notes: str) -> None:
    """Print the sum of the squares of so many numbers, each a task that notes its end."""

    def square(number: int) -> int:
        time.sleep(0.5)
        with Path(notes).open("a") as file:
            file.write(f"{number}\n")
        return number * number

    builder = SparkSession.builder.master(master)
    for name, value in SURVIVES.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    print(session.sparkContext.parallelize(range(tasks), tasks).map(square).sum())
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
