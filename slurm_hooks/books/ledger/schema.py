"""The tables of the ledger. Times are epoch seconds by slurmctld's clock, spans seconds.

Counters only grow, even when rows are pruned: metrics come from them.
"""

HOUR_S = 3600
VERSION = 6
APPLICATION_ID = 0x6D6C6C65  # "mlle": marks the file as ours

CREATE = """
CREATE TABLE tick (
    id INTEGER PRIMARY KEY, at REAL NOT NULL, span_s REAL NOT NULL, unseen_s REAL NOT NULL,
    node_s REAL NOT NULL, uncertain_node_s REAL NOT NULL, jobs INTEGER NOT NULL,
    nodes INTEGER NOT NULL, ours INTEGER NOT NULL, busy INTEGER NOT NULL, out INTEGER NOT NULL,
    seconds REAL NOT NULL, solver_s REAL NOT NULL, commands INTEGER NOT NULL,
    rpcs INTEGER NOT NULL, refused INTEGER NOT NULL, starts INTEGER NOT NULL,
    no_growth_s REAL NOT NULL, core_node_s REAL NOT NULL);
CREATE INDEX tick_at ON tick (at);
CREATE TABLE idle (
    tick INTEGER NOT NULL, reason TEXT NOT NULL, nodes INTEGER NOT NULL, node_s REAL NOT NULL,
    PRIMARY KEY (tick, reason)) WITHOUT ROWID;
CREATE TABLE unused (
    tick INTEGER NOT NULL, resource TEXT NOT NULL,
    idle REAL NOT NULL, part REAL NOT NULL, stranded REAL NOT NULL,
    idle_s REAL NOT NULL, part_s REAL NOT NULL, stranded_s REAL NOT NULL,
    PRIMARY KEY (tick, resource)) WITHOUT ROWID;
CREATE TABLE done (
    tick INTEGER NOT NULL, verb TEXT NOT NULL, cause TEXT NOT NULL, fragments INTEGER NOT NULL,
    PRIMARY KEY (tick, verb, cause)) WITHOUT ROWID;
CREATE TABLE job (
    id INTEGER PRIMARY KEY, job_id INTEGER NOT NULL,
    user TEXT NOT NULL, account TEXT, min_nodes INTEGER NOT NULL, max_nodes INTEGER NOT NULL,
    unit TEXT NOT NULL, engine TEXT NOT NULL, first_at REAL NOT NULL, last_at REAL NOT NULL,
    over TEXT NOT NULL, stop TEXT NOT NULL, node_s REAL NOT NULL, releases INTEGER NOT NULL,
    interruptions INTEGER NOT NULL, least INTEGER NOT NULL, most INTEGER NOT NULL);
CREATE INDEX job_of ON job (job_id);
CREATE TABLE harvest (
    hour INTEGER NOT NULL, job INTEGER NOT NULL, node_s REAL NOT NULL, releases INTEGER NOT NULL,
    PRIMARY KEY (hour, job)) WITHOUT ROWID;
CREATE TABLE ending (
    id INTEGER PRIMARY KEY, at REAL NOT NULL, job INTEGER NOT NULL, fragment INTEGER NOT NULL,
    kind TEXT NOT NULL, cause TEXT NOT NULL, nodes INTEGER NOT NULL, ran_s REAL NOT NULL,
    exact INTEGER NOT NULL, taken TEXT NOT NULL, taker TEXT NOT NULL);
CREATE INDEX ending_at ON ending (at);
CREATE TABLE delay (
    id INTEGER PRIMARY KEY, at REAL NOT NULL, other TEXT NOT NULL, planned REAL NOT NULL,
    started REAL NOT NULL, held_s REAL NOT NULL);
CREATE INDEX delay_at ON delay (at);
CREATE TABLE counter (
    name TEXT NOT NULL, label TEXT NOT NULL, value REAL NOT NULL,
    PRIMARY KEY (name, label)) WITHOUT ROWID;
CREATE TABLE last (only INTEGER PRIMARY KEY CHECK (only = 1), seen TEXT NOT NULL);
CREATE TABLE why (reason TEXT PRIMARY KEY, jobs INTEGER NOT NULL) WITHOUT ROWID;
"""


def hour_of(at_s: float) -> int:
    """Return the hour of a tick's counts. They are from before the tick, so a tick on the full hour
    belongs to the hour that ends."""
    return -int(-at_s // HOUR_S) - 1
