"""All measurements as rows, for the fits of the simulator's slowdown models."""

from __future__ import annotations

from dataclasses import dataclass

from headway_client.answers.fields import many, real, text, u32
from headway_client.answers.message import Message


@dataclass(frozen=True)
class PairRow(Message):
    """Slowdown of one model beside another."""

    target: str = text(1)
    other: str = text(2)
    ratio: float = real(3)


@dataclass(frozen=True)
class LocalityRow(Message):
    """Throughput of a model at one locality."""

    model: str = text(1)
    setting: str = text(2)
    tier: int = u32(3)
    throughput: float = real(4)


@dataclass(frozen=True)
class StepRow(Message):
    """Time of a model's step over links of one bandwidth."""

    model: str = text(1)
    nodes: int = u32(2)
    gbs: float = real(3)
    """Bandwidth, gigabytes per second."""
    step_s: float = real(4)


@dataclass(frozen=True)
class ScalingRow(Message):
    """Throughput of a model with a number of GPUs."""

    model: str = text(1)
    setting: str = text(2)
    gpus: int = u32(3)
    throughput: float = real(4)


@dataclass(frozen=True)
class ModelRow(Message):
    """Medians over a model's profiles."""

    model: str = text(1)
    compute_s: float = real(2)
    """Seconds of a step, except waiting for communication."""
    bytes: float = real(3)
    """Bytes that are reduced in a step; NaN where no profile shows communication."""
    overlap: float = real(4)
    """Overlap of computation and communication, as a share of the shorter of both; NaN as for `bytes`."""


@dataclass(frozen=True)
class SlowdownRows(Message):
    """Rows of each fit."""

    pairs: tuple[PairRow, ...] = many(1, PairRow)
    locality: tuple[LocalityRow, ...] = many(2, LocalityRow)
    steps: tuple[StepRow, ...] = many(3, StepRow)
    scaling: tuple[ScalingRow, ...] = many(4, ScalingRow)
    models: tuple[ModelRow, ...] = many(5, ModelRow)
