"""`headway report`: what became of a job, from the journal, the agents' measurements, Slurm's snapshot and its accounting.
Imports `admin/explain`, `admin/protocol`, `admin/refusal`, `admin/viewer`, `agents`, `base`, `cycle`, `observe`, `profiles`,
`slurm` and `state`; of other packages `protos`.
"""
