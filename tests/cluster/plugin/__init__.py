"""The parts of Headway that Slurm loads, inside a real slurmctld: job_submit.lua, the hooks, the SPANK plugin."""
