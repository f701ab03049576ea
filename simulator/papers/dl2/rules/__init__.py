"""Agents of DL2's environment that act by a rule: the paper's baselines, the greedy oracle, and a linear rule.
Imports `errors`, `kernel`, `papers/dl2/env`, `papers/dl2/options`, `papers/dl2/servers`, `papers/dl2/slot` and `traces`; of other
packages `policies`.
"""
