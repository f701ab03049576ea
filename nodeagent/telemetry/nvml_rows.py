"""The answers of nodeagent.telemetry.nvml_worker, parsed strictly: a child that talks nonsense is ended like one that hangs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from nodeagent.errors import TelemetryError
from nodeagent.wire.report import GpuProcess, GpuReading, MigReading

_MAX_INT = 2**63 - 1
T = TypeVar("T")


def parse_answer(line: bytes) -> Mapping[str, Any]:
    """One line of the child. Raises TelemetryError."""
    if not line:
        raise TelemetryError("it ended")
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise TelemetryError(f"not JSON: {line[:80]!r}") from error
    if not isinstance(answer, dict):
        raise TelemetryError(f"not an object: {line[:80]!r}")
    return answer


def parse_gpus(answer: Mapping[str, Any]) -> tuple[GpuReading, ...]:
    """The rows of a reading. Raises TelemetryError."""
    rows = answer.get("gpus")
    if not isinstance(rows, list):
        raise TelemetryError("no list of GPUs")
    return tuple(_gpu(_Row(row)) for row in rows)


class _Row:
    """An object whose values are checked as they are taken; null and missing are None."""

    def __init__(self, values: object) -> None:
        if not isinstance(values, dict):
            raise TelemetryError("a GPU's row is not an object")
        self._values = values

    def whole(self, key: str) -> int | None:
        value = self._values.get(key)
        if value is None:
            return None
        if type(value) is not int or not 0 <= value <= _MAX_INT:
            raise TelemetryError(f"{key}: {value!r} is not a whole number")
        return value

    def required(self, key: str) -> int:
        value = self.whole(key)
        if value is None:
            raise TelemetryError(f"{key}: missing")
        return value

    def amount(self, key: str, most: float = 1e15) -> float | None:
        value = self._values.get(key)
        if value is None:
            return None
        if type(value) not in (int, float) or not 0 <= value <= most:
            raise TelemetryError(f"{key}: {value!r} is not a number from 0 to {most:g}")
        return float(value)

    def text(self, key: str) -> str | None:
        value = self._values.get(key)
        if value is not None and not isinstance(value, str):
            raise TelemetryError(f"{key}: {value!r} is not a text")
        return value

    def rows(self, key: str, read: Callable[[_Row], T]) -> tuple[T, ...] | None:
        value = self._values.get(key)
        if value is None:
            return None
        if not isinstance(value, list):
            raise TelemetryError(f"{key}: {value!r} is not a list")
        return tuple(read(_Row(item)) for item in value)


def _gpu(row: _Row) -> GpuReading:
    return GpuReading(
        index=row.required("index"),
        uuid=row.text("uuid"),
        name=row.text("name"),
        pci_address=row.text("pci_address"),
        busy_percent=row.amount("busy_percent", 100),
        sm_percent=row.amount("sm_percent", 100),
        sm_clock_mhz=row.whole("sm_clock_mhz"),
        memory_busy_percent=row.amount("memory_busy_percent", 100),
        memory_used_bytes=row.whole("memory_used_bytes"),
        memory_total_bytes=row.whole("memory_total_bytes"),
        power_w=row.amount("power_w"),
        pcie_tx_bytes_per_s=row.amount("pcie_tx_bytes_per_s"),
        pcie_rx_bytes_per_s=row.amount("pcie_rx_bytes_per_s"),
        nvlink_tx_bytes=row.whole("nvlink_tx_bytes"),
        nvlink_rx_bytes=row.whole("nvlink_rx_bytes"),
        processes=row.rows("processes", _process),
        mig=row.rows("mig", _mig) or (),
    )


def _mig(row: _Row) -> MigReading:
    return MigReading(
        uuid=row.text("uuid") or "",
        gpu_instance=row.whole("gpu_instance"),
        compute_instance=row.whole("compute_instance"),
        memory_used_bytes=row.whole("memory_used_bytes"),
        memory_total_bytes=row.whole("memory_total_bytes"),
        processes=row.rows("processes", _process),
    )


def _process(row: _Row) -> GpuProcess:
    return GpuProcess(pid=row.required("pid"), memory_bytes=row.whole("memory_bytes"))
