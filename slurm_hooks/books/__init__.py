"""What happened, kept: derived from ticks, in a ledger, as metrics."""
