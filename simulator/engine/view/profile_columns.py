"""The profiles and link speeds that policies see: columns of `policies.model`, from the numbers that slowdown models read.

The pair table, the ring times, the speeds of GPUs and the sensitivity to them are shown only if the simulated cluster slows jobs
down by them: otherwise they could not have been measured there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from policies.model import FloatColumn, IntColumn, Pairs, ProfileTable
from policies.state.pair_ratios import mean_losses
from simulator.cluster.topology import Topology, TreeRoutes
from simulator.slowdown.api import SlowdownModel, batch_per_gpu
from simulator.slowdown.compose import Composite
from simulator.slowdown.links.link_sharing import LinkSharing
from simulator.slowdown.neighbours.pair_table import PairTable
from simulator.slowdown.placement.node_speed import NodeSpeed
from simulator.slowdown.profiles.model_profiles import TIERS, ModelProfile, ModelProfiles, key_of
from simulator.traces.trace import Trace

PCIE_GBYTE_S = 16.0
"""Bandwidth of which a profile gives a share: PCIe 3.0 with 16 lanes."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurements of several jobs or nodes that are possible on the simulated cluster."""

    pairs: bool = False
    """Jobs that share nodes slow each other down by the pair table."""
    ring: bool = False
    """Reductions take the measured time of a ring."""
    speeds: bool = False
    """Jobs run at the speed of their nodes' GPUs."""
    sensitivity: bool = False
    """Models feel different shares of that speed."""

    @staticmethod
    def where(models: Sequence[SlowdownModel]) -> Measured:
        """Return what can be measured on a cluster with those slowdown models."""
        kinds = {type(model): model for model in _single(models)}
        by_speed = kinds.get(NodeSpeed)
        sensitivity = isinstance(by_speed, NodeSpeed) and by_speed.by_profile
        return Measured(PairTable in kinds, LinkSharing in kinds, by_speed is not None, sensitivity)


class ProfileColumns:
    """Profiles of a trace's jobs. A job without a model name has none; an unknown model has the default profile."""

    def __init__(self, trace: Trace, profiles: ModelProfiles, measured: Measured = Measured()) -> None:
        models = tuple(sorted({model for model in trace.model if model}))
        row = {model: place for place, model in enumerate(models)}
        self._of_job: IntColumn = np.fromiter(
            (row.get(model, -1) for model in trace.model), dtype=np.int64, count=len(trace)
        )
        batches = [
            batch_per_gpu(size, gpus)
            for size, gpus in zip(trace.batch_size.tolist(), trace.num_gpus.tolist(), strict=True)
        ]
        self._batch = _known(batches) if any(size > 0 for size in batches) else None
        known = [profiles.of(model) for model in models]
        losses = mean_losses(profiles.pairs)
        lost = [losses.get(key_of(model), np.nan) for model in models]
        self._columns = _columns(known) | {
            "models": models,
            "neighbour_loss": np.array(lost, dtype=np.float64),
            "pairs": Pairs.of(profiles.pairs) if measured.pairs and profiles.pairs else None,
            "ring": profiles.ring if measured.ring else None,
            "speed_sensitivity": np.array([each.speed_sensitivity for each in known]) if measured.sensitivity else None,
        }

    def of(self, rows: Sequence[int] | IntColumn) -> ProfileTable:
        """Return the profiles for a state whose jobs are those rows of the trace."""
        batch = None if self._batch is None else self._batch[rows]
        return ProfileTable(of_job=self._of_job[rows], job_batch_per_gpu=batch, **self._columns)  # type: ignore[arg-type] # columns by name


def _columns(known: Sequence[ModelProfile]) -> dict[str, object]:
    """Return columns with one entry per profile."""
    unknown = (np.nan,) * len(TIERS)
    curves = np.array([each.locality or unknown for each in known], dtype=np.float64)
    return {
        "locality": curves.reshape(-1, len(TIERS)),
        "bytes_per_step": np.array([each.bytes for each in known], dtype=np.float64),
        "compute_s": np.array([each.compute_s for each in known], dtype=np.float64),
        "cpu_cores": np.array([each.cpu for each in known], dtype=np.float64),
        "pcie_gbyte_s": np.array([each.pcie * PCIE_GBYTE_S for each in known], dtype=np.float64),
        "overlap": np.array([each.overlap for each in known], dtype=np.float64),
        "hiding": np.array([each.hiding for each in known], dtype=np.float64),
        "batch_per_gpu": _known([each.batch for each in known]),
    }


def _known(numbers: Sequence[float]) -> FloatColumn:
    """Return the numbers as a column, with NaN for unknown ones (0 or less)."""
    column = np.array(numbers, dtype=np.float64)
    return np.where(column > 0, column, np.nan)


def _single(models: Sequence[SlowdownModel]) -> Iterator[SlowdownModel]:
    for model in models:
        if isinstance(model, Composite):
            yield from _single(model.models)
        else:
            yield model


def link_columns(topology: Topology) -> dict[str, FloatColumn]:
    """Return the columns of `policies.model.Nodes` about links. Uplinks are those of a rack; links above racks are not shown."""
    routes, nodes = topology.routes, range(topology.num_nodes)
    nics = [min((topology.capacity[link] for link in routes.nics(node)), default=np.nan) for node in nodes]
    above = routes.above if isinstance(routes, TreeRoutes) else [()] * topology.num_nodes
    return {
        "nic_gbyte_s": np.array(nics, dtype=np.float64),
        "uplink_gbyte_s": np.array([topology.capacity[up[0]] if up else np.nan for up in above], dtype=np.float64),
        "pcie_gbyte_s": np.full(topology.num_nodes, topology.inside.pcie_gbs),
    }
