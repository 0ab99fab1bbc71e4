"""timm's own training loop in short, since its wheel has no train.py: its models, loader, saver.

Arguments: output directory, epochs. The test for the checkpoint is in Python, as checklist.md says.
"""

import os
import sys

import timm
import timm.data
import timm.optim
import timm.scheduler
import timm.utils
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torchvision.datasets import FakeData

OUT, EPOCHS = sys.argv[1], int(sys.argv[2])
SIZE, CLASSES, BATCH = (3, 64, 64), 8, 4


def main() -> None:
    torch.manual_seed(5)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = timm.create_model("test_vit", num_classes=CLASSES, img_size=SIZE[1:])
    optimizer = timm.optim.create_optimizer_v2(model, opt="adamw", lr=1e-3)
    saver = None
    if dist.get_rank() == 0:
        saver = timm.utils.CheckpointSaver(model, optimizer, checkpoint_dir=OUT, max_history=2)
    last, first = os.path.join(OUT, "last.pth.tar"), 0
    if os.path.exists(last):
        first = timm.models.resume_checkpoint(model, last, optimizer, log_info=dist.get_rank() == 0)
    schedule, _ = timm.scheduler.create_scheduler_v2(optimizer, num_epochs=EPOCHS)
    schedule.step(first)
    parallel = DistributedDataParallel(model, device_ids=[torch.device("cpu")])
    samples = FakeData(256, SIZE, CLASSES)
    loader = timm.data.create_loader(
        samples,
        SIZE,
        BATCH,
        is_training=True,
        num_workers=2,
        distributed=True,
        use_prefetcher=False,
        device=torch.device("cpu"),
    )
    for epoch in range(first, EPOCHS):
        loader.sampler.set_epoch(epoch)
        loss = None
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(parallel(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step(epoch + 1)
        if saver:
            saver.save_checkpoint(epoch, metric=-float(loss))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
