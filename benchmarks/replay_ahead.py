"""What it would be worth to leave a second or two ahead of a planned start, and not to stay until
Slurm preempts: `make bench-replay-ahead`, or with LOG and HOURS behind the name of this file.

35 jobs with the pause measured on a sandbox, a tick of 30 s, the first HOURS of the log (48 of
theta_2022). A loss goes back a second, 30 s, 600 s; a planned change keeps the work. Three rules
for nodes whose end is known: `shipped`, the smaller loss decides between staying and leaving early;
`stay`, all jobs stay; `ahead`, all leave two seconds ahead, with notice, where the end was known a
tick before that. That is the best case: a planned start of the log never moves once it is known.
The last line is one JSON object.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, fields, replace
from typing import Any
from unittest import mock

from replay_hits import run_of
from replay_runs import measure, record_of

from slurm_hooks.replay import scenario
from slurm_hooks.replay.record import Moment
from slurm_hooks.replay.rules import Rules
from slurm_hooks.replay.scenario import Conditions
from slurm_hooks.replay.simulator.running import Pause
from slurm_hooks.replay.simulator.simulate import Simulation
from slurm_hooks.settings import Settings

AHEAD_S = 2.0
COSTS = ("1 s", "30 s", "600 s")
RULES = ("shipped", "stay", "ahead")
rules_of = scenario.rules_of


@dataclass(frozen=True)
class Staying(Rules):
    """Nobody leaves early."""

    def stays(self, hit_s: float, size: int, taken: int) -> bool:
        """Whatever it costs."""
        return True


class Ahead(Simulation):
    """What goes by a plan that was known a tick before goes with notice."""

    def _change(self, moment: Moment) -> None:
        supply = self._supply
        last_s = moment.at_s - AHEAD_S - self._rules.tick_s
        known = {n for n in moment.leaves if supply._present[n].known_s <= last_s}
        others = {n for n in moment.leaves if n not in known}
        robbed = {supply._owner.get(n) for n in others}
        known = {n for n in known if supply._owner.get(n) not in robbed - {None}}
        self._leave(moment.at_s, sorted(known))
        rest = tuple(n for n in moment.leaves if n not in known)
        super()._change(replace(moment, leaves=rest))

    def _leave(self, now: float, nodes: list[int]) -> None:
        """They went `AHEAD_S` ago: the work that they did since then is taken back."""
        ledger = self.outcome.ledger
        for job, gone in self._supply.leave(nodes).items():
            job.advance(now, ledger)
            rates, size = job.kind.rates, job.size
            for node in gone:
                del job.nodes[node]
            most = job.kind.max_nodes
            undone = (rates[min(size, most)] - rates[min(job.size, most)]) * AHEAD_S
            undone = min(undone, job.kind.images - job.left)
            job.left += undone
            ledger.images[job.kind.name] = ledger.images.get(job.kind.name, 0.0) - undone
            job.save()
            job.pause(Pause.SHRINK, self._rules.rescale.down_s)
            self.outcome.rescales += 1


def staying(conditions: Conditions, settings: Settings, nodes: int = 0) -> Rules:
    """The rules of the scenario, but nobody leaves early."""
    rules = rules_of(conditions, settings, nodes)
    return Staying(**{f.name: getattr(rules, f.name) for f in fields(rules)})


def row(log: str, cost: str, rule: str, hours: float) -> dict[str, Any]:
    """Work a second, hits, and the share of the idle time that was used under one rule."""
    start = record_of(log).from_s
    simulation = Ahead if rule == "ahead" else Simulation
    rules = rules_of if rule == "shipped" else staying
    with mock.patch.multiple(scenario, Simulation=simulation, rules_of=rules):
        line = measure(run_of(log, cost), (start, start + hours * 3600.0))
    return {
        "cost": cost,
        "rule": rule,
        "speed": line["images_per_s"],
        "hits": line["preemption_hits"],
        "used_share": round(line["used_share"], 4),
    }


def main() -> int:
    """All costs and rules; the work is shown relative to the first row's."""
    log = sys.argv[1] if len(sys.argv) > 1 else "theta_2022"
    hours = float(sys.argv[2]) if len(sys.argv) > 2 else 48.0
    rows = []
    for cost in COSTS:
        for rule in RULES:
            rows.append(row(log, cost, rule, hours))
            rows[-1]["relative"] = round(rows[-1]["speed"] / rows[0]["speed"], 4)
            print(*rows[-1].values(), file=sys.stderr, flush=True)
    print(json.dumps({"benchmark": "replay-ahead", "log": log, "hours": hours, "rows": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
