"""Shadow of a simple rule beside a learned policy: what the queue would be if the rule had decided since the first state.

`nodes` are free GPUs, `queue` the jobs and their times, `standing` compares the shadow with the cluster. May import
`policies.placement` and `policies.model`.
"""
