"""One folder for each published system: its environment, baselines and experiment.
Imports `agents`, `cluster`, `engine`, `envs`, `errors`, `kernel`, `reproducing`, `results`, `runs`, `slowdown` and `traces`; of
other packages `policies`.
"""
