"""`make demo`: a training job that lives in the holes of an eight-node Slurm on this host.

Data flows in one direction: scenario -> drive (with sampler) -> verdict -> timeline and show. Only
drive and sampler touch Slurm. verdict, timeline and show take values.
"""
