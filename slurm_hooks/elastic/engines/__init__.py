"""One folder for each engine; none knows another."""
