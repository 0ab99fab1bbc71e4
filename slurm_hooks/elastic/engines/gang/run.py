"""`malleable run -- COMMAND` in a gang. It takes the place of torchrun for programs that start
again at each change of size.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Optional

from slurm_hooks.elastic.agent.assemble import assemble
from slurm_hooks.elastic.agent.companion import all_meet
from slurm_hooks.elastic.agent.one_per_node import stand_by
from slurm_hooks.elastic.agent.options import (
    OptionError,
    Options,
    number,
    options,
    refuse_parts,
)
from slurm_hooks.elastic.agent.workers_here import request_of
from slurm_hooks.elastic.batch.own_element import OwnElement
from slurm_hooks.elastic.batch.remark import write_remark
from slurm_hooks.elastic.engines.gang.agent import GangAgent
from slurm_hooks.elastic.engines.gang.crew import Crew
from slurm_hooks.elastic.engines.gang.engine import TENSORFLOW, find_engine
from slurm_hooks.elastic.engines.gang.secret import job_secret
from slurm_hooks.elastic.engines.order import Order, read_order
from slurm_hooks.elastic.farewell import farewell_s
from slurm_hooks.elastic.log import say
from slurm_hooks.elastic.private_directory import DirectoryError
from slurm_hooks.elastic.signals import SignalListener


@dataclass(frozen=True)
class Parameters:
    """The fields of torch's RendezvousParameters, from the environment that the plugin set."""

    endpoint: str
    run_id: str
    min_nodes: int
    max_nodes: int
    local_addr: Optional[str]
    backend: str = "malleable"

    def get(self, _name: str) -> Optional[str]:
        """Return `None`: there is no --rdzv-conf."""
        return None


def parameters(env: Mapping[str, str]) -> Parameters:
    """Read the parameters. Raises OptionError."""
    if not env.get("MALLEABLE_JOB_ID"):
        raise OptionError(
            "this is no malleable job: submit the script with sbatch --malleable=MIN-MAX"
        )
    smallest, largest = _sizes(env)
    return Parameters(
        endpoint=env.get("MALLEABLE_DIR", ""),
        run_id=env["MALLEABLE_JOB_ID"],
        min_nodes=smallest,
        max_nodes=largest,
        local_addr=env.get("MALLEABLE_ADDR"),
    )


def _sizes(env: Mapping[str, str]) -> tuple[int, int]:
    """Return MIN and MAX as Limits count: in workers, or in agents where the request counts
    nodes.
    """
    request = request_of(env)
    if request:
        return max(1, request.smallest), request.largest
    unit = max(1, number(env.get("MALLEABLE_UNIT", "")))
    nodes_per_agent = 1 if "SLURM_STEP_ID" in env else unit  # started by srun, or by the script
    smallest = max(1, number(env.get("MALLEABLE_MIN", "")) // nodes_per_agent)
    return smallest, max(smallest, number(env.get("MALLEABLE_MAX", "")) // nodes_per_agent)


def run(order: Order, env: MutableMapping[str, str]) -> None:
    """Run until the work has finished.

    Raises SystemExit if this fragment leaves before, and OptionError, DirectoryError, OSError.
    """
    stand_by(env, "malleable run")
    signals = SignalListener()
    signals.listen()
    own_element = OwnElement(env, signals)
    own_element.report_started()
    name = env.get("MALLEABLE_ENGINE", "")
    engine = find_engine(name)
    if name == TENSORFLOW:
        refuse_parts(env, name, "TensorFlow expects workers of equal size")
    job = options(parameters(env), env)
    parts = assemble(job, env, signals, own_element, all_meet)
    crew = Crew(order, env, job.host, lambda: _secret(job), engine)
    GangAgent(parts, crew, farewell_s(env)).run()


def _secret(job: Options) -> bytes:
    try:
        return job_secret(job.directory)
    except OSError as error:
        raise DirectoryError(f"{job.directory}: {error.strerror}") from None


def main(argv: Sequence[str], env: Mapping[str, str] = os.environ) -> int:
    """Return the exit code: 64 for wrong arguments, 127 if the command does not exist. Raises
    SystemExit.
    """
    try:
        run(read_order(argv, env), dict(env))
    except OptionError as error:
        say(str(error))
        return os.EX_USAGE
    except DirectoryError as error:
        write_remark(str(error))
        say(str(error))
        return 1
    except OSError as error:
        say(f"cannot run {error.filename or argv[-1]}: {error.strerror}")
        return 127
    return 0
