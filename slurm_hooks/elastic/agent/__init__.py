"""One agent's way through the training."""
