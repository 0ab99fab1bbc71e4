"""What a training script may import."""
