"""Speeds of models by locality tier, as policies see them: k = 4 tiers, from concentrated to scattered (SCHED2, section III-B).

Policies do not see sockets, so a job on one node is at the first tier, whether or not the sockets of its GPUs are known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from statistics import median

from controller.profiles.fit_rows import Names, Racks
from controller.profiles.windows import Throughput
from policies.placement.locality_tiers import ACROSS_RACKS, SAME_RACK, SAME_SOCKET
from simulator.slowdown.placement.locality import LocalityRow, compared, curves
from simulator.slowdown.profiles.model_profiles import Curve

Measured = tuple[str, int, int]
"""Model, number of GPUs, and tier of a window."""


def tier_of(nodes: Collection[str], racks: Racks) -> int:
    """Return the tier of a job on these nodes."""
    if len(nodes) == 1:
        return SAME_SOCKET
    return SAME_RACK if len({racks(node) for node in nodes}) == 1 else ACROSS_RACKS


def measured(windows: Iterable[Throughput], racks: Racks, names: Names) -> dict[Measured, list[float]]:
    """Return the steps/s of jobs of known models with several GPUs and no neighbours: a median for each run."""
    found: dict[Measured, dict[tuple[int, int], list[float]]] = defaultdict(lambda: defaultdict(list))
    for item in windows:
        if item.alone and item.trained.signature and item.shape.gpus > 1:
            key = names.of(item.trained, item.shape), item.shape.gpus, tier_of(item.nodes, racks)
            found[key][item.run.job_id, item.run.restart].append(item.steps_per_s)
    return {key: [median(rates) for rates in runs.values()] for key, runs in found.items()}


def locality_curves(found: dict[Measured, list[float]]) -> dict[str, Curve]:
    """Return the throughput of each model at each tier, relative to the first tier at which it was measured.

    Only runs of equal numbers of GPUs are compared; a model that was measured at one tier alone has no curve. A tier without
    measurements has the value of the tier before it.
    """
    rows = [
        LocalityRow(model, f"{gpus} GPUs", tier, rate)
        for (model, gpus, tier), rates in sorted(found.items())
        for rate in rates
        if rate > 0
    ]
    return curves(compared(rows))
