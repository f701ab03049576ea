"""SCHED2: an agent chooses which of the first waiting jobs starts next: the paper's Q-network, one that sees features, or a rule.
Imports `api`, `errors`, `learned/algorithms`, `learned/guard`, `learned/shadow`, `learned/training`, `learned/weights`, `model`,
`placement` and `selection`.

`state` is shared by the environment and the `encoder`, which shows a cluster state to the agent; `deciding` is a decision with any
agent. `networks`, `policy` and `system` are the Q-networks, `rule` and `rule_system` the rule, and `training` trains both.
"""
