"""Random stories about a whole Headway, checked against a small independent model of what each job must be.

`python -m tests.campaign --runs 1000 --seed 1` plays them on the embedded Slurm. A story is a list of steps made from a seed:
what users, operators and faults do, and when. The controller, the watchdog, the journal, the lease and the users' holds are
the real ones; time is virtual; a kill cuts a process at any await. `model` knows nothing of Headway: it has Slurm's accounting
and what users were promised.
"""
