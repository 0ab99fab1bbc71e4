"""A training with Hugging Face's Trainer as people write it, resuming from the last checkpoint. It
notes its steps and the samples of each.

Arguments: work directory, steps."""

import os
import sys
from pathlib import Path
from typing import Any

import torch
from train_notes import BATCH, Net, Samples, note_begin, note_step, wait_at_the_end
from transformers import Trainer, TrainerCallback, TrainingArguments


class Notes(TrainerCallback):
    """Notes for the test."""

    def __init__(self, work: Path, net: Net) -> None:
        self.work, self.net = work, net

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        note_begin(self.work, self.net, state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        note_step(self.work, self.net, state.global_step, state.epoch)


def main() -> None:
    work, steps = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    arguments = TrainingArguments(
        output_dir=str(work / "out"),
        max_steps=steps,
        per_device_train_batch_size=BATCH,
        accelerator_config={"split_batches": True},
        save_steps=int(os.environ.get("TRAIN_SAVE", "1000")),
        logging_steps=5,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        dataloader_num_workers=2,
    )
    net = Net()
    trainer = Trainer(net, arguments, train_dataset=Samples(), callbacks=[Notes(work, net)])
    trainer.train(resume_from_checkpoint=True)
    wait_at_the_end(work)
    if trainer.is_world_process_zero():
        (work / "finished").write_text(str(trainer.state.global_step))


if __name__ == "__main__":
    main()
