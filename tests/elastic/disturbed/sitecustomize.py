"""Disturbs an agent. test_rough.py puts this folder on the agent's PYTHONPATH.

TEST_SKEW_S shifts its clock by that many seconds. Each operation below TEST_SLOW_DIR takes
TEST_SLOW_S. Workers that ignore SIGTERM have TEST_STUBBORN_S. TEST_UNREACHED keeps the agent from
the host. Its workers are not disturbed.
"""

import builtins
import os
import time


def is_agent():
    with open("/proc/self/cmdline", "rb") as file:
        return b"torch.distributed.run" in file.read().split(b"\0")


def slowed(function, place, delay_s):
    def call(path, *args, **kwargs):
        if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(place):
            time.sleep(delay_s)
        return function(path, *args, **kwargs)

    return call


def skewed(clock, by_s):
    return lambda: clock() + by_s


if is_agent():
    time.time = skewed(time.time, float(os.environ.get("TEST_SKEW_S", "0")))
    slow_dir = os.environ.get("TEST_SLOW_DIR")
    if slow_dir:
        delay_s = float(os.environ["TEST_SLOW_S"])
        builtins.open = slowed(builtins.open, slow_dir, delay_s)
        for name in ("open", "rename", "unlink", "mkdir"):
            setattr(os, name, slowed(getattr(os, name), slow_dir, delay_s))
    if "TEST_STUBBORN_S" in os.environ:
        from slurm_hooks.elastic.engines.torchrun.stubborn_workers import end_stubborn

        end_stubborn.__defaults__ = (float(os.environ["TEST_STUBBORN_S"]),)
    if "TEST_UNREACHED" in os.environ:
        from slurm_hooks.elastic.engines.torchrun import store

        def cut(host, port, plain=store.connect):
            if host == os.environ["TEST_UNREACHED"]:
                raise RuntimeError("The client socket has failed to connect")
            return plain(host, port)

        store.connect = cut
