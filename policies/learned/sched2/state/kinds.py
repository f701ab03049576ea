"""Names of the networks and of the rewards that a recipe can choose."""

from __future__ import annotations

PAPER, FEATURES = "paper", "features"
NETWORKS = (PAPER, FEATURES)
EFFECTIVENESS, COMPLETIONS = "effectiveness", "completions"
REWARDS = (EFFECTIVENESS, COMPLETIONS)
