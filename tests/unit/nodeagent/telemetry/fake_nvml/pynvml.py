"""Replaces NVIDIA's library in a child process; the variable FAKE_NVML chooses its behaviour.

Values are those of the real functions; what a real GPU of that kind does not support raises, as in the real library.
"""
# ruff: noqa: N802, N803, N816 - the names are the library's

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

NVML_CLOCK_SM = 1
NVML_PCIE_UTIL_TX_BYTES = 0
NVML_PCIE_UTIL_RX_BYTES = 1
NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL = 38
NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL = 52
NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL = 59
NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX = 138
NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX = 139
NVML_TEMPERATURE_GPU = 0
NVML_PERF_POLICY_POWER = 0
NVML_PERF_POLICY_THERMAL = 1
NVML_MEMORY_ERROR_TYPE_CORRECTED = 0
NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
NVML_VOLATILE_ECC = 0
nvmlEventTypeXidCriticalError = 8
NVML_GPM_METRICS_GET_VERSION = 1
NVML_GPM_METRIC_SM_UTIL = 2
NVML_GPM_METRIC_SM_OCCUPANCY = 3
NVML_GPM_METRIC_ANY_TENSOR_UTIL = 5
NVML_GPM_METRIC_DRAM_BW_UTIL = 10
NVML_GPM_METRIC_PCIE_TX_PER_SEC = 20
NVML_GPM_METRIC_PCIE_RX_PER_SEC = 21
NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC = 60
NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC = 61

BEHAVIOUR = os.environ.get("FAKE_NVML", "good")


class NVMLError(Exception):
    """The same exception as in the library."""


class NVMLError_GpuIsLost(NVMLError):  # noqa: N801, N818 - the name is the library's
    """The library's exception for a GPU that has fallen off the bus."""


def _count_starts():
    if marks := os.environ.get("FAKE_NVML_STARTS"):
        with Path(marks).open("a") as file:
            file.write(f"{os.getpid()}\n")


def nvmlInit():
    _count_starts()
    if BEHAVIOUR == "absent":
        raise NVMLError("NVML Shared Library Not Found")
    if BEHAVIOUR == "slow to start":
        time.sleep(1.0)
    if BEHAVIOUR == "hang at start":
        time.sleep(600)


_round = [0]
"""Number of the reading, from 1; one call more is made at the start."""


def _is_later(behaviour):
    """Return whether the GPU behaves so from the second reading on."""
    return behaviour == BEHAVIOUR and _round[0] > 2


def nvmlDeviceGetCount():
    _round[0] += 1
    return 3 if BEHAVIOUR == "one lost" else 2


def nvmlDeviceGetHandleByIndex(index):
    if BEHAVIOUR == "hang":
        time.sleep(600)
    if BEHAVIOUR == "die":
        os._exit(9)
    if BEHAVIOUR == "nonsense":
        sys.stdout.write("Segmentation fault\n")
    if BEHAVIOUR == "flood":
        sys.stdout.write("x" * 6_000_000)
    if BEHAVIOUR == "once good" and index == 0 and _reads.pop() == 0:
        time.sleep(600)
    if index == 2:
        raise NVMLError("GPU is lost")
    if index == 0 and _is_later("lost later"):
        raise NVMLError_GpuIsLost("GPU is lost")
    return SimpleNamespace(index=index, mig=None)


_reads = [0, 1]


def nvmlDeviceGetMinorNumber(handle):
    if handle.index == 0 and _is_later("lost inside"):  # some drivers still give the handle, and nothing else
        raise NVMLError_GpuIsLost("GPU is lost")
    return 1 - handle.index


def nvmlDeviceGetUUID(handle):
    return f"MIG-{handle.mig}" if handle.mig is not None else f"GPU-{handle.index}"


def nvmlDeviceGetName(handle):
    return "NVIDIA H100 80GB HBM3"


def nvmlDeviceGetPciInfo(handle):
    return SimpleNamespace(busId=f"00000000:{'3B' if handle.index == 0 else 'AF'}:00.0")


def nvmlDeviceGetUtilizationRates(handle):
    if handle.index == 1:
        raise NVMLError("Not Supported")
    if BEHAVIOUR == "wrong values":
        return SimpleNamespace(gpu=4_000_000_000, memory=1)
    return SimpleNamespace(gpu=87, memory=40)


