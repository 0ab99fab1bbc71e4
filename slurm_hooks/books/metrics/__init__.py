"""Metrics for Prometheus: the ledger's counters and the last tick, as text or over HTTP."""
