"""Train a softmax regression on handwritten digits over MPI, as an ordinary mpi4py script.

It is data-parallel and resumes from `checkpoint.npz` with any number of ranks. The global batch
depends on the step alone, so no digit is lost or used twice.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI
from sklearn.datasets import load_digits

BATCH, RATE = 64, 0.3
CHECKPOINT, RESULT = Path("checkpoint.npz"), Path("result.json")


def gradient(weights: np.ndarray, images: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The sum over the images, (features, classes)."""
    scores = images @ weights
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    chances[np.arange(len(labels)), labels] -= 1
    return images.T @ chances


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument(
        "--pace", type=float, default=0.0, help="seconds of work shared by all ranks"
    )
    parser.add_argument("--every", type=int, default=20, help="steps between two checkpoints")
    options = parser.parse_args()
    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    images, labels = load_digits(return_X_y=True)
    images = np.hstack([images / 16.0, np.ones((len(images), 1))])
    held_out = np.arange(len(images)) % 5 == 0
    mine, step = np.flatnonzero(~held_out), 0
    weights = np.zeros((images.shape[1], 10))
    if CHECKPOINT.exists():
        with np.load(CHECKPOINT) as saved:
            weights, step = saved["weights"], int(saved["step"])
    weights, step = world.bcast((weights, step), root=0)
    while step < options.steps:
        chosen = np.random.default_rng(step).choice(mine, BATCH, replace=False)[rank::size]
        summed = np.empty_like(weights)
        world.Allreduce(gradient(weights, images[chosen], labels[chosen]), summed)
        weights -= RATE * summed / BATCH
        step += 1
        time.sleep(options.pace / size)
        if rank == 0 and (step % options.every == 0 or step == options.steps):
            with open("checkpoint.tmp", "wb") as file:
                np.savez(file, weights=weights, step=step)
            Path("checkpoint.tmp").replace(CHECKPOINT)
            print(f"step {step} of {options.steps}: {size} ranks", flush=True)
    if rank == 0:
        right = (images[held_out] @ weights).argmax(axis=1) == labels[held_out]
        RESULT.write_text(json.dumps({"steps": step, "accuracy": round(float(right.mean()), 4)}))


if __name__ == "__main__":
    main()
