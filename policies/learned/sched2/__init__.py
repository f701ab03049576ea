"""SCHED2: which of the first waiting jobs starts next, by a Q-network that sees every server by the same weights.

`layout`, `placements` and `window` are what the environment and the encoder share, `encoder` shows a cluster state to the agent;
`features` are what the network is told of a state, `network` is the Q-network; `recipe` is how it is trained, with a `search` for
its linear part, or from what `controls` show; `system` is what `headway-policy train` finds, `policy` what is served.
"""
