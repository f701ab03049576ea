"""`headway-setup`: shows as a diff what a Slurm installation lacks for Headway, writes it, and takes it back.
Imports `errors` and `processes`; of other packages `controller` and `policies`.
"""
