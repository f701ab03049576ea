"""SCHED2 (Luan et al., GLOBECOM 2019): environment, baselines, packing; `reproduction/` has the experiment.
Imports `agents`, `cluster`, `engine`, `envs`, `errors`, `kernel`, `papers/programs`, `reproducing`, `results`, `runs`, `slowdown`
and `traces`; of other packages `policies`.
"""
