"""Give Lightning the number of nodes in the round.

Lightning takes the number of nodes from the script, and stops if the world has another size. In a
malleable job only the round knows it. Lightning expects a world of nodes times processes on a node.
On parts of nodes that product differs between nodes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from slurm_hooks.elastic.frameworks.entry import is_worker


class UnequalNodes(int):
    """A number of nodes. Multiplied by the processes `here`, it gives the processes of the
    `world`.
    """

    here: int
    world: int

    def __mul__(self, count: int) -> int:
        return self.world if count == self.here else int(self) * count

    __rmul__ = __mul__


def nodes_of(env: Mapping[str, str]) -> int:
    """Return how many nodes, in Lightning's sense, this round has: agents, each with its local
    ranks.
    """
    nodes = UnequalNodes(env["GROUP_WORLD_SIZE"])
    nodes.here, nodes.world = int(env["LOCAL_WORLD_SIZE"]), int(env["WORLD_SIZE"])
    return nodes if int(nodes) * nodes.here != nodes.world else int(nodes)


def pytorch(module: ModuleType) -> None:
    """Prepare `Trainer(num_nodes=...)`: the script's number is ignored."""
    _replace_nodes(module._AcceleratorConnector)


def fabric(module: ModuleType) -> None:
    """Prepare `Fabric(num_nodes=...)` in the same way."""
    _replace_nodes(module._Connector)


def _replace_nodes(connector: Any) -> None:
    plain = connector.__init__

    def init(self: Any, *words: Any, **named: Any) -> None:
        if is_worker(os.environ):
            named.update(_of_this_round(named))
        plain(self, *words, **named)

    connector.__init__ = init
    _keep_nodes(connector)


def _keep_nodes(connector: Any) -> None:
    """Keep our number: Fabric turns it into a plain number on the way."""
    plain = connector._check_device_config_and_set_final_flags

    def check(self: Any, *words: Any, **named: Any) -> None:
        plain(self, *words, **named)
        if is_worker(os.environ):
            self._num_nodes_flag = nodes_of(os.environ)

    connector._check_device_config_and_set_final_flags = check


def _of_this_round(named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments for this round. A script for several nodes gets the same strategy in a
    round of a single node, so that it takes its samples in the same order.
    """
    is_rigid = named.get("num_nodes", 1) not in (1, "auto")
    strategy = "ddp" if is_rigid and named.get("strategy") == "auto" else named.get("strategy")
    return {"num_nodes": nodes_of(os.environ), "strategy": strategy or "auto"}
