"""Measurements of jobs by the agents. Times are seconds since the Unix epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headway_client.answers.fields import (
    flag,
    many,
    maybe_real,
    maybe_sub,
    maybe_u32,
    maybe_u64,
    real,
    real_table,
    text,
    texts,
    u32,
    u64,
    word,
)
from headway_client.answers.message import Message
from headway_client.words import SpeedSource


@dataclass(frozen=True)
class ContentionNow(Message):
    """The present throughput and contention of a job."""

    job_id: str = text(1)
    steps_per_s: float = real(2)
    """Training steps per second now."""
    sensitivity: float | None = maybe_real(3)
    """Throughput alone on the same nodes, divided by the present one; None = not known."""
    confidence: float | None = maybe_real(4)
    """From 0 to 1; None = not known."""
    alone_steps_per_s: float | None = maybe_real(5)
    """Training steps per second alone; None = not known."""
    source: SpeedSource = word(6, SpeedSource)
    samples: int = u32(7)
    """Number of windows, jobs or profiles on which it is based."""
    beside: tuple[str, ...] = texts(8)
    """Ids of jobs that share a link or host with it."""
    window_start_s: float = real(9)
    """Start of the window of these values, seconds since the Unix epoch."""


@dataclass(frozen=True)
class ProfileKind(Message):
    """Measurements of jobs of one kind: user, script, model and shape."""

    uid: int = u32(1)
    user: str = text(2)
    """Empty = the controller's machine does not know the user."""
    script: str = text(3)
    signature: str = text(4)
    """Hex SHA-256 over the shapes and types of the model's parameters; empty = not known."""
    gpus: int = u32(5)
    nodes: int = u32(6)
    alone_steps_per_s: float | None = maybe_real(7)
    """Median over the newest windows without neighbours, training steps per second; None = there are none."""
    windows: int = u64(8)
    windows_alone: int = u64(9)
    jobs: int = u64(10)
    last_s: float = real(11)
    """Start of the newest window, seconds since the Unix epoch."""
    running: tuple[ContentionNow, ...] = many(12, ContentionNow)
    """Running jobs of this kind."""
    gpu_model: str = text(13)
    """The driver's name of the GPU; empty = not known, or it trains on CPUs."""
    batch_size: int | None = maybe_u64(14)
    """Examples of one rank in one step; None = not known."""


@dataclass(frozen=True)
class ProfileList(Message):
    """Kinds of jobs that were measured."""

    kinds: tuple[ProfileKind, ...] = many(1, ProfileKind)
    """Newest first."""
    more: bool = flag(2)
    """True = there are more."""
    until_s: float | None = maybe_real(3)
    """Beginning of the newest window that was counted, Unix time; None = there is none, or the controller is of an earlier version,
    whose answers have no further parts."""


@dataclass(frozen=True)
class StepSplit(Message):
    """The parts of a training step's time: means over the steps of one profile, measured on one rank."""

    time_s: float = real(1)
    """Time of the profile, seconds since the Unix epoch."""
    node: str = text(2)
    num_steps: int = u64(3)
    step_s: float = real(4)
    """Seconds of one step."""
    compute_s: float = real(5)
    """Seconds of computation."""
    exposed_s: float = real(6)
    """Seconds of communication without computation."""
    hidden_s: float = real(7)
    """Seconds of communication during computation."""
    bytes: Mapping[str, float] = real_table(8)
    """Bytes of a step, by kind of communication."""
    restart: int = u32(9)
    """Restart count of the run."""
    link_bytes: Mapping[str, float] = real_table(10)
    """Bytes by kind that would load the links between nodes equally if all ranks took part in each call; calls within a node add
    nothing. Empty = it is not known which calls these are."""


@dataclass(frozen=True)
class WindowNeighbour(Message):
    """A job that shared a link or host in one window."""

    job_id: str = text(1)
    script: str = text(2)
    """Empty, with all that follows None = the job reports nothing."""
    gpus: int | None = maybe_u32(3)
    nodes: int | None = maybe_u32(4)
    steps_per_s: float | None = maybe_real(5)


@dataclass(frozen=True)
class JobWindow(Message):
    """Throughput of a job in one window, during which neither the job nor a neighbour started or ended."""

    start_s: float = real(1)
    """Start of the window, seconds since the Unix epoch."""
    restart: int = u32(2)
    """Restart count of the run."""
    gpus: int = u32(3)
    nodes: tuple[str, ...] = texts(4)
    steps: int = u64(5)
    steps_per_s: float = real(6)
    idle_gpus: int = u32(7)
    beside: tuple[WindowNeighbour, ...] = many(8, WindowNeighbour)
    """Empty = it was alone."""


@dataclass(frozen=True)
class JobMeasurements(Message):
    """Measurements of one job."""

    job_id: str = text(1)
    uid: int = u32(2)
    user: str = text(3)
    script: str = text(4)
    signature: str = text(5)
    """Hex SHA-256 over the shapes and types of the model's parameters; empty = not known."""
    param_bytes: int | None = maybe_u64(6)
    """Bytes of the model's parameters; None = not known."""
    now: ContentionNow | None = maybe_sub(7, ContentionNow)
    """None = the job does not run, or nothing is known yet."""
    steps: tuple[StepSplit, ...] = many(8, StepSplit)
    """Newest first; at most 50."""
    window_s: float = real(9)
    """Length of a window, seconds."""
    windows: tuple[JobWindow, ...] = many(10, JobWindow)
    """Newest first."""


@dataclass(frozen=True)
class RequestedProfile(Message):
    """A profile that agents have requested of a job's ranks."""

    job_id: str = text(1)
    steps: int = u32(2)
    """Optimizer steps that are profiled."""
    nodes: tuple[str, ...] = texts(3)
    """Nodes whose ranks have the request."""
    problems: tuple[str, ...] = texts(4)
    """A sentence for each other node of the job."""
    user_changes_left: int | None = maybe_u32(5)
    """Number of changes of their own jobs that the user may request now; None = no limit."""
