"""Frames between a job and the agent: one msgpack map in one packet, parsed strictly into frozen rows.

Whatever a job sends, `parse` returns a frame or raises FrameError, and does no more work than the packet is long.
Keys in `_ns` are CLOCK_MONOTONIC nanoseconds of the node, in `_s` seconds, in `_bytes` bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import msgpack

from nodeagent.errors import FrameError
from nodeagent.wire.bounds import (
    LEAST_STEP_S,
    MAX_BATCH,
    MAX_GROUPS,
    MAX_NUMBER,
    MAX_RANKS,
    MAX_RESTART,
    MAX_SECONDS,
    MAX_SIZE,
    MAX_STEPS,
    MAX_TEXT,
)

VERSION = 1
MAX_FRAME_BYTES = 65_536
KINDS = frozenset(
    {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_recv", "other"},
)
"""Kinds of collective communication."""

_SIGNATURE_LENGTH = 64
_MAX_ENTRIES = 1024
"""Maps and their entries in one packet, added up: four times what a frame with MAX_GROUPS groups has."""


@dataclass(frozen=True, slots=True)
class Hello:
    """A process says who it is. Nothing of it is believed where the kernel knows better."""

    seq: int
    pid: int
    """In its own pid namespace."""
    rank: int
    world_size: int
    local_rank: int
    torch: str
    device: Literal["cpu", "cuda"]
    script: str
    restart: int
    job_id: str
    """What it says; only a cross-check."""
    hook_version: str
    loaded_ns: int = 0
    """When torch had loaded; 0 = not known."""


@dataclass(frozen=True, slots=True)
class Group:
    """A process group of torch.distributed."""

    name: str
    size: int
    backend: str


@dataclass(frozen=True, slots=True)
class Model:
    """What a process trains."""

    seq: int
    param_bytes: int
    num_tensors: int
    num_params: int
    optimizers: int
    groups: tuple[Group, ...]
    signature: str
    """Hex SHA-256 over shapes and types of all parameters: the same model gives the same text."""
    batch_size: int
    """-1 = not known."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Progress: the optimizer steps of a process so far."""

    seq: int
    steps: int
    first_ns: int
    last_ns: int
    window_steps: int
    window_s: float


@dataclass(frozen=True, slots=True)
class Collective:
    """Communication of one kind, per step."""

    kind: str
    count: float
    bytes: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Profile:
    """Where a step's time goes: means over a window of steps."""

    seq: int
    steps: int
    step_s: float
    compute_s: float
    comm_exposed_s: float
    comm_hidden_s: float
    kinds: tuple[Collective, ...]
    """By name of the kind."""
    busy_s: float | None = None
    """In which kernels that compute ran on the GPU; None: it trains on CPUs, or the hook is one that does not tell."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How a process can come back: it has called headway_job.checkpoint."""

    seq: int
    rank: int
    """Of the run that saves, as torch.distributed counts; 0 of 1 where it is not in use."""
    world_size: int
    start: int
    """Steps done at the checkpoint that it began with; 0 = it began anew."""
    saved: int
    """Steps done at the newest checkpoint of this run that is complete on all ranks; -1 = none yet."""
    saving: bool
    """A save is being written, or the process stands still after one."""
    open: bool
    """It saves when it is asked: its training has not ended."""


@dataclass(frozen=True, slots=True)
class Saved:
    """The answer to a save request."""

    seq: int
    id: str
    step: int
    """-1 = there was no save."""
    complete: bool
    """The checkpoint is complete on all ranks, and this process stands still since."""
    problem: str


@dataclass(frozen=True, slots=True)
class Bye:
    """The process ends in good order."""

    seq: int


@dataclass(frozen=True, slots=True)
class Unknown:
    """A frame of a type that this version does not know: counted, and ignored."""

    seq: int
    type: str


Frame = Hello | Model | Steps | Profile | Checkpoint | Saved | Bye | Unknown


def parse(packet: bytes) -> Frame:
    """The frame in a packet. Raises FrameError."""
    if len(packet) > MAX_FRAME_BYTES:
        raise FrameError(f"longer than {MAX_FRAME_BYTES} bytes")
    fields = _Fields(_unpack(packet))
    if fields.whole("v", 0) != VERSION:
        raise FrameError(f"v: this is version {VERSION}")
    kind = fields.text("type")
    reader = _READERS.get(kind)
    seq = fields.whole("seq", 0)
    return Unknown(seq, kind) if reader is None else reader(seq, fields)


