"""Starts torchrun as a torch with two other private names does.

The names are the key of its last barrier, and a parameter of the method that starts workers.
"""

from typing import Any

import torch.distributed.run as distrib_run
from torch.distributed.elastic.agent.server import api
from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler

plain: Any = SubprocessHandler._popen


def _popen(self: Any, command: Any, environment: Any) -> Any:
    return plain(self, command, environment)


api._TERMINAL_STATE_SYNC_ID = "torchelastic/agent/last_state"
SubprocessHandler._popen = _popen  # type: ignore[assignment]
distrib_run.main()
