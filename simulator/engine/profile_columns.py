"""What policies see of how models train and how fast links are: the columns of `policies.model`, from the numbers that slowdown
models read.

What was measured of pairs, and of ring reductions, is there where the simulated cluster slows jobs down by it: nobody could have
measured on it what does not happen there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from policies.model import FloatColumn, IntColumn, Pairs
from policies.model import ProfileTable as Columns
from policies.state.pair_ratios import mean_losses
from simulator.cluster.topology import Topology, TreeRoutes
from simulator.slowdown.api import SlowdownModel, batch_per_gpu
from simulator.slowdown.compose import Composite
from simulator.slowdown.link_sharing import LinkSharing
from simulator.slowdown.pair_table import PairTable
from simulator.slowdown.profiles import TIERS, Profile, Profiles, key_of
from simulator.traces.trace import Trace

PCIE_GBYTE_S = 16.0
"""What a profile's share of PCIe is a share of: PCIe 3.0 with 16 lanes."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What besides single models can have been measured on the simulated cluster."""

    pairs: bool = False
    """Jobs that share nodes slow each other down by the pair table."""
    ring: bool = False
    """Reductions take what the measured ring takes."""

    @staticmethod
    def where(models: Sequence[SlowdownModel]) -> Measured:
        """On a cluster with those slowdown models."""
        kinds = {type(model) for model in _single(models)}
        return Measured(PairTable in kinds, LinkSharing in kinds)


class ProfileColumns:
    """The profiles of a trace's jobs. Jobs without a name of what they train have none; unknown names have the usual numbers."""

    def __init__(self, trace: Trace, profiles: Profiles, measured: Measured = Measured()) -> None:
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
        }

    def of(self, rows: Sequence[int] | IntColumn) -> Columns:
        """For a state whose jobs are those rows of the trace."""
        batch = None if self._batch is None else self._batch[rows]
        return Columns(of_job=self._of_job[rows], job_batch_per_gpu=batch, **self._columns)  # type: ignore[arg-type] # columns by name


def _columns(known: Sequence[Profile]) -> dict[str, object]:
    """One entry per profile."""
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
    """NaN for those that are not above 0, which here means not known."""
    column = np.array(numbers, dtype=np.float64)
    return np.where(column > 0, column, np.nan)


def _single(models: Sequence[SlowdownModel]) -> Iterator[SlowdownModel]:
    for model in models:
        if isinstance(model, Composite):
            yield from _single(model.models)
        else:
            yield model


def link_columns(topology: Topology) -> dict[str, FloatColumn]:
    """The columns of `policies.model.Nodes` that tell of links. Uplinks are those of a rack; what is above racks is not told."""
    routes, nodes = topology.routes, range(topology.num_nodes)
    nics = [min((topology.capacity[link] for link in routes.nics(node)), default=np.nan) for node in nodes]
    above = routes.above if isinstance(routes, TreeRoutes) else [()] * topology.num_nodes
    return {
        "nic_gbyte_s": np.array(nics, dtype=np.float64),
        "uplink_gbyte_s": np.array([topology.capacity[up[0]] if up else np.nan for up in above], dtype=np.float64),
        "pcie_gbyte_s": np.full(topology.num_nodes, topology.inside.pcie_gbs),
    }
