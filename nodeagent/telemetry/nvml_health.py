"""Health of a GPU through NVML: temperature, energy, throttling, errors. Runs in the process of nvml_worker.

Functions, fields and units are those of NVML's API reference:
- nvmlDeviceGetTemperature(NVML_TEMPERATURE_GPU): degrees Celsius.
- nvmlDeviceGetTotalEnergyConsumption: millijoules since the driver was last loaded (Volta and later).
- nvmlDeviceGetEnforcedPowerLimit: milliwatts.
- nvmlDeviceGetCurrentClocksEventReasons (before 535: ...ClocksThrottleReasons): a mask of nvmlClocksEventReason bits.
- nvmlDeviceGetViolationStatus(NVML_PERF_POLICY_POWER, _THERMAL): violationTime in nanoseconds, which only rises.
- nvmlDeviceGetTotalEccErrors(..., NVML_VOLATILE_ECC): errors since the driver was last loaded.
- nvmlDeviceGetRemappedRows: rows remapped for corrected and for uncorrected errors; whether a remapping waits for a reset of the
  GPU, and whether one has failed (Ampere and later).
- nvmlDeviceGetPcieReplayCounter: replays since the driver was last loaded.
- NVML_FI_DEV_NVLINK_*_ERROR_COUNT_TOTAL: errors over all links.
- nvmlEventTypeXidCriticalError: eventData is the number of the XID error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml

_MOST_EVENTS = 256
"""Events that are fetched in one reading; more wait for the next."""
_NVLINK = {
    "nvlink_crc_errors": "NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
    "nvlink_replays": "NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
    "nvlink_recoveries": "NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
}

Call = Callable[..., Any]
"""Calls a function of NVML by name; None = this GPU, driver or library does not give the value."""


class XidEvents:
    """Counts XID errors. Invariant: each GPU has an event set of its own, which is made once."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._sets: dict[int, Any] = {}
        """Event set by position; None = this GPU gives no events. Bound: the GPUs of the node."""
        self._counted: dict[int, tuple[int, int | None]] = {}
        """Number of events and the newest by position. Bound: the GPUs of the node."""

    def read(self, position: int, handle: Any) -> tuple[int | None, int | None]:
        """Return the number of errors since the first reading, and the newest error's number; None = not known, or none."""
        if position not in self._sets:
            self._sets[position] = self._subscribe(handle)
        events = self._sets[position]
        if events is None:
            return None, None
        count, newest = self._counted.get(position, (0, None))
        for _ in range(_MOST_EVENTS):
            event = self._call("nvmlEventSetWait_v2", events, 0)  # None after the last one: NVML_ERROR_TIMEOUT
            if event is None:
                break
            if event.eventType == pynvml.nvmlEventTypeXidCriticalError:
                count, newest = count + 1, int(event.eventData)
        self._counted[position] = count, newest
        return count, newest

    def _subscribe(self, handle: Any) -> Any:
        events = self._call("nvmlEventSetCreate")
        if events is None:
            return None
        try:
            pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)
        except pynvml.NVMLError:
            return None
        return events


def read_health(call: Call, handle: Any, position: int, xids: XidEvents) -> dict[str, Any]:
    """Return the fields of report.GpuHealth."""
    reasons = call("nvmlDeviceGetCurrentClocksEventReasons", handle)
    if reasons is None:
        reasons = call("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    rows = call("nvmlDeviceGetRemappedRows", handle)
    errors, newest = xids.read(position, handle)
    return {
        "temperature_c": call("nvmlDeviceGetTemperature", handle, pynvml.NVML_TEMPERATURE_GPU),
        "power_limit_w": _scaled(call("nvmlDeviceGetEnforcedPowerLimit", handle), 1e3),
        "energy_j": _scaled(call("nvmlDeviceGetTotalEnergyConsumption", handle), 1e3),
        "clock_events": reasons,
        "power_violation_s": _violation_s(call, handle, pynvml.NVML_PERF_POLICY_POWER),
        "thermal_violation_s": _violation_s(call, handle, pynvml.NVML_PERF_POLICY_THERMAL),
        "ecc_corrected": _ecc(call, handle, pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
        "ecc_uncorrected": _ecc(call, handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
        "rows_remapped_corrected": None if rows is None else rows[0],
        "rows_remapped_uncorrected": None if rows is None else rows[1],
        "remapping_pending": None if rows is None else bool(rows[2]),
        "remapping_failed": None if rows is None else bool(rows[3]),
        "pcie_replays": call("nvmlDeviceGetPcieReplayCounter", handle),
        **_nvlink_errors(call, handle),
        "xid_errors": errors,
        "newest_xid": newest,
    }


def _scaled(value: int | None, divisor: float) -> float | None:
    return None if value is None else value / divisor


def _violation_s(call: Call, handle: Any, policy: int) -> float | None:
    found = call("nvmlDeviceGetViolationStatus", handle, policy)
    return None if found is None else found.violationTime / 1e9


def _ecc(call: Call, handle: Any, kind: int) -> int | None:
    found: int | None = call("nvmlDeviceGetTotalEccErrors", handle, kind, pynvml.NVML_VOLATILE_ECC)
    return found


def _nvlink_errors(call: Call, handle: Any) -> dict[str, int | None]:
    """Return the errors over all links by kind. Fields that a library does not know are None."""
    known = {name: getattr(pynvml, field) for name, field in _NVLINK.items() if hasattr(pynvml, field)}
    values = call("nvmlDeviceGetFieldValues", handle, list(known.values())) or ()
    found: dict[str, int | None] = dict.fromkeys(_NVLINK)
    for name, value in zip(known, values, strict=False):
        if value.nvmlReturn == 0:
            # The counters are of type unsigned long long; valueType says so, and older drivers leave the upper half 0.
            found[name] = int(value.value.ullVal)
    return found
