"""The file system of a training's directory is full for a while, or cannot be written."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator

import pytest

from machines.course import Site, Training
from machines.root import NODES

pytestmark = [pytest.mark.machines, pytest.mark.timeout(3600)]
AWAY_S = 30  # and the look into the file, since agents give up after a minute
HOME = "/shared/home/ann/disk"
EXPORT = "exportfs -o {},no_root_squash,no_subtree_check,fsid=7 10.99.0.0/24:" + HOME
# what begins it, what ends it
CASES = {
    "full": (f"cat /dev/zero >{HOME}/fill || true", f"rm {HOME}/fill"),
    "read-only": (EXPORT.format("ro"), EXPORT.format("rw")),
}


@pytest.fixture(scope="module")
def training(site: Site) -> Iterator[Training]:
    """A training whose directory is its own file system."""
    mount = f"mount -t tmpfs -o size=64m,uid=1001 disk {HOME}"
    site.ctl.run(f"mkdir -p {HOME} && {mount} && {EXPORT.format('rw')}")
    with site.training("disk", "train_more.py") as training:
        training.await_steps()
        yield training


@pytest.mark.parametrize("fault", CASES)
def test_a_training_outlives_it(training: Training, fault: str) -> None:
    """Its script ends with an error of `save`. Its agents wait, and it goes on with the step that
    nodes hold in memory, which is later than the file's.
    """
    site, (begin, end) = training.site, CASES[fault]
    runs = training.restarts()
    site.ctl.run(begin)
    try:
        time.sleep(AWAY_S)
        look = f"import torch; print(torch.load('{HOME}/checkpoint_more.pt')['step'])"
        in_file = int(site.ctl.run(f'{sys.prefix}/bin/python -c "{look}"'))
    finally:
        site.ctl.run(end)
    began = time.monotonic()
    training.await_steps()
    site.note(f"file system {fault} for a while", "next checkpoint", time.monotonic() - began)
    assert int(re.findall(r"step (\d+) of", training.logs())[-1]) > in_file
    assert len(training.places()) == len(NODES)
    assert training.restarts() == runs
