"""Measure the cost of observation for a training process without our library.

The costs are for each step, each drawn batch, each checkpoint, and the start. Blocks with and
without observation take turns in a process. Processor time counts, so other work on the host
disturbs little.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from parts.printing import arguments, in_turns, middle, seconds_of, show, tell

STEP_MS = 10.0  # a quick step of a real training
STEPS, SAVES = 2000, 50


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--blocks", type=int, default=40, help="of calls, with and without each")
    blocks = parser.parse_args().blocks
    begin()
    step_us, draw_us = step_cost(blocks), draw_cost(blocks)
    row = {
        "step_us": step_us,
        "draw_us": draw_us,
        f"percent_of_{STEP_MS:g}_ms": round((step_us + draw_us) / STEP_MS / 10, 4),
        "save_us": save_cost(blocks),
        "start_without_torch_ms": start_cost(max(5, blocks // 4)),
    }
    show("what observation adds", [row])
    return tell("observe-cost", **row)


def begin() -> None:
    """Observe this process, as an agent's worker is observed."""
    from slurm_hooks.elastic.mailbox import Mailbox  # noqa: PLC0415  (--help needs no torch)
    from slurm_hooks.elastic.script import observation  # noqa: PLC0415

    mailbox = Mailbox()
    os.environ.update(mailbox.environment())
    observation.begin(os.environ)


def paired(plain: Callable[[], object], seen: Callable[[], object], blocks: int, n: int) -> float:
    """Return the median difference of neighbouring blocks of n calls, in microseconds a call."""

    def repeat(run: Callable[[], object]) -> None:
        for _ in range(n):
            run()

    both = (partial(seconds_of, partial(repeat, run), time.thread_time) for run in (plain, seen))
    return middle((1e6 * (b - a) / n for a, b in in_turns(*both, blocks)), 2) or 0.0


def step_cost(blocks: int) -> float:
    """The hook after an optimizer's step, with its reports to the agent once a second."""
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
    """The wrapper around the next batch of a DataLoader."""
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
        pairs = in_turns(
            lambda: _child_s([*words, str(script)]),
            lambda: _child_s([*words, "-c", PROGRAM, str(script)]),
            rounds,
        )
    return middle((1000 * (ours - bare) for bare, ours in pairs), 1) or 0.0


def _child_s(words: list[str]) -> float:
    before = os.times()
    subprocess.run(words, check=True, timeout=60)
    after = os.times()
    return after.children_user + after.children_system - sum(before[2:4])


if __name__ == "__main__":
    sys.exit(main())
