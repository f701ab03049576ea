"""Frames between a job and the agent: one msgpack map per packet, checked strictly and turned into frozen rows.

Whatever a job sends, `parse` returns a frame or raises FrameError. Each row states the limits of its fields beside them.
Keys in `_ns` are CLOCK_MONOTONIC nanoseconds of the node, in `_s` seconds, in `_bytes` bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any

import msgpack
import msgspec
from msgspec import Meta

from nodeagent.errors import FrameError
from nodeagent.wire.bounds import (
    MAX_BATCH,
    MAX_GROUPS,
    MAX_NUMBER,
    MAX_RANKS,
    MAX_RESTART,
    MAX_SECONDS,
    MAX_SIZE,
    MAX_STEPS,
    MAX_TEXT,
    MIN_STEP_S,
)
from nodeagent.wire.strict_msgpack import unpack_map

VERSION = 1
MAX_FRAME_BYTES = 65_536
MAX_WHY = 200
"""Longest reason of a save that is passed on to the job, in characters."""
MAX_LINE = 400
"""Longest line of a report that is passed on to the job, in characters."""
MAX_LINES = 8
"""Most lines of a report that are passed on to the job."""
KINDS = frozenset(
    {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_recv", "other"},
)
"""Kinds of collective communication."""

_Text = Annotated[str, Meta(max_length=MAX_TEXT)]
_Number = Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
_Size = Annotated[int, Meta(ge=0, le=MAX_SIZE)]
_Steps = Annotated[int, Meta(ge=0, le=MAX_STEPS)]
_SomeSteps = Annotated[int, Meta(ge=1, le=MAX_STEPS)]
_StepsOrNone = Annotated[int, Meta(ge=-1, le=MAX_STEPS)]
_Rank = Annotated[int, Meta(ge=-1, le=MAX_RANKS - 1)]
_Seconds = Annotated[float, Meta(ge=0, le=MAX_SECONDS)]


@dataclass(frozen=True, slots=True)
class Hello:
    """A process introduces itself. The agent believes none of it where the kernel knows better."""

    seq: _Number
    pid: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    """In the process's own pid namespace."""
    rank: _Rank
    """-1 = not known, as for the next two."""
    world_size: Annotated[int, Meta(ge=-1, le=MAX_RANKS)]
    local_rank: _Rank
    torch: _Text
    device: Annotated[str, Meta(pattern=r"\A(cpu|cuda)\Z")]
    """A pattern, not a Literal: that would repeat the job's text in its error."""
    script: _Text
    restart: Annotated[int, Meta(ge=0, le=MAX_RESTART)]
    job_id: _Text
    """The id in the job's environment; only a cross-check."""
    hook_version: _Text
    """Version of the hook inside the job, which stays that of the program's start; see older_hooks."""
    loaded_ns: _Number = 0
    """Time at which torch had loaded; 0 = not known."""
    report: bool = False
    """It writes a report at its end, and would like what the controller knows."""


@dataclass(frozen=True, slots=True)
class Group:
    """A process group of torch.distributed."""

    name: _Text
    size: Annotated[int, Meta(ge=0, le=MAX_RANKS)]
    backend: _Text


@dataclass(frozen=True, slots=True)
class Model:
    """The model that a process trains."""

    seq: _Number
    param_bytes: _Size
    num_tensors: _Size
    num_params: _Size
    optimizers: _Size
    groups: Annotated[tuple[Group, ...], Meta(max_length=MAX_GROUPS)]
    signature: Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    """Hex SHA-256 over shapes and types of all parameters: the same model gives the same text."""
    batch_size: Annotated[int, Meta(ge=-1, le=MAX_BATCH)]
    """-1 = not known."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Progress: the optimizer steps of a process so far."""

    seq: _Number
    steps: _SomeSteps
    first_ns: _Number
    last_ns: _Number
    window_steps: _Steps
    window_s: _Seconds

    def __post_init__(self) -> None:
        if self.last_ns < self.first_ns:
            raise ValueError("last_ns: before first_ns")


@dataclass(frozen=True, slots=True)
class Collective:
    """Communication of one kind, per step."""

    kind: str
    count: _Seconds
    bytes: Annotated[float, Meta(ge=0, le=MAX_SIZE)]
    """Bytes of the whole tensors: for each call the larger of input and output."""
    seconds: _Seconds
    link_bytes: Annotated[float, Meta(ge=0, le=MAX_SIZE)] | None = None
    """Bytes of whole tensors that would load the links between nodes equally if all ranks of the job took part in each call; calls
    within a node add nothing. None = it is not known which calls these are, or the hook does not say."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The parts of a step's time: means over a window of steps."""

    seq: _Number
    steps: _SomeSteps
    step_s: Annotated[float, Meta(ge=MIN_STEP_S, le=MAX_SECONDS)]
    compute_s: _Seconds
    comm_exposed_s: _Seconds
    comm_hidden_s: _Seconds
    kinds: tuple[Collective, ...]
    """Sorted by name of the kind."""
    busy_s: _Seconds | None = None
    """Time in which compute kernels ran on the GPU; None = the process trains on CPUs, or its hook does not measure it."""
    local_exposed_s: _Seconds | None = None
    """Part of `comm_exposed_s` in which only collectives within the node were in progress; None = as for `link_bytes`."""
    local_hidden_s: _Seconds | None = None
    """The same part of `comm_hidden_s`."""