def nvmlDeviceGetMemoryInfo(handle):
    return SimpleNamespace(used=10 * 2**30, total=80 * 2**30, free=70 * 2**30)


def nvmlDeviceGetPowerUsage(handle):
    return 650_500


def nvmlDeviceGetClockInfo(handle, kind):
    assert kind == NVML_CLOCK_SM
    return 1980


def nvmlDeviceGetPcieThroughput(handle, counter):
    return 5_000 + counter


_energy_mj = [1_000_000]
_violation_ns = {NVML_PERF_POLICY_POWER: 0, NVML_PERF_POLICY_THERMAL: 0}
_waits = [0]
_xids = [79, 79] if BEHAVIOUR == "xid" else []


def nvmlDeviceGetTemperature(handle, sensor):
    assert sensor == NVML_TEMPERATURE_GPU
    return 61


def nvmlDeviceGetEnforcedPowerLimit(handle):
    return 700_000


def nvmlDeviceGetTotalEnergyConsumption(handle):
    if handle.index == 1:
        raise NVMLError("Not Supported")
    _energy_mj[0] += 3_000_000
    return _energy_mj[0]


def nvmlDeviceGetCurrentClocksEventReasons(handle):
    if BEHAVIOUR == "old driver":
        raise NVMLError("Function Not Found")
    return 0x20 if BEHAVIOUR == "throttled" and handle.index == 0 else 0


def nvmlDeviceGetCurrentClocksThrottleReasons(handle):
    return 0x1


def nvmlDeviceGetViolationStatus(device, policy):
    if device.index == 1:
        raise NVMLError("Not Supported")
    if BEHAVIOUR == "throttled" and policy == NVML_PERF_POLICY_THERMAL:
        _violation_ns[policy] += 2_500_000_000
    return SimpleNamespace(referenceTime=1_700_000_000_000_000, violationTime=_violation_ns[policy])


def nvmlDeviceGetTotalEccErrors(handle, kind, scope):
    assert scope == NVML_VOLATILE_ECC
    return {NVML_MEMORY_ERROR_TYPE_CORRECTED: 4, NVML_MEMORY_ERROR_TYPE_UNCORRECTED: 0}[kind]


def nvmlDeviceGetRemappedRows(device):
    if device.index == 1:
        raise NVMLError("Not Supported")
    return (2, 1, 1, 1 if _is_later("remapping failed later") else 0)


def nvmlDeviceGetPcieReplayCounter(handle):
    return 9 if handle.index == 0 and _is_later("pcie replays later") else 6


def nvmlEventSetCreate():
    return []


def nvmlDeviceRegisterEvents(handle, kinds, events):
    assert kinds == nvmlEventTypeXidCriticalError
    if handle.index == 1:
        raise NVMLError("Not Supported")
    events.append(handle)


def nvmlEventSetWait_v2(events, timeoutms):
    assert timeoutms == 0
    _waits[0] += 1
    if BEHAVIOUR == "xid later" and _waits[0] == 2:
        _xids.append(79)
    if not _xids:
        raise NVMLError("Timeout")
    return SimpleNamespace(device=events[0], eventType=nvmlEventTypeXidCriticalError, eventData=_xids.pop())


def nvmlDeviceGetFieldValues(handle, fields):
    if not isinstance(fields[0], tuple):  # errors over all links
        codes = [0 if field != NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL else 3 for field in fields]
        errors = 12 if handle.index == 0 and _is_later("nvlink errors later") else 11
        return [SimpleNamespace(nvmlReturn=code, value=SimpleNamespace(ullVal=errors)) for code in codes]
    assert all(scope == 0xFFFFFFFF for _field, scope in fields)
    if handle.index == 1:
        return [SimpleNamespace(nvmlReturn=3, value=SimpleNamespace(ullVal=0)) for _ in fields]
    return [
        SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(ullVal=ctypes.c_ulonglong(7 + i).value)) for i in (0, 1)
    ]


