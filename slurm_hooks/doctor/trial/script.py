"""The commands of the active check: a malleable job without torch, and an ordinary job.

Neither job writes a file. The malleable job ends automatically after a while, even if the cleaning
fails.
"""

from __future__ import annotations

from dataclasses import dataclass

from slurm_hooks.slurm.text import Command

FINISH = "USR1"
"""The signal that ends the training successfully. It is ignored until the program has started."""

_TRAINING = f"""import signal, sys
signal.signal(signal.SIG{FINISH}, lambda *_: sys.exit(0))
signal.signal(signal.SIGALRM, lambda *_: sys.exit(0))
signal.alarm({{limit_s}})
while True: signal.pause()"""
_SCRIPT = f"""#!/bin/sh
trap '' {FINISH}
exec malleable run --grace=1 -- python3 -c '{_TRAINING}'
"""
_PLAIN_SCRIPT = f"""#!/bin/sh
trap 'exit 0' {FINISH}
n=0
while [ $n -lt {{limit_s}} ]; do sleep 1; n=$((n + 1)); done
"""


@dataclass(frozen=True)
class Wish:
    """The options of the test. Empty words leave the choice to Slurm and the site.

    Both jobs have the name `name`, which identifies them. With `is_plain` the job needs no Python
    on the nodes. Then it has no agents, and so only a single fragment.
    """

    name: str
    nodes: int = 2
    partition: str = ""
    ordinary_partition: str = ""
    account: str = ""
    constraint: str = ""
    limit_s: float = 180.0
    is_plain: bool = False


def submit_malleable(wish: Wish) -> Command:
    """Submit the malleable job, and print its id."""
    options = _options(wish, wish.partition)
    options += (f"--constraint={wish.constraint}",) if wish.constraint else ()
    text = _PLAIN_SCRIPT if wish.is_plain else _SCRIPT
    script = text.format(limit_s=int(wish.limit_s) + 60)
    return Command(("sbatch", f"--malleable=1-{wish.nodes}", *options), script)


def submit_ordinary(wish: Wish, partition: str, node: str, seconds: int) -> Command:
    """Submit an ordinary job that takes this whole node for `seconds`."""
    own = ("--exclusive", "--nodes=1", f"--nodelist={node}", "--time=2")
    argv = ("sbatch", *_options(wish, partition), *own)
    return Command(argv, f"#!/bin/sh\nexec sleep {seconds}\n")


def finish(wish: Wish, job_id: int) -> Command:
    """Tell the training in all running fragments that it has finished."""
    return Command(("scancel", f"--signal={FINISH}", "--full", f"--name={wish.name}", f"{job_id}"))


def cancel_all(wish: Wish) -> Command:
    """Cancel every job of this trial, also jobs without a known id."""
    return Command(("scancel", f"--name={wish.name}"))


def what_is_left(wish: Wish) -> Command:
    """The jobs of this trial that wait, run, or are about to end."""
    return Command(("squeue", "--noheader", "--all", f"--name={wish.name}", "--format=%i %T"))


def state_of(job_id: int) -> Command:
    """State and reason of a job, also if it has ended."""
    asked = ("--states=all", f"--jobs={job_id}", "-OState:|,Reason:|")
    return Command(("squeue", "--noheader", *asked))


def partitions_of(node: str) -> Command:
    """The partitions that are up and have this node. The default partition ends with a star."""
    return Command(("sinfo", "--noheader", f"--nodes={node}", "--format=%P %a"))


def pick_partition(text: str, ours: tuple[str, ...]) -> str:
    """The partition for an ordinary job, from the answer of `partitions_of`: Slurm's default if
    listed, else the first partition outside `ours`, else empty."""
    rows = [line.split() for line in text.splitlines()]
    up = [row[0] for row in rows if len(row) == 2 and row[1] == "up"]
    others = [name for name in up if name.rstrip("*") not in ours]
    default = [name for name in others if name.endswith("*")]
    return (default or others or [""])[0].rstrip("*")


def _options(wish: Wish, partition: str) -> tuple[str, ...]:
    chosen = (("--partition", partition), ("--account", wish.account))
    own = tuple(f"{option}={word}" for option, word in chosen if word)
    return ("--parsable", f"--job-name={wish.name}", "--output=/dev/null", "--chdir=/", *own)
