"""`malleable run -- COMMAND` in a pool: a command as the worker of this fragment, without rounds.

It tells Slurm that there is an agent. The notice and the end of the lease reach the command as a
signal. At the latest after its grace the fragment is given back. If the command ends with 0 before
such a signal, no work was left for this worker. Under another engine the work has then finished. A
command that has run for a whole lease counts as progress. On a part of a node the command is
started several times (workers.py).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence

from slurm_hooks.elastic.agent.options import OptionError, engine, knob
from slurm_hooks.elastic.batch.lease import Lease
from slurm_hooks.elastic.batch.own_element import OwnElement
from slurm_hooks.elastic.engines.order import NOTICE_S, Order, read_order
from slurm_hooks.elastic.engines.pool.wish_file import WishFile
from slurm_hooks.elastic.engines.pool.workers import Workers
from slurm_hooks.elastic.farewell import farewell_s
from slurm_hooks.elastic.log import say
from slurm_hooks.elastic.signals import SignalListener
from slurm_hooks.protocol.comment import Standing

POLL_S = 0.2
SETTLE_S = 1.0  # Slurm's signals reach the command and this process in any order
TERMINATED = 128 + signal.SIGTERM


def run(order: Order, env: Mapping[str, str]) -> int:
    """Run the command as the worker of the fragment with this environment. Return the exit code for
    its batch script. Raises OptionError, OSError.
    """
    signals = SignalListener()
    signals.silence()  # this function does the work at SIGTERM
    own_element = OwnElement(env, signals)
    own_element.report_started()
    lease = Lease(env, knob(env, "notice_s", NOTICE_S), own_element.take_facts())
    wish_file = WishFile(order.wish_file, env)
    known = {"MALLEABLE_LEASE_END": str(lease.ends)} if lease.ends else {}
    workers = Workers(order, {**env, **known})
    own_element.report(Standing.JOINED)
    first_end, code = lease.ends, None
    while code is None:
        signals.wait_end(POLL_S)
        code = workers.exit_code()
        if 0 < first_end < time.time():
            own_element.report_trained()
        if code is not None:
            time.sleep(SETTLE_S)
        if signals.is_terminated:
            workers.stop(farewell_s(env))
            return TERMINATED
        if signals.has_notice or (code is None and lease.is_over(time.time())):
            say(f"giving the node back: sending {order.signal.name} to {order.command[0]}")
            own_element.report(Standing.LEAVING)
            workers.stop(order.grace_s)
            own_element.put_back()
            return TERMINATED if signals.is_terminated else 0
        wish_file.look()
    workers.end_rest()
    row = engine(env)
    if code == 0 and not (row and row.is_pool):
        own_element.report_finished()
    return code


def main(argv: Sequence[str], env: Mapping[str, str] = os.environ) -> int:
    """Return the exit code: 64 for wrong arguments, 127 if the command does not exist."""
    try:
        return run(read_order(argv, env), env)
    except OptionError as error:
        say(str(error))
        return os.EX_USAGE
    except OSError as error:
        say(f"cannot run {error.filename or 'the command'}: {error.strerror}")
        return 127
