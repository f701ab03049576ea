"""What an agent sees of a job: measured features, so that a model that was never seen in training has a place among the others.

Each feature lies in [0, 1]:

- *communication*: share of a step that the job spends communicating when it is alone on two nodes;
- *bandwidth*: what it sends meanwhile, averaged over the step, as a share of a node's link;
- *sensitivity*: throughput that it loses beside a neighbour, averaged over the neighbours it was measured with; who was measured
  with nobody is taken to lose what it spends communicating, the most that losing half of a link can cost.

As one number (the scalar that the paper's cells hold): 0.1 + 0.9 x their mean, so that a GPU in use is never 0.
"""

from __future__ import annotations

from collections import defaultdict

from simulator.slowdown.profiles import Profiles, key_of
from simulator.slowdown.ring import GB, sent_bytes
from simulator.topology import Topology

FEATURES = ("held", "communication", "bandwidth", "sensitivity")
"""Of a cell that holds features: 1 first, then the three."""
_LEAST = 0.1


class JobFeatures:
    """Features by model. Invariant: equal models have equal features, and none fails for want of a profile."""

    def __init__(self, profiles: Profiles, topology: Topology) -> None:
        self._profiles = profiles
        self._link = min((topology.capacity[link] for link in topology.routes.nics(0)), default=float("inf")) * GB
        losses: dict[str, list[float]] = defaultdict(list)
        for (target, _), ratio in profiles.pairs.items():
            losses[target].append(1.0 - ratio)
        self._lost = {target: sum(values) / len(values) for target, values in losses.items()}
        self._known: dict[str, tuple[float, float, float]] = {}

    def of(self, model: str) -> tuple[float, float, float]:
        """Communication, bandwidth and sensitivity."""
        known = self._known.get(model)
        if known is None:
            known = self._known[model] = self._worked_out(model)
        return known

    def _worked_out(self, model: str) -> tuple[float, float, float]:
        profile = self._profiles.of(model)
        sent = sent_bytes(profile, 2)
        communicate_s = sent / self._link
        step_s = profile.step_s(communicate_s)
        communication = _share(communicate_s / step_s)
        return communication, _share(sent / step_s / self._link), _share(self._lost.get(key_of(model), communication))

    def scalar(self, model: str) -> float:
        """All three as one number, more than 0."""
        return _LEAST + (1.0 - _LEAST) * sum(self.of(model)) / 3


def _share(value: float) -> float:
    return min(1.0, max(0.0, value))
