"""What Headway puts into Slurm, inside a real slurmctld: job_submit.lua, the hooks, the SPANK plugin."""
