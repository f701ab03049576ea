"""Random stories about a whole Headway, checked against a small independent model of what each job must be.

`python -m tests.campaign --runs 1000 --seed 1` plays them on the embedded Slurm. A story is a list of steps made from a seed:
operations of users and operators, and faults, each with its time. The controller, the watchdog, the journal, the lease and the
users' holds are the real ones; time is virtual; a kill ends a process at any await. `verdict.model` does not depend on Headway: it
compares Slurm's accounting with the promises to users.
"""
