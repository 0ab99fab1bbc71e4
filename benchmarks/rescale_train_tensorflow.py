"""The training that `benchmarks/rescale.py` disturbs, in TensorFlow: a step is an all_reduce of
MultiWorkerMirroredStrategy and 30 ms.
"""

import sys
import time
from pathlib import Path

import tensorflow as tf
from rescale_notes import Notes

STEP_S = 0.03


def main() -> None:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    resolver = strategy.cluster_resolver
    size = strategy.num_replicas_in_sync
    notes = Notes(Path(sys.argv[1]), resolver.task_id or 0, size)

    @tf.function
    def add(value: tf.Tensor) -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, value)

    newest = notes.step if resolver.task_id in (None, 0) else 0
    notes.step = int(strategy.run(add, args=(tf.constant(newest),)))
    while True:
        time.sleep(STEP_S)
        strategy.run(add, args=(tf.ones(256),))
        notes.finish_step()


if __name__ == "__main__":
    main()
