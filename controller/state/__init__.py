"""State that must survive a restart: the ledger, the journal, and the table of preemptions.
Imports `base` and `slurm`; of other packages `policies`.
"""
