"""GPU performance monitoring (GPM) through NVML: means over the time since the last reading. Runs in the process of nvml_worker.

Functions, metrics and units are those of NVML's API reference; Hopper and later have them:
- nvmlGpmQueryDeviceSupport: isSupportedDevice is 1 where the GPU has GPM.
- nvmlGpmSampleAlloc, nvmlGpmSampleGet: a buffer, and the counters of this moment in it. A GPU in MIG mode gives no sample.
- nvmlGpmMetricsGet: each wanted metric between sample1 and the later sample2, with a status of its own.
- SM_UTIL, SM_OCCUPANCY, ANY_TENSOR_UTIL, DRAM_BW_UTIL: percent. PCIE_*_PER_SEC, NVLINK_TOTAL_*_PER_SEC: MiB/s.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pynvml

_MIB = 1024 * 1024
_PERCENT = {
    "sm_percent": "NVML_GPM_METRIC_SM_UTIL",
    "sm_occupancy_percent": "NVML_GPM_METRIC_SM_OCCUPANCY",
    "tensor_percent": "NVML_GPM_METRIC_ANY_TENSOR_UTIL",
    "dram_percent": "NVML_GPM_METRIC_DRAM_BW_UTIL",
}
_MIB_PER_S = {
    "pcie_tx_bytes_per_s": "NVML_GPM_METRIC_PCIE_TX_PER_SEC",
    "pcie_rx_bytes_per_s": "NVML_GPM_METRIC_PCIE_RX_PER_SEC",
    "nvlink_tx_bytes_per_s": "NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC",
    "nvlink_rx_bytes_per_s": "NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC",
}

Call = Callable[..., Any]
"""Calls a function of NVML by name; None = this GPU, driver or library does not give the value."""


class GpmSamples:
    """Takes a sample at each reading, and compares it with the one before.

    Invariant: each GPU that has GPM has two buffers, which are allocated once; the driver frees them when this process ends.
    """

    def __init__(self, call: Call) -> None:
        self._call = call
        self._buffers: dict[int, list[Any]] = {}
        """Buffers by position, the one with the last sample first; empty = the GPU has no GPM. Bound: the GPUs of the node."""
        self._sampled: set[int] = set()
        """Positions whose first buffer has a sample. Bound: the GPUs of the node."""

    def read(self, position: int, handle: Any) -> dict[str, float | None] | None:
        """Return the fields of report.GpmReading; None = this GPU has no GPM, or there is no earlier sample."""
        if position not in self._buffers:
            self._buffers[position] = self._allocate(handle)
        buffers = self._buffers[position]
        if not buffers or self._call("nvmlGpmSampleGet", handle, buffers[1]) is None:
            self._sampled.discard(position)  # the next difference would begin before the gap
            return None
        buffers.reverse()
        if position not in self._sampled:
            self._sampled.add(position)
            return None
        return self._between(earlier=buffers[1], later=buffers[0])

    def _allocate(self, handle: Any) -> list[Any]:
        support = self._call("nvmlGpmQueryDeviceSupport", handle)
        if support is None or not support.isSupportedDevice:
            return []
        buffers = [self._call("nvmlGpmSampleAlloc") for _ in range(2)]
        return [] if None in buffers else buffers

    def _between(self, earlier: Any, later: Any) -> dict[str, float | None] | None:
        wanted = {name: getattr(pynvml, metric, None) for name, metric in (_PERCENT | _MIB_PER_S).items()}
        known = {name: metric for name, metric in wanted.items() if metric is not None}
        request = pynvml.c_nvmlGpmMetricsGet_t()
        request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        request.sample1, request.sample2 = earlier, later
        request.numMetrics = len(known)
        for place, metric in enumerate(known.values()):
            request.metrics[place].metricId = metric
        answer = self._call("nvmlGpmMetricsGet", request)
        if answer is None:
            return None
        found: dict[str, float | None] = dict.fromkeys(wanted)
        for place, name in enumerate(known):
            metric = answer.metrics[place]
            if metric.nvmlReturn == 0 and math.isfinite(metric.value):
                found[name] = _bounded(name, metric.value)
        return found


def _bounded(name: str, value: float) -> float:
    """Convert to the field's unit. Counters of two samples are not read at one moment, so shares may be a little beyond 100 %."""
    return min(max(value, 0.0), 100.0) if name in _PERCENT else max(value, 0.0) * _MIB
