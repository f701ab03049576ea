"""Files for Slurm: job_submit.lua, hooks, the SPANK plugin, example configuration. Holds no Python that runs."""
