"""Random stories on a real Slurm: `python -m tests.campaign --real`. It may import slurm, and the stories' steps of tests.campaign.

One mini-cluster with accounting, agents, policy server, watchdog and a controller that runs as SlurmUser plays one story after
the other. `model` knows nothing of Headway: it compares Slurm's accounting and the jobs' own logs with what users were promised.
"""
