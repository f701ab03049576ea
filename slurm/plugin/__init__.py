"""What goes into Slurm: job_submit.lua, hooks, the SPANK plugin, example configuration. Files, and no Python that runs."""
