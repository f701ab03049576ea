"""The paper's claims (section VI, "Results"), and others beside them. A claim holds if its whole 95 % interval reaches the goal."""

from __future__ import annotations

from simulator.papers.contention_rl import contenders as names
from simulator.reproducing.experiment import Claim

MARGINS = {
    (names.BASE, "avg_service_s", "srtf"): -0.154,
    (names.BASE, "avg_service_s", "las"): -0.182,
    (names.BASE, "p90_service_s", "srtf"): -0.164,
    (names.BASE, "p90_service_s", "las"): -0.207,
    (names.HYBRID, "avg_service_s", "srtf"): -0.121,
    (names.HYBRID, "avg_service_s", "las"): -0.151,
    (names.HYBRID, "p90_service_s", "srtf"): -0.164,
    (names.HYBRID, "p90_service_s", "las"): -0.207,
}
"""The paper's margins: branch B on the normal mix. Its JCT is running time."""
_OTHERS = {names.BASE: ("fewest-gpus", names.GREEDY, names.GREEDY_BY_GPUS), names.HYBRID: (names.SPARING,)}
"""Policies without branches that are held against the margins too."""


def in_rounds(settings: tuple[str, ...]) -> list[Claim]:
    """Return the claims about the paper's own agent in those settings; the first is the normal mix."""
    normal = settings[0]
    found = [
        _claim(names.of_paper(policy, "B"), metric, (other,), normal, goal, paper=goal)
        for (policy, metric, other), goal in MARGINS.items()
    ]
    found += [
        _claim(
            names.of_paper(policy, "B"),
            "avg_service_s",
            (names.SPREAD,),
            normal,
            MARGINS[policy, "avg_service_s", "srtf"],
        )
        for policy in (names.BASE, names.HYBRID)
    ]
    for setting in settings:
        base, hybrid = (names.of_paper(policy, "B") for policy in (names.BASE, names.HYBRID))
        found += [_claim(ours, "avg_service_s", names.BASELINES, setting, 0.0) for ours in (base, hybrid)]
        found += [_claim(ours, "avg_jct_s", names.ROUND_CONTROLS, setting, 0.0) for ours in (base, hybrid)]
        found += [_claim(hybrid, "utilization", (base, *names.BASELINES), setting, 0.0)]
    return found


def at_events(normal: str, *, branches: bool) -> list[Claim]:
    """Return the claims about agents of Headway's own recipe, which decide at events. Only branch B is the paper's."""
    branch = {(policy, f"{policy}:branch=B"): True for policy in (names.BASE, names.HYBRID)} if branches else {}
    held = branch | {
        (policy, ours): False
        for policy, others in _OTHERS.items()
        for ours in (policy, *([names.HEADWAY] if policy == names.BASE else []), *others)
    }
    margins = [
        _claim(ours, metric, (other,), normal, goal, paper=goal if is_paper else None)
        for (policy, ours), is_paper in held.items()
        for (named, metric, other), goal in MARGINS.items()
        if named == policy
    ]
    controls = ("srtf", "las", *names.PAPER_CONTROLS)
    return margins + [
        _claim(ours, "avg_jct_s", controls, normal, 0.0) for ours in (names.BASE, names.HYBRID, names.HEADWAY)
    ]


def near_the_bound(setting: str) -> list[Claim]:
    """Return the claims that policies come within 1 % of the lower bound."""
    return [
        Claim(
            name=f"{ours}: avg_jct_s within 1 % of the lower bound, {setting}",
            setting=setting,
            metric="avg_jct_s",
            ours=ours,
            against=(names.BOUND,),
            paper=None,
            goal=0.01,
        )
        for ours in (names.HYBRID, f"{names.HYBRID}:branch=A", "fewest-gpus")
    ]


def _claim(
    ours: str,
    metric: str,
    against: tuple[str, ...],
    setting: str,
    goal: float,
    what: str = "",
    *,
    paper: float | None = None,
) -> Claim:
    others = what or (against[0] if len(against) == 1 else "the best other")
    name = f"{ours}: {metric} against {others}, {setting}"
    return Claim(name=name, setting=setting, metric=metric, ours=ours, against=against, paper=paper, goal=goal)
