"""Tell which agents are alive, and carry the news that they send each other."""
