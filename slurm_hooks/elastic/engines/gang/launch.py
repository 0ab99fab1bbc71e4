"""A stand-in for ssh, with which an MPI starts its daemons on the other nodes of its job.

    python3 -m slurm_hooks.elastic.engines.gang.launch [OPTION...] NODE WORD...

It asks the agent of that node, and lives as long as the daemon. MALLEABLE_AGENTS says where agents
listen. The exit code is the daemon's, or 255, as with ssh, if it could not be started.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from slurm_hooks.elastic.engines.gang.channel import ChannelError, call, receive_line
from slurm_hooks.elastic.engines.gang.launching import LAUNCH
from slurm_hooks.elastic.engines.gang.secret import read_secret
from slurm_hooks.elastic.log import say
from slurm_hooks.elastic.private_directory import DirectoryError

FAILED = 255


def run(words: Sequence[str], env: Mapping[str, str]) -> int:
    """Return the exit code. Raises ChannelError, DirectoryError, OSError, ValueError."""
    while words and words[0].startswith("-"):
        words = words[1:]  # Hydra's -x
    if len(words) < 2:
        raise ValueError("give a node and a command")
    node, line = words[0], " ".join(words[1:])
    agents = json.loads(env["MALLEABLE_AGENTS"])
    if node not in agents:
        raise ValueError(f"{node} is not a node of this job's round")
    host, port = agents[node]
    secret = read_secret(Path(env["MALLEABLE_DIR"]))
    request = {"what": LAUNCH, "round": env["MALLEABLE_ROUND"], "line": line}
    with call((host, port), secret, request) as end:
        return int(json.loads(receive_line(end)))


def main(words: Sequence[str]) -> int:
    """Return the exit code that ssh would return."""
    try:
        return run(words, os.environ)
    except (ChannelError, DirectoryError, OSError, ValueError, KeyError) as error:
        say(f"cannot start a daemon of the MPI: {error}")
        return FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