def welcome(seq: int, interval_s: float, profile_steps: int) -> bytes:
    """The agent's first frame: how often steps are wanted, and how long the first profile window is."""
    return _pack(seq, "welcome", interval_s=float(interval_s), profile_steps=profile_steps)


def profile_request(seq: int, steps: int) -> bytes:
    """Asks for a profile window of so many steps now."""
    return _pack(seq, "profile", steps=steps)


def save_request(seq: int, save_id: str, still_s: float) -> bytes:
    """Asks for a save at the next step boundary, and to stand still after it for so long at most."""
    return _pack(seq, "save", id=save_id, still_s=float(still_s))


def go_on_request(seq: int, save_id: str) -> bytes:
    """Whoever stands still for that save, or would, trains on."""
    return _pack(seq, "go_on", id=save_id)


def _pack(seq: int, kind: str, **values: float | str) -> bytes:
    packed: bytes = msgpack.packb({"v": VERSION, "type": kind, "seq": seq, **values})
    return packed


def _unpack(packet: bytes) -> Mapping[str, Any]:
    try:
        value = msgpack.unpackb(
            packet,
            raw=False,
            strict_map_key=True,
            object_pairs_hook=_Maps().take,
            ext_hook=_refuse_extension,
            max_map_len=_MAX_ENTRIES,
        )
    except FrameError:
        raise
    except (ValueError, TypeError, RecursionError) as error:  # msgpack's own errors are ValueErrors
        raise FrameError(f"not msgpack: {type(error).__name__}") from None
    if not isinstance(value, dict):
        raise FrameError("not a map")
    return value


class _Maps:
    """Makes the maps of one packet. A good frame has few, and they are what takes time: 50 ms for 65,000 empty ones."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries = 0

    def take(self, pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
        """Raises FrameError for a key that is no text or is there twice, and when all maps together hold too much."""
        self._entries += 1 + len(pairs)
        if self._entries > _MAX_ENTRIES:
            raise FrameError(f"maps with more than {_MAX_ENTRIES} entries")
        found: dict[str, Any] = {}
        for key, value in pairs:
            if not isinstance(key, str):
                raise FrameError("a key is not text")
            if key in found:
                raise FrameError("a key is there twice")
            found[key] = value
        return found


def _refuse_extension(_code: int, _data: bytes) -> NoReturn:
    raise FrameError("msgpack extensions are not used")


class _Fields:
    """A map whose values are checked as they are taken. Keys that nobody takes are ignored."""

    __slots__ = ("_map",)

    def __init__(self, values: object) -> None:
        if not isinstance(values, dict):
            raise FrameError("a map is missing")
        self._map = values

    def _take(self, key: str) -> object:
        try:
            return self._map[key]
        except KeyError:
            raise FrameError(f"{key}: missing") from None

    def has(self, key: str) -> bool:
        return key in self._map

    def whole(self, key: str, least: int = 0, most: int = MAX_NUMBER) -> int:
        value = self._take(key)
        if type(value) is not int or not least <= value <= most:
            raise FrameError(f"{key}: not a whole number from {least} to {most}")
        return value

    def flag(self, key: str) -> bool:
        value = self._take(key)
        if type(value) is not bool:
            raise FrameError(f"{key}: neither true nor false")
        return value

    def amount(self, key: str, least: float = 0, most: float = MAX_SECONDS) -> float:
        value = self._take(key)
        if type(value) not in (int, float) or not least <= value <= most:  # type: ignore[operator]
            raise FrameError(f"{key}: not a number from {least:g} to {most:g}")  # NaN and infinity end here too
        return float(value)  # type: ignore[arg-type]

    def text(self, key: str, most: int = MAX_TEXT) -> str:
        value = self._take(key)
        if type(value) is not str or len(value) > most:
            raise FrameError(f"{key}: not a text of at most {most} characters")
        return value if value.isprintable() else "".join(c if c.isprintable() else "?" for c in value)

    def rows(self, key: str, most: int) -> list[_Fields]:
        value = self._take(key)
        if type(value) is not list or len(value) > most:
            raise FrameError(f"{key}: not a list of at most {most}")
        return [_Fields(item) for item in value]

    def named(self, key: str) -> list[tuple[str, _Fields]]:
        value = self._take(key)
        if type(value) is not dict:
            raise FrameError(f"{key}: not a map")
        return [(name, _Fields(item)) for name, item in value.items() if name in KINDS]


def _hello(seq: int, fields: _Fields) -> Hello:
    device = fields.text("device")
    if device not in ("cpu", "cuda"):
        raise FrameError("device: neither cpu nor cuda")
    return Hello(
        seq=seq,
        pid=fields.whole("pid", 1, 2**31 - 1),
        rank=fields.whole("rank", -1, MAX_RANKS - 1),
        world_size=fields.whole("world_size", -1, MAX_RANKS),
        local_rank=fields.whole("local_rank", -1, MAX_RANKS - 1),
        torch=fields.text("torch"),
        device=device,  # type: ignore[arg-type]
        script=fields.text("script"),
        restart=fields.whole("restart", 0, MAX_RESTART),
        job_id=_job_id_text(fields),
        hook_version=fields.text("hook_version"),
        loaded_ns=fields.whole("loaded_ns") if fields.has("loaded_ns") else 0,
    )


def _job_id_text(fields: _Fields) -> str:
    """A number or a text: the id is what the job's environment said."""
    try:
        return str(fields.whole("job_id", -1))
    except FrameError:
        return fields.text("job_id")


