"""DL2 (Peng et al., TPDS 2021): an agent gives workers and parameter servers to elastic jobs, one task after the other.
Imports `api`, `documents`, `errors`, `learned/algorithms`, `learned/evaluation`, `learned/resizing_guard`, `learned/shadow`,
`learned/training`, `learned/weights`, `model`, `options`, `ordering` and `placement`.

`state_columns` says what the numbers of a state mean, `network` has the policy and value networks, `teachers` the rules that the
supervised phase imitates, `exploration` the job-aware exploration, `supervised` and `slots` the two phases, `on_policy` and
`credit` another form of the second one, with the network of `shared_network`, which are not in the paper, `recipe` their
hyper-parameters, `serving` and `without_bundle` the agent's choice, and `system` joins them for `headway-policy train dl2`.
`policy` serves the agents of both trainings on a cluster, `slot_state` shows it the cluster's jobs, and `learning`
goes on training it there.
"""
