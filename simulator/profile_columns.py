"""Profiles as policies see them: the columns of `policies.model.Profiles`, from the numbers that slowdown models read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from policies.model import IntColumn
from policies.model import Profiles as Columns
from simulator.slowdown.profiles import TIERS, Profiles
from simulator.traces.trace import Trace

PCIE_GBYTE_S = 16.0
"""What a profile's share of PCIe is a share of: PCIe 3.0 with 16 lanes."""


class ProfileColumns:
    """The profiles of a trace's jobs. Jobs without a name of what they train have none; unknown names have the usual numbers."""

    def __init__(self, trace: Trace, profiles: Profiles) -> None:
        models = tuple(sorted({model for model in trace.model if model}))
        row = {model: place for place, model in enumerate(models)}
        self._of_job: IntColumn = np.fromiter(
            (row.get(model, -1) for model in trace.model), dtype=np.int64, count=len(trace)
        )
        known = [profiles.of(model) for model in models]
        unknown = (np.nan,) * len(TIERS)
        self._columns = {
            "models": models,
            "locality": np.array([each.locality or unknown for each in known], dtype=np.float64).reshape(
                -1, len(TIERS)
            ),
            "bytes_per_step": np.array([each.bytes for each in known], dtype=np.float64),
            "compute_s": np.array([each.compute_s for each in known], dtype=np.float64),
            "cpu_cores": np.array([each.cpu for each in known], dtype=np.float64),
            "pcie_gbyte_s": np.array([each.pcie * PCIE_GBYTE_S for each in known], dtype=np.float64),
        }

    def of(self, rows: Sequence[int] | IntColumn) -> Columns:
        """For a state whose jobs are those rows of the trace."""
        return Columns(of_job=self._of_job[rows], **self._columns)  # type: ignore[arg-type] # columns by name
