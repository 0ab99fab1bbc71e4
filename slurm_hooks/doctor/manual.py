"""Print docs/admins/doctor.md from the checks: `python -m slurm_hooks.doctor.manual`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from slurm_hooks.doctor.catalogue import CHECKS
from slurm_hooks.doctor.finding import Category, Check
from slurm_hooks.report.pages import address

WIDTH = 100
_INTRODUCTION = """\
# The checks of `malleable doctor`

    malleable doctor --pre            # before the installation: the lines to write
    malleable doctor                  # on the controller or a submit host
    malleable doctor --node           # on a compute node, best as a user with jobs there
    malleable doctor --python PATH    # a Python environment of users
    malleable doctor --job ID         # a job, and the reasons for its size
    malleable doctor kill-wait clocks # only these checks; `--list` lists all checks
    malleable doctor --explain clocks # the text of a check, without running it

Doctor is read-only.
It asks slurmctld once, asks the accounting database and systemd if they exist, and reads a few
files.
Each check prints ok, note, warning, error, or skipped with the reason.
A finding has these parts:

* the observation
* the line to write, and its file
* the harm
* the place on this page

Doctor prints whole lines of `slurm.conf` with all its changes, so that you can replace the old
lines.
At the end it lists all steps, each once and in an order that works: files, restarts, commands.
Suggestions of notes are optional, and not in that list.

| exit code | meaning |
|---|---|
| 0 | all is well (notes do not count) |
| 1 | there are warnings, or no check could run |
| 2 | there are errors |
| 3 | with `--pre`: only steps of the installation are left |

* `--json` prints a JSON object with the same content.
* With `--pre`, missing parts of this package are notes.
* With `--job`, a job with fewer nodes than it needs is a warning. A job that Slurm does not have is
  an error.

Doctor checks only the current host.
It reads the controller's files on the controller only.
Run `malleable doctor --node` on each compute node (`clush -a malleable doctor --node`).
A configless cluster needs this too: nodes get `plugstack.conf`, but not the plugin.
As a user, run `srun --nodes=4 malleable doctor --node` in the directory where jobs run.
It also checks that nodes see each other's files there.

As root, doctor runs no program that a user could have written:

* `--python` needs an interpreter that only root can change, with all directories above it.
* The directory for `hard-links` must be root's.
* Users' logs are not read.

Run these checks as the user.

## Bug reports
`malleable bundle` lists the contents of its archive, then writes it so that only you can read it.
The archive has these files:

* the settings, and the findings of doctor
* `scontrol show config` without passwords and keys
* a snapshot for `malleable plan --snapshot`
* versions, and the output of the last ticks

Words that differ from bundle to bundle replace the names of hosts, users, accounts, reservations
and the cluster, and mail and network addresses.
The archive has no names of jobs, and no scripts or output of users.
It keeps the names of partitions, QOS, features and paths, so read it before you send it.

## Checks of your own
A small package can add checks of your site: [a check in ten minutes](../developers/check.md).
"""


def manual(checks: Sequence[Check]) -> str:
    """The whole page."""
    return "\n".join([_INTRODUCTION, *_chapters(checks)])


def _chapters(checks: Sequence[Check]) -> Iterator[str]:
    for category in Category:
        group = [check for check in checks if check.category is category]
        if group:
            yield f"## {category.value[0].upper()}{category.value[1:]}\n"
        for check in group:
            yield f"### {check.id}\nFine if {check.title}.\n\n{textwrap.fill(check.why, WIDTH)}\n"


def place() -> str:
    """Return the address of this page on this host."""
    return address("admins/doctor")


if __name__ == "__main__":
    print(manual(CHECKS), end="")
