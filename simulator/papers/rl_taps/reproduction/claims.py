"""The paper's claims (section 5.4), and others beside them. A claim holds if its whole 95 % interval reaches the goal.

The paper gives no numbers: its figures show reward and slowdown "clearly better" than those of its baselines. The goals are
stated here.
"""

from __future__ import annotations

from simulator.papers.rl_taps.reproduction.contenders import (
    AGENTS,
    BASELINES,
    BLOCKS,
    CONTROLS,
    ONE_EACH,
    OURS,
)
from simulator.papers.rl_taps.reproduction.settings import COST, SLOWDOWN
from simulator.reproducing.experiment import Claim

_TO_BASELINES, _TO_CONTROLS = -0.20, -0.05
_BASELINES, _CONTROLS = "the best baseline of the paper", "the best control that knows the topology"


def claims(setting: str) -> list[Claim]:
    """Return the claims about a setting."""
    found = [_claim(ours, SLOWDOWN, setting, BASELINES, _BASELINES, _TO_BASELINES) for ours in AGENTS]
    found += [_claim(ours, COST, setting, BASELINES, _BASELINES, 0.0) for ours in AGENTS]
    found += [_claim(ours, SLOWDOWN, setting, CONTROLS, _CONTROLS, _TO_CONTROLS) for ours in AGENTS]
    found += [_claim(ours, SLOWDOWN, setting, (ONE_EACH,), "one GPU for each job", 0.0) for ours in AGENTS]
    found += [_claim(ours, SLOWDOWN, setting, (BLOCKS,), "the rule that is imitated", 0.0) for ours in AGENTS]
    others = [name for name in AGENTS if name != OURS]
    return [*found, *(_claim(OURS, SLOWDOWN, setting, (other,), other, 0.0) for other in others)]


def _claim(ours: str, metric: str, setting: str, against: tuple[str, ...], what: str, goal: float) -> Claim:
    name = f"{ours}: {metric} against {what}, {setting}"
    return Claim(name=name, setting=setting, metric=metric, ours=ours, against=against, paper=None, goal=goal)
