"""What each Python of the programs' tests does first: it notes steps, and does what a GPU would.

With this folder on PYTHONPATH, every step of torch's first Adam in a process is a line of
STEPS_DIR: when, which step by Adam's own count, and the variables of the process. The file `pace`
there has the seconds to wait before a step, so that a training lasts as long as a test has changes
for it. Two further changes let programs for GPUs run on CPUs. Nothing here imports torch or the
project: a function runs once the program has imported the module that it is about.
"""

import contextlib
import importlib.machinery
import json
import os
import sys
import time

STEPS_DIR = os.environ.get("STEPS_DIR", "")


def note_steps(optimizer_module):
    if not STEPS_DIR:
        return
    first = []

    def note(optimizer, _arguments, _keywords):
        counts = [int(each["step"]) for each in optimizer.state.values() if "step" in each]
        # torch.distributed.checkpoint makes a step at rate 0 before it loads, to create the state.
        if not counts or not any(group["lr"] for group in optimizer.param_groups):
            return
        first[:] = first or [optimizer]
        if first[0] is optimizer:
            _write(max(counts))

    def wait(optimizer, _arguments, _keywords):
        if first and first[0] is not optimizer:
            return
        with contextlib.suppress(OSError), open(os.path.join(STEPS_DIR, "pace")) as file:
            time.sleep(float(file.read() or 0))

    optimizer_module.register_optimizer_step_pre_hook(wait)
    optimizer_module.register_optimizer_step_post_hook(note)


def _write(step):
    pid, now = os.getpid(), time.time()
    rank, world = (int(os.environ.get(name, "0")) for name in ("RANK", "WORLD_SIZE"))
    line = json.dumps({"t": now, "step": step, "rank": rank, "world": world, "pid": pid})
    path = os.path.join(STEPS_DIR, f"steps-{pid}.jsonl")
    with open(path, "a", encoding="utf-8") as file:
        file.write(line + "\n")


def drop_device_ids(distributed):
    """open_clip and timm name their device to DDP, which refuses that for a CPU."""
    ddp = distributed.DistributedDataParallel
    usual = ddp.__init__

    def begin(self, module, device_ids=None, **others):
        on_cpu = next(module.parameters()).device.type == "cpu"
        usual(self, module, device_ids=None if on_cpu else device_ids, **others)

    ddp.__init__ = begin


def declare_operators(extension):
    """PyPI's torchvision fits PyPI's torch, with CUDA. Beside another it lacks its compiled part.

    Its Python part then needs these two names. No program here uses them.
    """
    if extension._has_ops():
        return
    import torch  # noqa: PLC0415

    extension.library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        extension.library.define(f"{name}(Tensor dets, Tensor scores, float at) -> Tensor")


AFTER = {
    "torch.optim.optimizer": note_steps,
    "torch.nn.parallel.distributed": drop_device_ids,
    "torchvision.extension": declare_operators,
}


class After:
    """Calls a function of AFTER right after the import of its module."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in AFTER:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        usual = spec.loader.exec_module

        def execute(module):
            usual(module)
            AFTER[name](module)

        spec.loader.exec_module = execute
        return spec


sys.meta_path.insert(0, After)
