"""Who gets how many nodes: the allocator that ships, and the lines to compare it with."""
