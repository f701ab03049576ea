"""The rules by their names."""

from __future__ import annotations

from collections.abc import Mapping

from simulator.papers.marl.rules.baselines import LeastInterference, LoadBalancing, Random, Tetris
from simulator.papers.marl.rules.controls import ContentionGreedy, InterferenceGreedy, LookaheadGreedy
from simulator.papers.marl.rules.rule import Rule

BASELINES: Mapping[str, type[Rule]] = {"tetris": Tetris, "lb": LoadBalancing, "lif": LeastInterference}
"""Baselines of the paper that learn nothing."""
RULES: Mapping[str, type[Rule]] = {
    **BASELINES,
    "random": Random,
    "interference-greedy": InterferenceGreedy,
    "contention-greedy": ContentionGreedy,
    "lookahead-greedy": LookaheadGreedy,
}
