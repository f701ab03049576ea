"""Features of jobs (`policies.learned.contention_rl.features`), from the profiles that slowdown models read."""

from __future__ import annotations

from policies.learned.contention_rl.features import Features, features
from policies.state.pair_ratios import mean_losses
from simulator.cluster.topology import Topology
from simulator.slowdown.links.ring import GB, sent_bytes
from simulator.slowdown.profiles.model_profiles import ModelProfiles, key_of


class JobFeatures:
    """Features by model. Invariant: equal models have equal features, and a missing profile is not an error."""

    def __init__(self, profiles: ModelProfiles, topology: Topology) -> None:
        self._profiles = profiles
        nics = {link for node in range(topology.num_nodes) for link in topology.routes.nics(node)}
        self._link = min((topology.capacity[link] for link in nics), default=float("inf")) * GB
        self._lost = mean_losses(profiles.pairs)
        self._known: dict[str, Features] = {}

    def of(self, model: str) -> Features:
        """Return communication, bandwidth and sensitivity."""
        known = self._known.get(model)
        if known is None:
            profile, lost = self._profiles.of(model), self._lost.get(key_of(model))
            known = features(
                sent_bytes(profile, 2), profile.compute_s, profile.overlap, profile.hiding, self._link, lost
            )
            self._known[model] = known
        return known
