"""Starts torchrun with shorter times of the agent: `hastened.py MODULE.NAME=SECONDS... TRAIN.PY`.

The modules are those of slurm_hooks.elastic. A module that others take a time from comes first.
"""

import sys
from importlib import import_module
from itertools import takewhile

words = list(takewhile(lambda word: "=" in word and not word.startswith("-"), sys.argv[1:]))
for word in words:
    name, _, seconds = word.partition("=")
    module, _, time = name.rpartition(".")
    changed = import_module(f"slurm_hooks.elastic.{module}")
    assert isinstance(getattr(changed, time), (int, float)), name
    setattr(changed, time, float(seconds))
del sys.argv[1 : 1 + len(words)]
# It imports the agent, whose modules have copies of each other's times.
import_module("torch.distributed.run").main()
