"""Strict parser of the lines of nodeagent.telemetry.nvml_worker; a worker that writes others is ended, like one that hangs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import msgspec

from nodeagent.errors import TelemetryError
from nodeagent.wire.report import GpuReading

_MAX_QUOTED = 80
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class _Greeting:
    absent: str | None = None


@dataclass(frozen=True, slots=True)
class _Reading:
    gpus: tuple[GpuReading, ...]


_greeting = msgspec.json.Decoder(_Greeting)
_reading = msgspec.json.Decoder(_Reading)


def parse_greeting(line: bytes) -> str | None:
    """Return why the worker finds no GPUs, or None when it is ready. Raises TelemetryError."""
    return _parse(line, _greeting).absent


def parse_gpus(line: bytes) -> tuple[GpuReading, ...]:
    """Return a row for each GPU. Raises TelemetryError."""
    return _parse(line, _reading).gpus


def _parse(line: bytes, decoder: msgspec.json.Decoder[_Answer]) -> _Answer:
    if not line:
        raise TelemetryError("it ended")
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise TelemetryError(f"{error}: {line[:_MAX_QUOTED]!r}") from error
