"""The Pareto front of a leaderboard: the policies to which no other is preferable in both of two figures.

The average JCT stands against each of p99, makespan and fairness. A policy is *dominated* if another is at least as good in both
figures and better in one; the others are the front. Figures are those of the table of policies, means over all runs, and are
compared as they are: a front says nothing about significance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from simulator.leaderboard.standings import RATIOS, Standing
from simulator.leaderboard.tables import TextTable, hours

ON_FRONT = "front"
AVERAGE = RATIOS[0]


@dataclass(frozen=True, slots=True)
class Against:
    """A figure that stands against the average JCT; less is better."""

    name: str
    unit: str
    value: Callable[[Standing], float]


AGAINST = (
    Against("p99 JCT", "h", lambda each: each.times_s["p99_jct_s"] / 3600),
    Against("makespan", "h", lambda each: each.times_s["makespan_s"] / 3600),
    Against("fairness rho", "", lambda each: each.fairness),
)


def average_h(standing: Standing) -> float:
    """Return the average JCT in hours."""
    return standing.times_s[AVERAGE] / 3600


def front(standings: Sequence[Standing], against: Against) -> list[Standing]:
    """Return the standings that no other dominates, the shortest average JCT first."""
    found = [each for each in standings if dominating(each, standings, against) is None]
    return sorted(found, key=average_h)


def dominating(one: Standing, standings: Sequence[Standing], against: Against) -> Standing | None:
    """Return the standing on the front that dominates this one with the shortest average JCT; None if this one is on the front."""
    mine = average_h(one), against.value(one)
    found = [each for each in standings if _better((average_h(each), against.value(each)), mine)]
    return min(found, key=lambda each: (average_h(each), against.value(each)), default=None)


def _better(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] <= other[0] and one[1] <= other[1] and one != other


def front_table(standings: Sequence[Standing]) -> TextTable:
    """Return the table of the fronts; a policy that is not on one has the number of the best policy that dominates it."""
    numbers = {each.policy: number for number, each in enumerate(standings, 1)}
    rows = tuple(
        (
            each.policy,
            str(numbers[each.policy]),
            *(hours(each.times_s[metric]) for metric in (AVERAGE, "p99_jct_s", "makespan_s")),
            f"{each.fairness:,.2f}",
            *(_place(each, standings, against, numbers) for against in AGAINST),
        )
        for each in standings
    )
    head = (
        *("policy", "no.", "average JCT, h", "p99 JCT, h", "makespan, h", "fairness rho"),
        *(f"average and {against.name}" for against in AGAINST),
    )
    note = (
        "Last columns: on the front of these two figures, or dominated by the policy of that number, which is at least as good in "
        "both and better in one. Means over all runs, compared as they are."
    )
    return TextTable("Pareto front", note, head, rows)


def _place(one: Standing, standings: Sequence[Standing], against: Against, numbers: Mapping[str, int]) -> str:
    better = dominating(one, standings, against)
    return ON_FRONT if better is None else f"by no. {numbers[better.policy]}"
