"""Who gets how many nodes: the allocator that ships, and others to compare it with."""
