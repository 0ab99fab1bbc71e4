"""Which agents are alive, and the news that they send each other."""
