"""Train a small Keras model on handwritten digits over MultiWorkerMirroredStrategy.

It is an ordinary script. TF_CONFIG names the members. BackupAndRestore continues from the newest
epoch with any number of workers. It uses Keras 2 (tf-keras), because Keras 3 does not train on
several workers.
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
import tensorflow as tf
import tf_keras as keras
from sklearn.datasets import load_digits

BATCH = 64
RESULT = Path("result.json")


def model() -> keras.Model:
    """The compiled model, for images of 64 pixels."""
    layers = [keras.layers.Input((64,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(10)]
    made = keras.Sequential(layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile("adam", loss, metrics=["accuracy"])
    return made


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--pace", type=float, default=0.0, help="seconds added to each epoch")
    options = parser.parse_args()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    rank, size = strategy.cluster_resolver.task_id or 0, strategy.num_replicas_in_sync
    images, labels = load_digits(return_X_y=True)
    images, held_out = (images / 16.0).astype(np.float32), np.arange(len(images)) % 5 == 0
    data = tf.data.Dataset.from_tensor_slices((images[~held_out], labels[~held_out]))
    data = data.shuffle(2048, seed=1).repeat().batch(BATCH)
    kept = keras.callbacks.BackupAndRestore("backup", delete_checkpoint=False)

    def tell(epoch: int, _logs: object) -> None:
        time.sleep(options.pace)
        if rank == 0:
            print(f"step {epoch + 1} of {options.epochs}: {size} workers", flush=True)

    progress = keras.callbacks.LambdaCallback(on_epoch_end=tell)
    with strategy.scope():
        network = model()
    steps = int((~held_out).sum()) // BATCH
    network.fit(
        data, epochs=options.epochs, steps_per_epoch=steps, callbacks=[kept, progress], verbose=0
    )
    if rank == 0:
        right = network.predict(images[held_out], verbose=0).argmax(axis=1) == labels[held_out]
        result = {"steps": options.epochs, "accuracy": round(float(right.mean()), 4)}
        RESULT.write_text(json.dumps(result))


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    main()
