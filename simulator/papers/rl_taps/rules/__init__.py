"""Agents of RL-TAPS' environment that act by a rule: the paper's baselines, and controls that know the topology.
Imports `cluster`, `errors`, `papers/rl_taps/batch` and `papers/rl_taps/env`; of other packages `policies`.
"""
