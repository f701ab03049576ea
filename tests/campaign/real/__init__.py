"""Random stories on a real Slurm: `python -m tests.campaign --real`. It may import slurm, and of tests.campaign the story
steps and the lies of agents.

Each mini-cluster, with accounting, agents, policy server, watchdog and a controller that runs as SlurmUser, plays one story
after the other. `model` does not depend on Headway: it compares Slurm's accounting and the jobs' own logs with the promises to
users.
"""
