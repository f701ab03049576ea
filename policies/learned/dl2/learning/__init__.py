"""Continued learning of the served agent from the cluster's rewards (section 4.3 of the paper) and replays of its history.
Imports `api`, `documents`, `errors`, `learned/algorithms`, `learned/dl2/division`, `learned/dl2/network`, `learned/dl2/recipe`,
`learned/dl2/slot_state`, `learned/dl2/state_columns`, `learned/dl2/system`, `learned/evaluation`, `learned/training`,
`learned/weights`, `model` and `options`.

The server's side: `job_notes` watches running jobs, `record` and `history` keep the log of ended jobs, `cluster_shape` the nodes,
`service` the weights in service, `attempts` when the next training is due and how it ends (`progress` remembers it),
`attempt_process` the training process; `feedback` learns from rewards, on a copy of the weights; `settings` are the options, and
`learner` joins all in a thread of its own.
The training process: `attempt` trains on replays of the history (`replay_trace`) and compares, and `result` is what it reports.
"""
