"""Shadow of a simple rule beside a learned policy: what the queue would be if the rule had decided since the first state.

Imports `api`, `learned/guard`, `learned/weights`, `model` and `placement`.

`nodes` are free GPUs, `queue` the jobs and their times, `standing` compares the shadow with the cluster. With
`guard` the rule decides where a policy is behind; `guarded` is the base of such policies.
"""
