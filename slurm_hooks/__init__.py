"""slurm-malleable: deep-learning jobs that live in the holes of a Slurm cluster."""

__version__ = "0.1.0"