def _model(seq: int, fields: _Fields) -> Model:
    signature = fields.text("signature")
    if len(signature) != _SIGNATURE_LENGTH or not set(signature) <= set("0123456789abcdef"):
        raise FrameError("signature: not a hex SHA-256")
    return Model(
        seq=seq,
        param_bytes=fields.whole("param_bytes", 0, MAX_SIZE),
        num_tensors=fields.whole("num_tensors", 0, MAX_SIZE),
        num_params=fields.whole("num_params", 0, MAX_SIZE),
        optimizers=fields.whole("optimizers", 0, MAX_SIZE),
        groups=tuple(
            Group(row.text("name"), row.whole("size", 0, MAX_RANKS), row.text("backend"))
            for row in fields.rows("groups", MAX_GROUPS)
        ),
        signature=signature,
        batch_size=fields.whole("batch_size", -1, MAX_BATCH),
    )


def _steps(seq: int, fields: _Fields) -> Steps:
    frame = Steps(
        seq=seq,
        steps=fields.whole("steps", 1, MAX_STEPS),
        first_ns=fields.whole("first_ns"),
        last_ns=fields.whole("last_ns"),
        window_steps=fields.whole("window_steps", 0, MAX_STEPS),
        window_s=fields.amount("window_s"),
    )
    if frame.last_ns < frame.first_ns:
        raise FrameError("last_ns: before first_ns")
    return frame


def _profile(seq: int, fields: _Fields) -> Profile:
    return Profile(
        seq=seq,
        steps=fields.whole("steps", 1, MAX_STEPS),
        step_s=fields.amount("step_s", LEAST_STEP_S),
        compute_s=fields.amount("compute_s"),
        comm_exposed_s=fields.amount("comm_exposed_s"),
        comm_hidden_s=fields.amount("comm_hidden_s"),
        kinds=tuple(
            Collective(kind, row.amount("count"), row.amount("bytes", most=MAX_SIZE), row.amount("seconds"))
            for kind, row in sorted(fields.named("kinds"), key=lambda item: item[0])
        ),
        busy_s=fields.amount("busy_s") if fields.has("busy_s") else None,
    )


def _checkpoint(seq: int, fields: _Fields) -> Checkpoint:
    world_size = fields.whole("world_size", 1, MAX_RANKS)
    return Checkpoint(
        seq=seq,
        rank=fields.whole("rank", 0, world_size - 1),
        world_size=world_size,
        start=fields.whole("start", 0, MAX_STEPS),
        saved=fields.whole("saved", -1, MAX_STEPS),
        saving=fields.flag("saving"),
        open=fields.flag("open"),
    )


def _saved(seq: int, fields: _Fields) -> Saved:
    return Saved(
        seq=seq,
        id=fields.text("id"),
        step=fields.whole("step", -1, MAX_STEPS),
        complete=fields.flag("complete"),
        problem=fields.text("problem"),
    )


def _bye(seq: int, _fields: _Fields) -> Bye:
    return Bye(seq)


_READERS: Mapping[str, Callable[[int, _Fields], Frame]] = {
    "hello": _hello,
    "model": _model,
    "steps": _steps,
    "profile": _profile,
    "checkpoint": _checkpoint,
    "saved": _saved,
    "bye": _bye,
}
