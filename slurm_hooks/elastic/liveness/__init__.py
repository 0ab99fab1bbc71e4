"""Which agents are alive, and word of news between them."""
