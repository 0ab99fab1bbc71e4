"""What runs inside a user's job: the `malleable` rendezvous of torchrun.

Importable alone (standard library and torch only), because a job sees just this
directory on its PYTHONPATH. It must not know the reconciler, the allocator or Slurm's
controller; all it asks of Slurm is when its own lease ends.
"""
