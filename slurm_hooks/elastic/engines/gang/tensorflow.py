"""TensorFlow: tensorflow.org/guide/distributed_training#TF_CONFIG."""

from __future__ import annotations

import json

from slurm_hooks.elastic.engines.gang.world import GangWorld


class TensorFlow:
    """See GangEngine."""

    def variables(self, world: GangWorld) -> dict[str, str]:
        """Return TF_CONFIG of this member."""
        workers = [place.address for place in world.places]
        task = {"type": "worker", "index": world.rank}
        return {"TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": task})}
