"""A search for hyper-parameters with Hugging Face's Trainer and optuna, as people write it: no line
of ours. It notes the first step of each trial, and its steps.

Arguments: work directory, steps of each trial."""

import sys
from pathlib import Path
from typing import Any

import torch
from train_notes import BATCH, Net, Samples, note_begin, note_step
from transformers import Trainer, TrainerCallback, TrainingArguments


class Notes(TrainerCallback):
    """Notes for the test."""

    def __init__(self, work: Path) -> None:
        self.work = work

    def on_train_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        note_begin(self.work, parts["model"], state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        note_step(self.work, parts["model"], state.global_step, state.epoch)


def main() -> None:
    work, steps = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    arguments = TrainingArguments(
        output_dir=str(work / "out"),
        max_steps=steps,
        per_device_train_batch_size=BATCH,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
    )
    trainer = Trainer(
        args=arguments, model_init=Net, train_dataset=Samples(), callbacks=[Notes(work)]
    )
    trainer.hyperparameter_search(
        hp_space=lambda trial: {"learning_rate": trial.suggest_float("learning_rate", 1e-4, 1e-2)},
        backend="optuna",
        n_trials=1,
    )


if __name__ == "__main__":
    main()
