"""headway-rl: learned values of jobs, and a search for the set of jobs that is worth most together, contention deducted.

Not from a paper. `features` says what is looked at, `network` what a job is worth, `search` which jobs run where; `policy` serves
it, `recipe` trains it, and `system` says so to `headway-policy train`.
"""
