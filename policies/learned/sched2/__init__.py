"""SCHED2: which of the first waiting jobs starts next, by a Q-network that sees every server by the same weights.

`layout` and `placements` are what the environment and the encoder share, `encoder` shows a cluster state to the agent, `network` is
its Q-network, `recipe` how it is trained, `policy` what is served.
"""
