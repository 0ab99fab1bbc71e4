"""The history of ticks: derived from snapshots, kept in a ledger, exported as metrics."""
