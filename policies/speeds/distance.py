"""Speed that jobs keep at a distance: what is left of it when their nodes are in several racks, from their profiles."""

from __future__ import annotations

import numpy as np

from policies.model import FloatColumn
from policies.placement.best_fit import Capacity
from policies.placement.locality_tiers import ACROSS_RACKS, SAME_RACK, best_shape
from policies.speeds.job_profiles import StepModels
from policies.speeds.links import NetworkLinks


def far_speeds(capacity: Capacity) -> FloatColumn:
    """Return for each job of the state its speed at the worst distance, as a share of that at its best placement, both alone.

    The worst distance is two racks, or two nodes where there is one rack. The measured curve by locality counts if there is one,
    else the time of a step over the narrowest links; models without a profile have typical values.
    """
    state = capacity.state
    network, models = NetworkLinks(state), StepModels(state)
    curves = None if state.profiles is None else state.profiles.per_job(state.profiles.locality)
    far = ACROSS_RACKS if network.num_racks > 1 else SAME_RACK
    known: dict[tuple[int, int], float] = {}
    speeds = np.ones(len(state.jobs))
    for row, gpus in enumerate(state.jobs.num_gpus.tolist()):
        if gpus == 1:
            continue
        kind = models.ident(row), gpus
        if kind not in known:
            known[kind] = _far_speed(capacity, row, far, network, models, curves)
        speeds[row] = known[kind]
    return speeds


def _far_speed(
    capacity: Capacity, row: int, far: int, network: NetworkLinks, models: StepModels, curves: FloatColumn | None
) -> float:
    if curves is not None and not np.isnan(curves[row]).any():
        return min(1.0, float(curves[row, far] / curves[row, best_shape(capacity, row)[1]]))
    model, gpus = models.of(row), int(capacity.state.jobs.num_gpus[row])
    best_s = network.best_reduce_s(model, gpus, network.num_racks, models.ring)
    return min(1.0, model.step_s(best_s) / model.step_s(network.far_reduce_s(model, gpus, models.ring)))
