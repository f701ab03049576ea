"""The goals of the experiment. A claim holds if its whole 95 % interval reaches the goal; there is no paper."""

from __future__ import annotations

from simulator.papers.headway_rl.contenders import GREEDY, HEADWAY, START, VARIANTS
from simulator.reproducing.experiment import Claim

GAINS = {"one-normal": -0.12, "one-heavy": -0.20, "two-normal": -0.40, "two-heavy": -0.40}
"""Changes of the average JCT to be reached against the best control that ignores contention, by setting; 0 in all others."""
_TO_GREEDY = -0.02


def claims(setting: str, controls: tuple[str, ...]) -> list[Claim]:
    """Return the claims about a setting: headway-rl, contention-greedy and each variant against the controls, and headway-rl
    against the former two."""
    goal = GAINS.get(setting, 0.0)
    found = [_blind(ours, "avg_jct_s", setting, controls, goal) for ours in (HEADWAY, GREEDY)]
    found += [_blind(ours, "avg_jct_s", setting, controls, 0.0) for ours in VARIANTS]
    found += [_blind(ours, "p90_jct_s", setting, controls, 0.0) for ours in (HEADWAY, *VARIANTS, GREEDY)]
    return [
        *found,
        _claim(HEADWAY, "avg_jct_s", setting, (GREEDY,), GREEDY, _TO_GREEDY),
        _claim(HEADWAY, "avg_jct_s", setting, (START,), "the rule that training began with", 0.0),
    ]


def _blind(ours: str, metric: str, setting: str, controls: tuple[str, ...], goal: float) -> Claim:
    return _claim(ours, metric, setting, controls, "the best control that ignores contention", goal)


def _claim(ours: str, metric: str, setting: str, against: tuple[str, ...], what: str, goal: float) -> Claim:
    name = f"{ours}: {metric} against {what}, {setting}"
    return Claim(name=name, setting=setting, metric=metric, ours=ours, against=against, paper=None, goal=goal)
