"""The training that `benchmarks/rescale.py` disturbs, in TensorFlow: a step is a reduction of
MultiWorkerMirroredStrategy and 30 ms.
"""

import sys
import time
from pathlib import Path

import tensorflow as tf
from rescale_notes import STEP_S, Notes, is_over


def main() -> None:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    rank, size = strategy.cluster_resolver.task_id, strategy.num_replicas_in_sync
    notes = Notes(Path(sys.argv[1]), rank, size)

    @tf.function
    def train(value: tf.Tensor) -> tf.Tensor:
        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(own, args=(value,)), None)

    def own(value: tf.Tensor) -> tf.Tensor:
        return tf.identity(value)

    notes.step = int(train(tf.constant(notes.step if rank == 0 else 0)))
    while not train(tf.fill([256], float(is_over())))[0]:
        time.sleep(STEP_S)
        notes.finish_step()


if __name__ == "__main__":
    main()
