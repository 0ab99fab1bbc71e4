"""Train a softmax regression on handwritten digits in JAX, data-parallel over several processes.

It resumes from `checkpoint.npz` with any number of processes. The global batch depends on the step
alone, so no digit is lost or used twice.
"""

import argparse
import json
import os
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from sklearn.datasets import load_digits

BATCH, RATE = 64, 0.3
CHECKPOINT, RESULT = Path("checkpoint.npz"), Path("result.json")


@jax.jit
def improved(
    weights: jax.Array, images: jax.Array, labels: jax.Array, counts: jax.Array
) -> jax.Array:
    """The weights after a step. `counts` is 0 for samples that only fill up the last share."""

    def loss(weights: jax.Array) -> jax.Array:
        chances = jax.nn.log_softmax(images @ weights)
        return -(counts * chances[jnp.arange(len(labels)), labels]).sum() / BATCH

    return weights - RATE * jax.grad(loss)(weights)


def load() -> tuple[np.ndarray, int]:
    """The weights, and the number of steps done."""
    if not CHECKPOINT.exists():
        return np.zeros((65, 10), np.float32), 0
    with np.load(CHECKPOINT) as saved:
        return saved["weights"], int(saved["step"])


def save(weights: jax.Array, step: int) -> None:
    with open("checkpoint.tmp", "wb") as file:
        np.savez(file, weights=np.asarray(weights), step=step)
    Path("checkpoint.tmp").replace(CHECKPOINT)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--pace", type=float, default=0.0, help="seconds of work shared by all")
    parser.add_argument("--every", type=int, default=20, help="steps between two checkpoints")
    options = parser.parse_args()
    if "MALLEABLE_COORDINATOR" in os.environ:
        size, rank = int(os.environ["MALLEABLE_WORLD_SIZE"]), int(os.environ["MALLEABLE_RANK"])
        jax.distributed.initialize(os.environ["MALLEABLE_COORDINATOR"], size, rank)
    rank, size = jax.process_index(), jax.process_count()
    mesh = Mesh(np.array(jax.devices()), ("data",))
    shares, everywhere = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("data",), ()))

    images, labels = load_digits(return_X_y=True)
    images = np.hstack([images / 16.0, np.ones((len(images), 1))]).astype(np.float32)
    held_out = np.arange(len(images)) % 5 == 0
    mine = np.flatnonzero(~held_out)
    saved, step = load()
    weights = jax.device_put(saved, everywhere)
    share = -(-BATCH // len(jax.devices())) * len(jax.local_devices())
    places = np.arange(rank * share, (rank + 1) * share)
    while step < options.steps:
        chosen = np.random.default_rng(step).choice(mine, BATCH, replace=False)[places % BATCH]
        batch = (images[chosen], labels[chosen], (places < BATCH).astype(np.float32))
        parts = (jax.make_array_from_process_local_data(shares, part) for part in batch)
        weights = improved(weights, *parts)
        step += 1
        time.sleep(options.pace / size)
        if step % options.every == 0 or step == options.steps:
            weights.block_until_ready()
            if rank == 0:
                save(weights, step)
                print(f"step {step} of {options.steps}: {size} processes", flush=True)
    if rank == 0:
        right = (images[held_out] @ np.asarray(weights)).argmax(axis=1) == labels[held_out]
        RESULT.write_text(json.dumps({"steps": step, "accuracy": round(float(right.mean()), 4)}))


if __name__ == "__main__":
    main()
