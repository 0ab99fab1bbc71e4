"""What Prometheus is told: the ledger's counters and the last tick, as text or over HTTP."""
