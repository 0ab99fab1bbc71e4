"""Ways to solve an allocation problem; each is given one and returns counts."""
