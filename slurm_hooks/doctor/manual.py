"""Prints docs/admins/doctor.md from the checks: `python -m slurm_hooks.doctor.manual`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from slurm_hooks.doctor.catalogue import CHECKS
from slurm_hooks.doctor.finding import Category, Check

WIDTH = 100
INSTALLED = Path("/usr/share/doc/slurm-malleable")
TREE = Path(__file__).resolve().parents[2]
PAGES = (
    INSTALLED / "html" / "admins" / "doctor.html",
    INSTALLED / "admins" / "doctor.md",
    TREE / "docs" / "admins" / "doctor.md",
)
_INTRODUCTION = """\
# What `malleable doctor` checks

    malleable doctor --pre            # before anything is switched on: the lines to write
    malleable doctor                  # on the controller or a submit host
    malleable doctor --node           # on a compute node, best as the user who submits there
    malleable doctor --python PATH    # a Python environment of users
    malleable doctor --job ID         # one job: why it is where it is
    malleable doctor kill-wait clocks # these checks alone; `--list` shows them all
    malleable doctor --explain clocks # what a check looks for and why, without looking

It changes nothing. It asks slurmctld once, the accounting database and systemd if they are there,
reads a few files, and says for each check: ok, note, warning, error, or skipped and why. A finding
comes with what was seen, the line to write and the file it belongs in, why it matters, and the
place on this page. Lines of `slurm.conf` are printed whole, with all that doctor would change in
them, so that they can be pasted over the old ones. At the end stands all that is to be done, once
each and in an order that works: files, what to restart, commands. What notes suggest is a matter of
taste and not among it.

Its exit code is 0 if all is well (notes do not count), 1 if there are warnings or nothing could be
looked at, 2 if there are errors. `--json` prints the same as one JSON object. With `--pre`, what is
missing of this package is a note, and the exit code is 3 if such steps are all that is left to do.
With `--job`, a job that has fewer nodes than it needs is a warning, and a job that Slurm does not
know is an error.

What another host has cannot be seen from here. Files of the controller are read on the controller
only; run `malleable doctor --node` on each compute node (`clush -a malleable doctor --node`), on a
configless cluster too: it passes on `plugstack.conf`, but not the plugin. As a user, in the
directory where jobs run, `srun --nodes=4 malleable doctor --node` also shows whether the nodes see
there what the others write.

As root, doctor runs nothing that a user could have written: `--python` takes an interpreter that
belongs to root all the way up, the directory for `hard-links` must be root's, and users' logs are
not read. Run these as the user.

## Bug reports
`malleable bundle` prints what it is about to write, then writes one archive that only you can read:
settings, the findings of doctor, `scontrol show config` without passwords and keys, a snapshot that
`malleable plan --snapshot` reads, versions, and what the last ticks printed. Names of hosts, users,
accounts, reservations and the cluster, mail and network addresses are replaced by words that differ
from bundle to bundle; names of jobs are not asked for, scripts and output of users not read.
Partitions, QOS, features and paths are kept: look through it before you pass it on.

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
    """Return the page of this installation: the address for a browser, or a file."""
    page = next((path for path in PAGES if path.exists()), Path("docs/admins/doctor.md"))
    return page.as_uri() if page.suffix == ".html" else str(page)


if __name__ == "__main__":
    print(manual(CHECKS), end="")
