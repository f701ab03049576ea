"""An attempt to stop a job: its ranks are asked to save, the cycle is ordered to requeue it, or the attempt is called off.
Imports `agents`, `base`, `preempt/reports`, `preempt/text`, `slurm` and `state`; of other packages `policies` and `protos`.
"""
