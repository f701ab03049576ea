"""`headway-setup`: shows as a diff what a Slurm installation lacks for Headway, and writes it.
Imports `errors` and `processes`; of other packages `controller`.
"""
