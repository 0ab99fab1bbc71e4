"""The life of an agent: it joins, waits, trains in rounds and leaves."""
