"""The rules by their names."""

from __future__ import annotations

from collections.abc import Mapping

from simulator.papers.marl.rules.atte import Atte
from simulator.papers.marl.rules.baselines import Kubernetes, LeastInterference, LoadBalancing, Random, Tetris
from simulator.papers.marl.rules.controls import ContentionGreedy, InterferenceGreedy, LookaheadGreedy
from simulator.papers.marl.rules.deepsys import DeepSys
from simulator.papers.marl.rules.rule import Rule

BASELINES: Mapping[str, type[Rule]] = {
    "tetris": Tetris, "lb": LoadBalancing, "lif": LeastInterference, "deepsys": DeepSys, "atte": Atte,
}  # fmt: skip
"""Baselines of the paper."""
RULES: Mapping[str, type[Rule]] = {
    **BASELINES,
    "random": Random,
    "kubernetes": Kubernetes,
    "interference-greedy": InterferenceGreedy,
    "contention-greedy": ContentionGreedy,
    "lookahead-greedy": LookaheadGreedy,
}
