"""Programs that users know, each with the line that its authors publish, and data for them.

Where a wheel lacks the script, a file of this folder stands for it. The data are made on the spot:
small models with random weights, and texts of made-up words.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Program:
    """`line` is the job's, with `{data}` and `{out}`. A planned growth repeats `repeats` steps at
    most: the steps between two of the program's own files, or none with the job's hooks.
    """

    name: str
    line: str
    repeats: int
    prepare: Callable[[Path], None] = lambda data: None


def write_clip(data: Path) -> None:
    """A model of open_clip with two small towers."""
    vision = {"image_size": 32, "layers": 2, "width": 64, "patch_size": 16}
    text = {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1}
    model = {"embed_dim": 32, "vision_cfg": vision, "text_cfg": text}
    config = json.dumps({"model_cfg": model, "preprocess_cfg": {}})
    (data / "open_clip_config.json").write_text(config)


def write_language(data: Path) -> None:
    """A small language model and texts, written by a process of its own: see `observer`.

    On the command line `--resume_from_checkpoint True` is the name of a directory.
    """
    (data / "sft.yaml").write_text("resume_from_checkpoint: true\n")
    command = [sys.executable, HERE / "make_language.py", data]
    environment = {**os.environ, "PYTHONPATH": str(HERE / "observer")}
    subprocess.run(command, env=environment, check=True)


TRL_CONFIG = '$(python -c "import trl; print(trl.__path__[0])")/accelerate_configs/multi_gpu.yaml'
PROGRAMS = (
    Program("smallest", f"torchrun {HERE}/train_smallest.py {{out}} 1500", 10),
    Program(
        "open_clip",
        # Without the two dashes torchrun takes --logs for its own.
        "torchrun -m -- open_clip_train.main --model local-dir:{data} --logs {out}/logs"
        " --dataset-type synthetic --train-num-samples 320 --batch-size 4 --epochs 50"
        " --warmup 10 --workers 2 --device cpu --precision fp32"
        " --name run --resume latest --save-most-recent",
        40,
        write_clip,
    ),
    Program("timm", f"torchrun {HERE}/train_timm.py {{out}} 60", 32),
    Program(
        "TRL",
        f"accelerate launch --config_file {TRL_CONFIG} --num_processes 1 --mixed_precision no"
        " -m trl.scripts.sft --config {data}/sft.yaml --model_name_or_path {data}/model"
        " --dataset_name {data}/texts --output_dir {out}/sft --use_peft --use_cpu --bf16 False"
        " --per_device_train_batch_size 2 --gradient_accumulation_steps 2"
        " --max_steps 1500 --save_steps 150",
        0,
        write_language,
    ),
    # Lightning counts the steps of both optimizers.
    Program("Lightning's GAN", f"TRAIN_START_S=0 torchrun {HERE}/train_gan.py {{out}} 3000", 0),
    Program("Composer", f"torchrun {HERE}/train_composer.py {{out}} 60", 32),
    Program("FSDP2 with DCP", f"TRAIN_NOTICE=1 torchrun {HERE}/train_fsdp.py {{out}} 1500", 0),
)
