"""DL2 (Peng et al., TPDS 2021): the environment of elastic jobs with workers and parameter servers, agents, and the experiment.
Imports `agents`, `cluster`, `engine`, `envs`, `errors`, `kernel`, `papers/programs`, `reproducing`, `results`, `runs`,
`slowdown` and `traces`; of other packages `policies`.
"""
