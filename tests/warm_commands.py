"""Runs `malleable` in a fork of a process that has imported it, which costs a fifth of a start.

The command has the arguments, environment, directory, umask and files of a process of its own, and
ends as one. Python looks at some variables only when it starts: with others than the warm process
has, a command is a real process.
"""

from __future__ import annotations

import atexit
import io
import json
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

LIMIT_S = 150.0
WARM = ("inspect", "reconcile", "hold", "wish", "switch")  # they begin no thread
AT_START = ("PYTHON", "LD_", "LC_", "LANG")
_servers: dict[tuple[int, str], tuple[str, socket.socket]] = {}
"""The address of a warm process, and the connection with whose end it ends."""


def malleable(*words: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command to its end. Raises TimeoutExpired."""
    if _at_start(env) != _at_start(os.environ):
        argv = [sys.executable, "-m", "slurm_hooks.cli", *words]
        return subprocess.run(
            argv, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    umask = os.umask(0o22)
    os.umask(umask)
    is_deaf = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    order = {"words": words, "env": dict(env), "cwd": os.getcwd(), "umask": umask, "deaf": is_deaf}
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        with _connect(_server()) as end:
            socket.send_fds(end, [b"3"], [0, output.fileno(), errors.fileno()])
            code = _told(end, order)
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(words, code, output.read(), errors.read())


def _told(end: socket.socket, order: dict[str, Any]) -> int:
    end.settimeout(LIMIT_S)
    end.sendall(json.dumps(order).encode() + b"\n")
    answers = end.makefile()
    pid = int(answers.readline())
    try:
        return os.waitstatus_to_exitcode(int(answers.readline()))
    except TimeoutError:
        os.kill(pid, 9)
        raise subprocess.TimeoutExpired(order["words"], LIMIT_S) from None


def _at_start(env: Mapping[str, str]) -> str:
    return json.dumps({name: env[name] for name in sorted(env) if name.startswith(AT_START)})


def _server() -> str:
    """Start the warm process. It is no child of this process, since tests count and end these."""
    key = os.getpid(), _at_start(os.environ)
    if key not in _servers:
        place = tempfile.mkdtemp()
        address = f"{place}/socket"
        nothing = subprocess.DEVNULL
        argv = [sys.executable, __file__, address]
        subprocess.run(argv, stdin=nothing, stdout=nothing, stderr=nothing, check=True)
        _servers[key] = address, _connect(address)
        atexit.register(_servers[key][1].close)
        atexit.register(shutil.rmtree, place)
    return _servers[key][0]


def _connect(address: str) -> socket.socket:
    end = socket.socket(socket.AF_UNIX)
    end.connect(address)
    return end


def _await_order(address: str) -> dict[str, Any]:
    """Return an order, with its files as 0 to 2, in a child of the warm process."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    if os.fork():
        os._exit(0)
    life = listener.accept()[0]
    while True:
        ready = select.select([life, listener], [], [])[0]
        if life in ready:
            os._exit(0)
        end = listener.accept()[0]
        if os.fork() == 0:
            return _order(end)
        end.close()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _order(end: socket.socket) -> dict[str, Any]:
    """Fork the command, and wait for it in this process."""
    files = socket.recv_fds(end, 1, 3)[1]
    order: dict[str, Any] = json.loads(end.makefile().readline())
    pid = os.fork()
    if pid == 0:
        for number, file in enumerate(files):
            os.dup2(file, number)
        os.closerange(3, 1024)
        return order
    end.sendall(f"{pid}\n".encode())
    end.sendall(f"{os.waitpid(pid, 0)[1]}\n".encode())
    os._exit(0)


def _become(order: dict[str, Any], program: str) -> None:
    """Take over what belongs to a process."""
    os.umask(order["umask"])
    os.chdir(order["cwd"])
    signal.signal(signal.SIGINT, signal.SIG_IGN if order["deaf"] else signal.default_int_handler)
    os.environ.clear()
    os.environ.update(order["env"])
    time.tzset()
    random.seed()
    sys.path[0] = order["cwd"]
    sys.argv = [program, *order["words"]]
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        old = getattr(sys, name)
        buffer = io.FileIO(number, mode, closefd=False)
        kind = io.BufferedReader if mode == "r" else io.BufferedWriter
        file = io.TextIOWrapper(kind(buffer), old.encoding, old.errors)  # type: ignore[arg-type]
        setattr(sys, name, file)
    sys.stderr.reconfigure(line_buffering=True)


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    from slurm_hooks import cli

    for module in WARM:
        import_module(f"slurm_hooks.commands.{module}")
    _become(_await_order(sys.argv[1]), cli.__file__)
    sys.exit(cli.main())
