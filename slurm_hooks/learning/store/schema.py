"""The tables of learned knowledge. Moments are epoch seconds by slurmctld's clock.

`digest` stands for a job's last report. As long as it stays the same, there is no work.
`changed_at` is later than `learned_at` as long as a job has to be learned again, even if a clock
changes.
"""

from __future__ import annotations

APPLICATION_ID = 0x6D6C6C6E  # "mlln"
VERSION = 3

CREATE = """
CREATE TABLE family (
    id INTEGER PRIMARY KEY, user TEXT NOT NULL, name TEXT NOT NULL, unit INTEGER NOT NULL,
    engine TEXT NOT NULL, needs TEXT NOT NULL, most INTEGER NOT NULL, last_at REAL NOT NULL,
    fit TEXT, fit_at REAL NOT NULL, learned TEXT,
    UNIQUE (user, name, unit, engine, needs));
CREATE INDEX family_fit ON family (fit_at);
CREATE TABLE job (
    id INTEGER PRIMARY KEY, job_id INTEGER NOT NULL, family INTEGER NOT NULL,
    min_nodes INTEGER NOT NULL, max_nodes INTEGER NOT NULL, first_at REAL NOT NULL,
    last_at REAL NOT NULL, nodes INTEGER NOT NULL,
    node_s REAL NOT NULL, digest TEXT NOT NULL, counts TEXT NOT NULL,
    sync REAL, start_s REAL, grow_s REAL, shrink_s REAL, loss_s REAL,
    changed_at REAL NOT NULL, learned_at REAL NOT NULL, fit TEXT, learned TEXT,
    UNIQUE (job_id, family));
CREATE INDEX job_family ON job (family, changed_at);
CREATE INDEX job_last ON job (last_at);
CREATE TABLE sample (
    id INTEGER PRIMARY KEY, job INTEGER NOT NULL, nodes INTEGER NOT NULL, at INTEGER NOT NULL,
    per_s REAL NOT NULL, error REAL NOT NULL, batch REAL NOT NULL);
CREATE INDEX sample_job ON sample (job);
"""