@dataclass(frozen=True, slots=True)
class NoProfile:
    """Why a process has dropped the request for a profile window; it still reports its steps."""

    seq: _Number
    reason: Annotated[str, Meta(pattern=r"\A(program|graph|tool|busy|torch)\Z")]
    """Its own profiler has run; a CUDA graph was captured; another tool traces it; the profiler was in use at each attempt; torch's
    profiler cannot be used as it is."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state of the checkpoints of a process that has called headway_job.checkpoint."""

    seq: _Number
    rank: _Rank
    """Rank in the run that saves, as torch.distributed counts; 0 of 1 where that is not in use."""
    world_size: Annotated[int, Meta(ge=1, le=MAX_RANKS)]
    start: _Steps
    """Steps done at the checkpoint that the process resumed from; 0 = it began anew."""
    saved: _StepsOrNone
    """Steps done at the newest checkpoint of this run that is complete on all ranks; -1 = none yet."""
    saving: bool
    """A save is being written, or the process is paused after one."""
    open: bool
    """The process can still save on request: its training has not ended."""

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world_size:
            raise ValueError("rank: not below world_size")


@dataclass(frozen=True, slots=True)
class Saved:
    """The answer to a save request."""

    seq: _Number
    id: _Text
    step: _StepsOrNone
    """-1 = there was no save."""
    complete: bool
    """The checkpoint is complete on all ranks, and this process has been paused since."""
    problem: _Text
    own: bool = False
    """This rank is the one that failed, and its problem is the cause. Older versions of headway_job do not say so."""


@dataclass(frozen=True, slots=True)
class Bye:
    """The process ends in good order."""

    seq: _Number


@dataclass(frozen=True, slots=True)
class Unknown:
    """A frame of a type that this version does not know: counted, and ignored."""

    seq: int
    type: str


Frame = Hello | Model | Steps | Profile | NoProfile | Checkpoint | Saved | Bye | Unknown

_ROWS: Mapping[str, type[Frame]] = {
    "hello": Hello,
    "model": Model,
    "steps": Steps,
    "profile": Profile,
    "no_profile": NoProfile,
    "checkpoint": Checkpoint,
    "saved": Saved,
    "bye": Bye,
}


@dataclass(frozen=True, slots=True)
class _Header:
    """The keys that every frame has."""

    v: Annotated[int, Meta(ge=VERSION, le=VERSION)]
    type: _Text
    seq: _Number


def _prepare() -> None:
    """Have msgspec read the types now: two threads that both parse the first frame of a type could crash the process (0.22)."""
    for kind in (_Header, *_ROWS.values()):
        with suppress(msgspec.ValidationError):
            msgspec.convert({}, kind)


_prepare()


def parse(packet: bytes) -> Frame:
    """Return the frame in a packet. Raises FrameError."""
    if len(packet) > MAX_FRAME_BYTES:
        raise FrameError(f"longer than {MAX_FRAME_BYTES} bytes")
    values = unpack_map(packet)
    try:
        header = msgspec.convert(values, _Header)
        row = _ROWS.get(header.type)
        if row is None:
            return Unknown(header.seq, header.type)
        if (adapt := _ADAPTERS.get(header.type)) is not None:
            adapt(values)
        return msgspec.convert(values, row)
    except msgspec.ValidationError as error:  # its text names the field, and repeats nothing that the job sent
        raise FrameError(str(error)) from None


def _adapt_hello(values: dict[str, Any]) -> None:
    """A job may send its id as a number or as text: make it text."""
    job_id = values.get("job_id")
    if type(job_id) is int and -1 <= job_id <= MAX_NUMBER:
        values["job_id"] = str(job_id)


def _adapt_profile(values: dict[str, Any]) -> None:
    """Turn the map of kinds into sorted rows, without the kinds that this version does not know. Raises FrameError."""
    kinds = values.get("kinds")
    if not isinstance(kinds, dict):
        raise FrameError("kinds: not a map")
    for name in ("busy_s", "local_exposed_s", "local_hidden_s"):
        if values.get(name, 0) is None:  # a time that was not measured is left out
            raise FrameError(f"{name}: not a number")
    known = [(kind, row) for kind, row in sorted(kinds.items()) if kind in KINDS]
    if any(isinstance(row, dict) and row.get("link_bytes", 0) is None for _, row in known):
        raise FrameError("link_bytes: not a number")
    values["kinds"] = [{**row, "kind": kind} if isinstance(row, dict) else row for kind, row in known]


_ADAPTERS: Mapping[str, Callable[[dict[str, Any]], None]] = {"hello": _adapt_hello, "profile": _adapt_profile}
"""Changes from the map on the wire to the fields of the row, for the types in which the two differ."""


def welcome(seq: int, interval_s: float, profile_steps: int) -> bytes:
    """The agent's first frame: the interval of steps frames, and the length of the first profile window."""
    return _pack(seq, "welcome", interval_s=float(interval_s), profile_steps=profile_steps)


def profile_request(seq: int, steps: int) -> bytes:
    """Request a profile window of that many steps now."""
    return _pack(seq, "profile", steps=steps)


def save_request(seq: int, save_id: str, still_s: float, why: str = "") -> bytes:
    """Request a save at the next step boundary, and a pause of at most `still_s` seconds after it. `why` is for people."""
    return _pack(seq, "save", id=save_id, still_s=float(still_s), why=why[:MAX_WHY])


def go_on_request(seq: int, save_id: str) -> bytes:
    """Request that a process which is paused for that save, or would pause for it, trains on."""
    return _pack(seq, "go_on", id=save_id)


def report_lines(seq: int, lines: Iterable[str]) -> bytes:
    """Give a process what the controller knows about its job, for people: at most `MAX_LINES` lines."""
    return _pack(seq, "report", lines=[line[:MAX_LINE] for line in islice(lines, MAX_LINES)])


def _pack(seq: int, kind: str, **values: float | str | list[str]) -> bytes:
    packed: bytes = msgpack.packb({"v": VERSION, "type": kind, "seq": seq, **values})
    return packed
