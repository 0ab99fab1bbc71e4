"""Search the hyper-parameters of a small network on handwritten digits, as a worker of a pool.

The study is in a journal on the shared file system, or behind a storage proxy (`proxy.py`). Each
worker takes trials until all are done. `tasks.py` sees to lost workers.
"""

from __future__ import annotations

import argparse
import os
import pickle
import signal
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.storages import BaseStorage, GrpcStorageProxy, JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import TrialState
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from tasks import LOCK_GRACE_S, Attempt, Beats, Search, this_worker

CLASSES = np.arange(10)
PROXY_S = 120.0


def main() -> int:
    options = read_options()
    leaving = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: leaving.set())
    options.place.mkdir(parents=True, exist_ok=True)
    study = open_study(options)
    if options.show:
        return show(study)
    me = this_worker()
    beats = Beats(options.place, me, options.silence)
    search = Search(study, options.trials, options.place, me, beats, leaving)
    digits = load_digits(return_X_y=True)
    code = search.work(lambda attempt: objective(attempt, digits, options))
    return code or show(study)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--place", type=Path, default=Path("study"), help="directory of the study")
    parser.add_argument("--trials", type=int, default=40, help="results wanted")
    parser.add_argument("--epochs", type=int, default=20, help="epochs of each full trial")
    parser.add_argument("--pace", type=float, default=0.0, help="seconds added to each epoch")
    parser.add_argument("--proxy", action="store_true", help="use the storage of proxy.py")
    parser.add_argument("--silence", type=float, default=60.0, help="of a lost worker, in seconds")
    parser.add_argument("--no-pruning", action="store_true", help="train all trials to their end")
    parser.add_argument("--show", action="store_true", help="only print the study")
    return parser.parse_args()


def open_study(options: argparse.Namespace) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(
        study_name="digits",
        storage=proxied(options.place) if options.proxy else journal(options.place),
        sampler=optuna.samplers.TPESampler(constant_liar=True),
        pruner=optuna.pruners.NopPruner() if options.no_pruning else median(),
        direction="maximize",
        load_if_exists=True,
    )


def median() -> optuna.pruners.BasePruner:
    return optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=3)


def journal(place: Path) -> BaseStorage:
    """A file to which all workers append. Its lock is right on NFS 3 and newer, where creating a
    file is exclusive."""
    file = str((place / "journal.log").absolute())
    return JournalStorage(JournalFileBackend(file, JournalFileOpenLock(file, LOCK_GRACE_S)))


def proxied(place: Path) -> BaseStorage:
    """The database of proxy.py, which writes its address into the study's directory."""
    deadline = time.monotonic() + PROXY_S
    while not (address := place / "proxy.address").exists():
        if time.monotonic() > deadline:
            sys.exit(f"no storage proxy has written {address}: sbatch proxy.sh")
        time.sleep(0.5)
    host, _, port = address.read_text().strip().rpartition(":")
    proxy = GrpcStorageProxy(host=host, port=int(port))
    proxy.wait_server_ready(timeout=PROXY_S)
    return proxy


def objective(attempt: Attempt, digits: tuple[Any, Any], options: argparse.Namespace) -> float:
    """Accuracy on the held-out fifth after all epochs, continued from a lost attempt."""
    trial = attempt.trial
    width = trial.suggest_int("width", 4, 64, log=True)
    rate = trial.suggest_float("rate", 1e-4, 1e-1, log=True)
    decay = trial.suggest_float("decay", 1e-6, 1e-1, log=True)
    model, history = load(attempt.checkpoint, trial.params) or (
        MLPClassifier((width,), learning_rate_init=rate, alpha=decay, random_state=0),
        [],
    )
    if history:
        trial.set_user_attr("resumed_at", len(history))
    for step, value in enumerate(history):  # so that pruning compares like with like
        trial.report(value, step)
    train_x, test_x, train_y, test_y = train_test_split(*digits, test_size=0.2, random_state=0)
    for epoch in range(len(history), options.epochs):
        model.partial_fit(train_x / 16, train_y, classes=CLASSES)
        time.sleep(options.pace)
        history.append(float(model.score(test_x / 16, test_y)))
        save(attempt.checkpoint, (trial.params, model, history))
        log(trial.number, epoch, attempt.checkpoint)
        attempt.report(history[-1], epoch)
    return history[-1]


def log(number: int, epoch: int, checkpoint: Path) -> None:
    print(f"trial {number} {checkpoint.stem} epoch {epoch} on {os.uname().nodename}", flush=True)


def load(file: Path, params: dict[str, Any]) -> tuple[MLPClassifier, list[float]] | None:
    """The state that an earlier attempt with the same parameters has saved."""
    if not file.exists():
        return None
    saved, model, history = pickle.loads(file.read_bytes())  # written by our own workers
    return (model, history) if saved == params else None


def save(file: Path, content: object) -> None:
    """Save as a whole or not at all."""
    draft = file.with_suffix(f".{os.getpid()}.draft")
    draft.write_bytes(pickle.dumps(content))
    draft.replace(file)


def show(study: optuna.Study) -> int:
    """Print a line for each state, and the best trial."""
    trials = study.get_trials(deepcopy=False)
    for state in TrialState:
        count = sum(trial.state is state for trial in trials)
        print(f"{state.name.lower():9}{count}")
    if any(trial.state is TrialState.COMPLETE for trial in trials):
        print(f"best     {study.best_value:.3f} {study.best_params}")
    return 0


if __name__ == "__main__":
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    sys.exit(main())
