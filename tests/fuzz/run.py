"""`make fuzz`: a million damaged texts for each parser, on all processors of the host.

It prints a table, and a JSON object as the last line. Failing texts are written to
tests/fuzz/corpus, and remain there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from fuzz.course import CORPUS, run
from fuzz.job_submit import JOB_SUBMIT, LUA, LUAS
from fuzz.targets import TARGETS

PART = 20_000
MOST_MEMORY = 2 << 30  # bytes of address space; a text that asks for more fails by name


@dataclass
class Sum:
    """All parts of a target's course."""

    target: str
    inputs: int = 0
    accepted: int = 0
    refused: int = 0
    slowest_ms: float = 0.0
    cpu_s: float = 0.0
    failures: int = 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=1_000_000, help="for each target")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", nargs="+", choices=TARGETS, default=list(TARGETS))
    options = parser.parse_args()
    if LUA is None:
        said = f"left out, for want of {', '.join(LUAS)}: {', '.join(JOB_SUBMIT)}"
        print(said, file=sys.stderr)
    say = Console(soft_wrap=True, width=None if sys.stdout.isatty() else 120)
    sums = {name: Sum(name) for name in options.only}
    parts = [
        (name, options.seed + start, min(PART, options.inputs - start))
        for start in range(0, options.inputs, PART)
        for name in options.only
    ]
    with Progress(console=say, disable=not say.is_terminal) as bar, ProcessPoolExecutor() as pool:
        task = bar.add_task("texts", total=options.inputs * len(sums))
        for done in as_completed([pool.submit(_part, *part) for part in parts]):
            _add(sums, *done.result())
            bar.update(task, completed=sum(each.inputs for each in sums.values()))
    _show(say, list(sums.values()), options.seed)
    failures = sum(each.failures for each in sums.values())
    figures = {"seed": options.seed, "lua": LUA, "failures": failures}
    rows = [asdict(each) for each in sums.values()]
    print(json.dumps({"benchmark": "fuzz", **figures, "rows": rows}))
    return 1 if failures else 0


def _part(name: str, seed: int, inputs: int) -> tuple[str, Sum, list[tuple[str, str]]]:
    most = resource.RLIM_INFINITY if name == "plugin" else MOST_MEMORY  # sanitizers map terabytes
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
    began = time.process_time()
    count = run(name, seed, inputs)
    took = time.process_time() - began
    slowest = 1000 * count.slowest_s
    total = Sum(name, inputs, count.accepted, count.refused, slowest, took, len(count.failures))
    return name, total, count.failures


def _add(sums: dict[str, Sum], name: str, part: Sum, failures: list[tuple[str, str]]) -> None:
    whole = sums[name]
    for field in ("inputs", "accepted", "refused", "cpu_s", "failures"):
        setattr(whole, field, getattr(whole, field) + getattr(part, field))
    whole.slowest_ms = max(whole.slowest_ms, part.slowest_ms)
    for why, text in failures:
        data = text.encode("utf-8", "surrogateescape")
        place = CORPUS / name.replace(" ", "_").replace("'", "")
        place.mkdir(parents=True, exist_ok=True)
        path = place / hashlib.sha256(data).hexdigest()[:16]
        path.write_bytes(data)
        print(f"FAILED {os.path.relpath(path)} - {why}", file=sys.stderr)


def _show(say: Console, sums: list[Sum], seed: int) -> None:
    names = ("target", "texts", "read", "refused", "slowest ms", "texts a CPU second", "failures")
    table = Table(*names, title=f"damaged texts, seed {seed}")
    for each in sums:
        speed = each.inputs / each.cpu_s if each.cpu_s else 0.0
        cells = (each.target, each.inputs, each.accepted, each.refused)
        more = (f"{each.slowest_ms:.1f}", f"{speed:.0f}", str(each.failures))
        table.add_row(*map(str, cells), *more)
    say.print(table)


if __name__ == "__main__":
    sys.exit(main())