def nvmlDeviceGetProcessUtilization(handle, since):
    if since:
        raise NVMLError("Not Found")
    return [
        SimpleNamespace(pid=100, smUtil=60, timeStamp=5),
        SimpleNamespace(pid=100, smUtil=40, timeStamp=9),
        SimpleNamespace(pid=101, smUtil=20, timeStamp=9),
    ]


def nvmlDeviceGetComputeRunningProcesses(handle):
    if handle.mig is not None:
        return [SimpleNamespace(pid=300 + handle.mig, usedGpuMemory=2**30)]
    if handle.index == 1 and BEHAVIOUR != "mig":
        return []
    return [SimpleNamespace(pid=100, usedGpuMemory=3 * 2**30), SimpleNamespace(pid=101, usedGpuMemory=None)]


def nvmlDeviceGetGraphicsRunningProcesses(handle):
    raise NVMLError("Not Supported")


def nvmlDeviceGetMigMode(handle):
    return [1, 1] if BEHAVIOUR == "mig" and handle.index == 0 else [0, 0]


def nvmlDeviceGetMaxMigDeviceCount(handle):
    return 7


def nvmlDeviceGetMigDeviceHandleByIndex(handle, position):
    if position not in (0, 2):
        raise NVMLError("Not Found")
    return SimpleNamespace(index=handle.index, mig=position)


def nvmlDeviceGetGpuInstanceId(handle):
    return 7 + handle.mig


def nvmlDeviceGetComputeInstanceId(handle):
    return 0


class c_nvmlGpmSample_t(ctypes.Structure):  # noqa: N801 - the name is the library's
    """A pointer to a buffer of the driver; here its number."""

    _fields_ = (("opaque", ctypes.c_void_p),)


class c_nvmlGpmMetric_t(ctypes.Structure):  # noqa: N801 - the name is the library's
    """One metric of a request, and its answer."""

    _fields_ = (("metricId", ctypes.c_uint), ("nvmlReturn", ctypes.c_uint), ("value", ctypes.c_double))


class c_nvmlGpmMetricsGet_t(ctypes.Structure):  # noqa: N801 - the name is the library's
    """A request for metrics between two samples."""

    _fields_ = (
        ("version", ctypes.c_uint), ("numMetrics", ctypes.c_uint), ("sample1", c_nvmlGpmSample_t),
        ("sample2", c_nvmlGpmSample_t), ("metrics", c_nvmlGpmMetric_t * 98),
    )  # fmt: skip


_samples = {}
"""Time of the newest sample in each buffer, by its number."""
_GPM = {
    NVML_GPM_METRIC_SM_UTIL: 75.0, NVML_GPM_METRIC_SM_OCCUPANCY: 40.0, NVML_GPM_METRIC_ANY_TENSOR_UTIL: 100.0000004,
    NVML_GPM_METRIC_DRAM_BW_UTIL: 62.5, NVML_GPM_METRIC_PCIE_TX_PER_SEC: 2048.0, NVML_GPM_METRIC_PCIE_RX_PER_SEC: 0.0,
    NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC: 1024.0,
}  # fmt: skip
"""Values; others are not supported."""


def nvmlGpmQueryDeviceSupport(device):
    if BEHAVIOUR == "old driver":
        raise NVMLError("Function Not Found")
    return SimpleNamespace(version=1, isSupportedDevice=1 - device.index)


def nvmlGpmSampleAlloc():
    _samples[len(_samples) + 1] = 0
    return c_nvmlGpmSample_t(len(_samples))


def nvmlGpmSampleGet(device, gpmSample):
    assert device.index == 0
    if _is_later("gpm gap") and _round[0] == 3:
        raise NVMLError("Unknown Error")
    _samples[gpmSample.opaque] = _round[0]
    return gpmSample


def nvmlGpmMetricsGet(metricsGet):
    assert metricsGet.version == NVML_GPM_METRICS_GET_VERSION
    times = [_samples[each.opaque] for each in (metricsGet.sample1, metricsGet.sample2)]
    assert times == [_round[0] - 1, _round[0]]  # of the last reading and of this one
    for metric in metricsGet.metrics[: metricsGet.numMetrics]:
        metric.nvmlReturn, metric.value = (0, _GPM[metric.metricId]) if metric.metricId in _GPM else (3, 0.0)
    return metricsGet
