"""The modules that a training script may import."""
