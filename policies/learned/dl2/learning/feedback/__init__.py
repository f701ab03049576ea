"""Gradient steps from the rewards of the cluster itself, on a copy of the weights in service (section 4.3 of the paper).
Imports `api`, `learned/algorithms`, `learned/dl2/division`, `learned/dl2/learning/service`, `learned/dl2/recipe`,
`learned/dl2/system`, `learned/weights` and `model`.

`reward` adds up the progress of jobs, `decisions` keeps the agent's actions until their reward is known, `network_copy` is the copy
of the networks that learns, and `feedback` joins them.
"""
