"""CASSINI: of the placements that a scheduler offers, the one whose jobs fit beside each other on links when shifted in time.

Source: Rajasekaran, Ghobadi and Akella, "CASSINI: Network-aware job scheduling in machine learning clusters", NSDI 2024. It is a
module for a scheduler, which offers candidate placements: each gets the mean (or the least) of the scores of its links
(`policies.speeds.interleaving`), one whose affinity graph has a loop is discarded, and the best is taken.

Choices (docs/policies/heuristics.md says more):
- the scheduler is an `order` of jobs with preemptive selection by GPUs, as for `pal`; its candidates are those of
  `policies.placement.candidates`, less those on which the job alone would be slower than at the best of them by more than `slack`;
- jobs are placed one by one, each at the best of its own candidates, where the paper compares placements of the whole cluster;
- a candidate's score is that of the links which its start changes: those connected with its own by shared links that could be full;
- equal scores go to the first candidate: consolidated best fit. Where all are discarded, the first is taken too;
- a decision has no shifts: they follow from the allocation and the profiles alone. The simulator's `max-min:sharing=shifts` delays
  the jobs so. On a live cluster nothing delays a job: there only the placement is CASSINI's.
"""

from __future__ import annotations

from collections.abc import Mapping

from policies.api import Decision, PolicySpec
from policies.model import ClusterState, Placement
from policies.options import choice, number, whole
from policies.ordering.run_rule import order_keys
from policies.ordering.select_by_total import select_by_total
from policies.placement.best_fit import Capacity, Fit
from policies.placement.candidates import candidates
from policies.placement.rules import PlacementRule
from policies.rule import Discipline, Order, Rule
from policies.selection import active, by
from policies.speeds.interleaving.link_fit import LinkFit

ORDERS = {"fifo": Order.ARRIVAL, "las": Order.ATTAINED, "srtf": Order.REMAINING, "srsf": Order.REMAINING_GPUS}
SCORES = ("mean", "least")
_SAME = 1e-9


class Cassini:
    """Runs jobs in another scheduler's order, each where its sending fits best between that of others on the same links."""

    def __init__(
        self,
        order: str = "srtf",
        score: str = "mean",
        candidates: int = 10,
        slack: float = 0.05,
        round_s: float = 300.0,
    ) -> None:
        """Jobs by `order` (fifo, las, srtf or srsf). Of at most `candidates` placements, those where the job alone takes at most
        1 + `slack` times as long as at the best are compared by the mean or the least `score` of their links. With `las` it decides
        again every `round_s` seconds."""
        kind = ORDERS[choice("order", order, tuple(ORDERS))]
        self._rule = Rule(kind, Discipline.SELECT)
        self._least = choice("score", score, SCORES) == "least"
        self._most = whole("candidates", candidates, least=1)
        self._slack = number("slack", slack, unit="times a step")
        seconds = number("round_s", round_s, unit="seconds")
        self.spec = PolicySpec(
            name="cassini",
            source="CASSINI (Rajasekaran et al., NSDI 2024)",
            preempts=True,
            round_s=seconds if kind == Order.ATTAINED else 0.0,
            needs=frozenset({"profile"} | ({"duration_estimate"} if order in {"srtf", "srsf"} else set())),
        )

    def decide(self, state: ClusterState) -> Decision:
        """Select down the order by GPUs; place the newcomers where they fit beside others on their links."""

        def claim(base: Capacity, kept: Mapping[int, Placement], newcomers: list[int]) -> dict[int, Fit]:
            links = LinkFit(state, kept)
            return PlacementRule(
                "interleaved", lambda capacity, row: self._place(links, capacity, row), links.add
            ).claim(base, newcomers)

        def explain(state: ClusterState, fit: Fit) -> str:
            return PlacementRule("interleaved", lambda _capacity, _row: None).explain(state, fit)

        return select_by_total(state, by(order_keys(self._rule, state), active(state)), claim, explain)

    def _place(self, links: LinkFit, capacity: Capacity, row: int) -> Placement | None:
        """Return the candidate with the best score; None where the job does not fit."""
        offered = []
        for placement in candidates(capacity, row, links.crowd):
            offered.append(placement)
            if len(offered) == self._most:
                break
        if len(offered) < 2:
            return offered[0] if offered else None
        steps = [links.step_s(row, placement) for placement in offered]
        slowest = min(steps) * (1.0 + self._slack)
        best, highest = offered[0], None
        for placement, step_s in zip(offered, steps, strict=True):
            score = links.score(row, placement, least=self._least) if step_s <= slowest else None
            if score is not None and (highest is None or score > highest + _SAME):
                best, highest = placement, score
        return best
