"""What being observed costs a training process that says nothing: each step, each batch drawn, each
checkpoint, and the start. Blocks with and without take turns in one process, and processor time is
counted, so other work on the host disturbs little. The last line is one JSON object.

    python benchmarks/observe_cost.py [--blocks 40]
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

STEP_MS = 10.0  # a quick step of a real training
STEPS, SAVES = 2000, 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--blocks", type=int, default=40)
    blocks = parser.parse_args().blocks
    step_us = step_cost(blocks)
    draw_us = draw_cost(blocks)
    save_us = save_cost(blocks)
    start_ms = start_cost(max(5, blocks // 4))
    share = (step_us + draw_us) / STEP_MS / 10
    print(f"a step      {step_us:8.2f} us")
    print(f"a batch     {draw_us:8.2f} us: together {share:.4f} % of a step of {STEP_MS:g} ms")
    print(f"a save      {save_us:8.2f} us")
    print(f"a start     {start_ms:8.2f} ms without torch")
    found = {"step_us": step_us, "draw_us": draw_us, "percent": share}
    print(json.dumps({**found, "save_us": save_us, "start": start_ms}))


def paired(plain: Callable[[], None], seen: Callable[[], None], blocks: int, count: int) -> float:
    """Median of the differences of neighbouring blocks, in microseconds for each call."""
    found = []
    for number in range(blocks):
        order = (plain, seen) if number % 2 else (seen, plain)
        spent = {run: _spent(run, count) for run in order}
        found.append((spent[seen] - spent[plain]) / count * 1e6)
    return round(statistics.median(found), 2)


def _spent(run: Callable[[], None], count: int) -> float:
    began = time.thread_time()
    for _ in range(count):
        run()
    return time.thread_time() - began


def step_cost(blocks: int) -> float:
    """The hook after an optimizer's step, with what it tells the agent once a second."""
    import torch  # noqa: PLC0415
    from torch.optim.optimizer import _global_optimizer_post_hooks as hooks  # noqa: PLC0415

    weight = torch.nn.Parameter(torch.ones(1))
    weight.grad = torch.ones(1)
    optimizer = torch.optim.SGD([weight], lr=0.0)
    ours = dict(hooks)
    assert len(ours) >= 1

    def seen() -> None:
        hooks.update(ours)
        optimizer.step()

    def plain() -> None:
        hooks.clear()
        optimizer.step()

    return paired(plain, seen, blocks, STEPS)


def draw_cost(blocks: int) -> float:
    """The wrapper around what a DataLoader gives next."""
    from torch.utils.data import dataloader  # noqa: PLC0415

    loader = dataloader.DataLoader([1.0] * (STEPS + 1), batch_size=1)
    kind = dataloader._BaseDataLoaderIter
    ours = kind.__next__
    iterator = [iter(loader)]

    def draw_with(function: Callable[[object], object]) -> Callable[[], None]:
        def draw() -> None:
            try:
                function(iterator[0])
            except StopIteration:
                iterator[0] = iter(loader)

        return draw

    return paired(draw_with(ours.__wrapped__), draw_with(ours), blocks, STEPS)


def save_cost(blocks: int) -> float:
    """The wrapper around torch.save."""
    import torch  # noqa: PLC0415

    plain, content = torch.save.__wrapped__, {"a": torch.ones(1000)}
    return paired(
        lambda: plain(content, io.BytesIO()),
        lambda: torch.save(content, io.BytesIO()),
        blocks,
        SAVES,
    )


def start_cost(rounds: int) -> float:
    """Processor time of an empty script, started by our words and by the interpreter."""
    from slurm_hooks.elastic.engines.torchrun.cold_worker import PROGRAM  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as place:
        script = Path(place) / "script.py"
        script.write_text("")
        words = [sys.executable, "-u"]
        found = [
            _child_s([*words, "-c", PROGRAM, str(script)]) - _child_s([*words, str(script)])
            for _ in range(rounds)
        ]
    return round(1000 * statistics.median(found), 1)


def _child_s(words: list[str]) -> float:
    before = os.times()
    subprocess.run(words, check=True, timeout=60)
    after = os.times()
    return after.children_user + after.children_system - sum(before[2:4])


if __name__ == "__main__":
    from slurm_hooks.elastic.mailbox import Mailbox
    from slurm_hooks.elastic.script import observation

    mailbox = Mailbox()
    os.environ.update(mailbox.environment())
    observation.begin(os.environ)
    main()
