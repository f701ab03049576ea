"""SCHED2: a Q-network with the same weights for every server chooses which of the first waiting jobs starts next.
Imports `api`, `errors`, `learned/algorithms`, `learned/training`, `learned/weights`, `model`, `placement` and `selection`.

`state` is shared by the environment and the `encoder`, which shows a cluster state to the agent; `network` is the Q-network,
`training` trains it, `system` registers it for `headway-policy train`, and `policy` serves it.
"""
