"""Where older versions had what a site's own objective imports; now `slurm_hooks.objectives`."""
