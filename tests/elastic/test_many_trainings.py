"""A single process trains many times, as a search for hyper-parameters does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

pytestmark = [pytest.mark.torch]

SEARCH = """
import gc, os, signal, sys, threading, weakref
from slurm_hooks.elastic.mailbox import Mailbox
os.environ.update(Mailbox().environment())
import torch
from slurm_hooks.elastic import Checkpoint

def train(path):
    checkpoint = Checkpoint(path)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.Adam(model.parameters())
    checkpoint.watch(model=model, optimizer=optimizer)
    model(torch.ones(4)).sum().backward()
    optimizer.step()
    checkpoint.reached(1)
    checkpoint.end()
    return weakref.ref(model)

def held():
    deadline = 200
    while threading.active_count() > 1 and deadline:
        deadline -= 1
        threading.Event().wait(0.01)
    gc.collect()  # a thread holds what it works on
    return threading.active_count(), len(os.listdir("/proc/self/fd"))

before, plain_exit = held(), sys.exit
models = [train(sys.argv[1]) for _ in range(10)]
assert held() == before, (before, held())
assert not any(model() for model in models)
assert sys.excepthook is sys.__excepthook__
assert sys.exit is plain_exit
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
"""

HANDLERS = """
import os, signal, sys
from slurm_hooks.elastic.mailbox import Mailbox
os.environ.update(Mailbox().environment())
import torch
from slurm_hooks.elastic import Checkpoint

calls = []
checkpoint = Checkpoint(sys.argv[1])
checkpoint.watch(model=torch.nn.Linear(2, 2))
chained = signal.getsignal(signal.SIGTERM)

def own(number, frame):
    calls.append(number)
    chained(number, frame)

signal.signal(signal.SIGTERM, own)
checkpoint.reached(1)
checkpoint.end()
assert signal.getsignal(signal.SIGTERM) is own
os.kill(os.getpid(), signal.SIGTERM)
assert calls == [signal.SIGTERM], calls
"""

_COMMON = """
import itertools, os, sys
from slurm_hooks.elastic.mailbox import Mailbox
from slurm_hooks.elastic.frameworks import step_memory
from slurm_hooks.elastic.script import checkpoint
from slurm_hooks.elastic.script.left_behind import leave_behind

agents = []

class Thing:
    def state_dict(self):
        return {}
    def load_state_dict(self, state):
        pass

def train(steps):
    memory = step_memory.StepMemory()
    step, _ = memory.load()
    memory.watch(thing=Thing())
    memory.reached(steps)
    return step, memory

def begin_job(name):
    place = os.path.join(os.path.dirname(sys.argv[1]), name)
    os.mkdir(place)
    agents.append(Mailbox())
    os.environ.update(agents[-1].environment(), MALLEABLE_DIR=place)
    begin_process()

def begin_process():
    step_memory._runs = itertools.count()
    step_memory._open.clear()
    step_memory._ended.clear()
    checkpoint._watching.clear()
"""

STAGES = """
begin_job("stages")
_, first = train(70)
first._checkpoint._just_in_time.keep()
file = os.path.join(os.environ["MALLEABLE_DIR"], "last-step.pt")
leave_behind(os.environ, file, float("inf"))
begin_process()
step, first = train(100)
assert step == 70
first.end()
assert not os.path.exists(file)
begin_process()
step, second = train(1)
assert step == -1, step
"""

REDONE = """
begin_job("redone")
def hit(memory):
    memory._checkpoint._just_in_time.keep()
    begin_process()

_, first = train(100)
first.end()
_, second = train(40)
hit(second)  # in the second training, so the first is done again
step, first = train(30)
assert step == -1, step
hit(first)  # in the first training, done again
step, first = train(35)
assert step == 30, step
hit(first)
step, first = train(36)
assert step == 35, step
first.end()
step, second = train(41)
assert step == 40, step
"""

GONE = """
begin_job("gone")
def all_go(memory):
    memory._checkpoint._just_in_time.keep()
    leave_behind(os.environ, agents[-1].file(), float("inf"))
    agents.append(Mailbox())
    os.environ.update(agents[-1].environment())
    begin_process()

_, first = train(100)
first.end()
_, second = train(40)
all_go(second)
step, first = train(30)
all_go(first)
step, first = train(31)
assert step == 30, step
first.end()
step, second = train(41)
assert step == 40, step
second.end()
assert os.listdir(os.environ["MALLEABLE_DIR"]) == ["checkpoint.lock"]
"""

RESULT = """
from pathlib import Path
program = Path(sys.argv[1]).with_name("train.py")
program.write_text('''
if "first" in trainings: steps.append(fit(100))
if "second" in trainings: steps.append(fit(40))
for n in range(trainings.count("loop")): steps.append(fit(70))
''')
code = compile(program.read_text(), program, "exec")

def fit(steps):
    step, memory = train(steps)
    memory.finish()
    memory.end()
    return step

def start(trainings):
    begin_process()
    steps = []
    exec(code, {"fit": fit, "trainings": trainings, "steps": steps})
    return steps

begin_job("result")
assert start("first") == [-1]
assert start("first") == [100]
assert start("second") == [-1]  # the script has found the result of the first
assert start("second") == [40]
assert start("first second") == [-1, -1]
assert start("first second") == [-1, 40]
begin_job("loop")
assert start("loop loop") == [-1, -1]
assert start("loop") == [-1]
"""


def run(script: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", script, str(tmp_path / "checkpoint.pt")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr


def test_an_ended_training_keeps_no_objects(tmp_path: Path) -> None:
    run(SEARCH, tmp_path)


def test_a_handler_that_passes_on_to_ours_may_outlive_the_training(tmp_path: Path) -> None:
    run(HANDLERS, tmp_path)


def test_a_script_that_starts_again_after_its_training_finds_the_last_step(tmp_path: Path) -> None:
    """Only for the training of the same line, and not in a loop, whose next turn begins there."""
    run(_COMMON + RESULT, tmp_path)


def test_each_training_resumes_from_its_own_newest_step(tmp_path: Path) -> None:
    """A training is repeated. All nodes leave in each training in turn, or the first is done."""
    run(_COMMON + REDONE + GONE + STAGES, tmp_path)
