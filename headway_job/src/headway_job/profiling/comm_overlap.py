"""Divides the steps of a profile window into compute, exposed and hidden communication; pure functions.

Communication is hidden while the training computes at the same time, and exposed while the training waits for it.

On a GPU this is measured directly: a collective's kernel is exposed while no other kernel or copy runs.

On a CPU the profiler records when each collective was in progress (from when a worker thread of gloo takes it until it is done),
but a thread that waits leaves no event. The operating system knows it: the wall time of a step, minus the thread's CPU time,
minus its time in the run queue, is the time that it slept. It slept for communication at most as long as communication was in
progress, and not while it waited for a worker of its DataLoader, which the profiler does record. So, for every step:
    exposed = min(slept - slept for data, communication in progress without a wait for data)
If it slept for other reasons during communication (a disk, a thread pool), that counts as exposed, too: it is an upper bound.

Steps that contain an evaluation or the like are left out, with all that happened in them (see interruptions).

All time that is not exposed communication is compute_s, including data loading and Python: what would remain of the step if the
network were infinitely fast. With a GPU, busy_s is the part of it in which a kernel or copy ran: the time that the model and its
batch take, whatever else runs on the host.

Where it is known which collectives stay within the node, they are also reported apart: their bytes load no link, and the times in
which no other collective was in progress would be the same with an infinitely fast network. On a CPU, the exposed part of a step is
divided as its communication is.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from .interruptions import interrupted, own_times
from .intervals import Interval, clip, intersect, subtract, total, union

_NS = 1e9
_KINDS = (
    ("all_reduce", ("allreduce",)),
    ("reduce_scatter", ("reducescatter",)),
    ("all_gather", ("allgather",)),
    ("broadcast", ("broadcast",)),
    ("all_to_all", ("alltoall",)),
    ("send_recv", ("send", "recv")),
)
"""Kind of collective -> parts of its names, in lower case and without underscores. The first kind that matches is taken."""


class StepEnd(NamedTuple):
    """The end of a step in the training thread."""

    unix_ns: int
    """Time on the profiler's clock."""
    cpu_ns: int
    """CPU time of the thread until then."""
    queued_ns: int
    """Time of the thread in the run queue until then."""


class Collective(NamedTuple):
    """One collective, in progress from begin to end."""

    kind: str
    begin: int
    end: int
    bytes: int
    """Size of the whole tensor, the larger of input and output (see whole_sizes); 0 = not known."""
    link_share: float = 1.0
    """Factor from these bytes to those of all ranks that would load the links between nodes equally (see group_traffic)."""


class Recording(NamedTuple):
    """The events of a window. Times are Unix time in ns."""

    step_ends: Sequence[StepEnd]
    """The begin of the window and the end of each of its steps."""
    collectives: Sequence[Collective]
    """Collectives as torch.distributed issued them. With a GPU, they are as long as their launch only."""
    on_gpu: Sequence[Collective]
    """Kernels of NCCL; their size in bytes is not known."""
    kernels: Sequence[Interval]
    """Every other kernel and copy on a GPU."""
    data_waits: Sequence[Interval]
    """Times in which the training thread waited for workers of a DataLoader."""
    divides: bool = False
    """It is known which collectives stay within this node."""
    has_events: bool = True
    """False = nothing was recorded but `step_ends`."""


@lru_cache(maxsize=1)
def _cpu_pattern() -> re.Pattern[str]:
    """Return the names of collectives in torch.distributed, backend:operation. Compiled when a window is read, not in each job."""
    return re.compile(r"^(?:gloo|nccl|rccl|mpi|ucc|xccl|hccl|cncl):(\w+)")


@lru_cache(maxsize=1)
def _gpu_pattern() -> re.Pattern[str]:
    """Return the names of kernels of NCCL and RCCL, such as ncclKernel_AllReduce_RING_LL_Sum_float."""
    return re.compile(r"^(?:nccl|rccl)\w*?kernel_(\w+)|^(?:nccl|rccl)(\w+)", re.IGNORECASE)


def kind_on_cpu(name: str) -> str:
    """Return the kind of collective of a profiler event on the CPU; empty for other events."""
    found = _cpu_pattern().match(name)
    return kind_of(found.group(1)) if found else ""


def kind_on_gpu(name: str) -> str:
    """Return the kind of collective of a GPU kernel; empty for other kernels."""
    found = _gpu_pattern().match(name)
    return kind_of(found.group(1) or found.group(2)) if found else ""


def kind_of(operation: str) -> str:
    """Return the kind of collective of an operation, such as a method of torch's process groups."""
    flat = operation.lower().replace("_", "")
    for kind, parts in _KINDS:
        if any(part in flat for part in parts):
            return kind
    return "other"


def split(recording: Recording) -> Dict[str, Any]:
    """Return the fields of a profile frame, as means per step. Raises ValueError if the recording cannot be used."""
    ends = recording.step_ends
    steps = len(ends) - 1
    if steps < 1 or any(later.unix_ns <= earlier.unix_ns for earlier, later in zip(ends, ends[1:])):
        raise ValueError("no steps, or the clock was set back")
    kept = _kept(recording)
    steps = len(kept)
    spans = union(_span(step) for step in kept)
    found = _on_gpu(recording, spans) if recording.on_gpu else _on_cpu(recording, kept)
    step_s = total(spans) / steps / _NS
    exposed_s = found.exposed / steps / _NS
    busy = {"busy_s": total(intersect(union(recording.kernels), spans)) / steps / _NS} if recording.kernels else {}
    return {
        **busy,
        "steps": steps,
        "step_s": step_s,
        "compute_s": max(step_s - exposed_s, 0.0),
        "comm_exposed_s": exposed_s,
        "comm_hidden_s": max(found.in_progress - found.exposed, 0) / steps / _NS,
        **(_within_node(found, steps) if recording.divides else {}),
        "kinds": _kinds(recording, spans, steps),
    }


_Step = Tuple[StepEnd, StepEnd]
"""The ends of the step before and of the step itself."""


def _span(step: _Step) -> Interval:
    return step[0].unix_ns, step[1].unix_ns


def _kept(recording: Recording) -> List[_Step]:
    """Return the steps that count. Without events, a step that does not compute may wait for data, and counts."""
    steps = list(zip(recording.step_ends, recording.step_ends[1:]))
    spans = [_span(step) for step in steps]
    cpu: List[float] = [later.cpu_ns - earlier.cpu_ns for earlier, later in steps]
    own = own_times(spans, recording.data_waits) if recording.has_events else cpu
    left = set(interrupted([end - begin for begin, end in spans], own))
    return [step for place, step in enumerate(steps) if place not in left]


class _Times(NamedTuple):
    """Times of communication in a window, in ns."""

    exposed: float
    in_progress: float
    local_exposed: float
    """Part of `exposed` in which only collectives within the node were in progress."""
    local: float
    """The same part of `in_progress`."""


def _within_node(times: _Times, steps: int) -> Dict[str, float]:
    return {
        "local_exposed_s": times.local_exposed / steps / _NS,
        "local_hidden_s": max(times.local - times.local_exposed, 0) / steps / _NS,
    }


def _on_gpu(recording: Recording, spans: List[Interval]) -> _Times:
    shares = _shares_of_kernels(recording)
    in_progress = intersect(union((one.begin, one.end) for one in recording.on_gpu), spans)
    linked = union((one.begin, one.end) for one, share in zip(recording.on_gpu, shares) if share)
    kernels, local = union(recording.kernels), subtract(in_progress, linked)
    return _Times(
        total(subtract(in_progress, kernels)), total(in_progress), total(subtract(local, kernels)), total(local)
    )


def _shares_of_kernels(recording: Recording) -> List[float]:
    """Return the `link_share` of each collective's kernel: that of the call of the same number and kind, if there are as many.

    Otherwise all of a kind count as between nodes, unless all calls of the kind stay within the node.
    """
    calls: Dict[str, List[Collective]] = {}
    for call in sorted(recording.collectives, key=lambda one: one.begin):
        calls.setdefault(call.kind, []).append(call)
    kernels: Dict[str, List[int]] = {}
    for number, kernel in sorted(enumerate(recording.on_gpu), key=lambda row: row[1].begin):
        kernels.setdefault(kernel.kind, []).append(number)
    shares = [1.0] * len(recording.on_gpu)
    for kind, numbers in kernels.items():
        of_kind = [call.link_share for call in calls.get(kind, ())]
        if len(of_kind) != len(numbers):
            of_kind = [max(of_kind, default=1.0)] * len(numbers)
        for number, share in zip(numbers, of_kind):
            shares[number] = share
    return shares


def _on_cpu(recording: Recording, kept: List[_Step]) -> _Times:
    in_progress = union((one.begin, one.end) for one in recording.collectives)
    linked = union((one.begin, one.end) for one in recording.collectives if one.link_share)
    waits = union(recording.data_waits)
    exposed_ns = all_ns = 0
    local_exposed_ns, local_ns = 0.0, 0
    for earlier, later in kept:
        here = clip(in_progress, earlier.unix_ns, later.unix_ns)
        for_data = clip(waits, earlier.unix_ns, later.unix_ns)
        wall_ns = later.unix_ns - earlier.unix_ns
        slept_ns = wall_ns - (later.cpu_ns - earlier.cpu_ns) - (later.queued_ns - earlier.queued_ns)
        may_be = subtract(here, for_data)
        may_ns = total(may_be)
        asleep_ns = min(may_ns, max(slept_ns - total(for_data), 0))
        exposed_ns += asleep_ns
        all_ns += total(here)
        local_ns += total(subtract(here, linked))
        local_exposed_ns += asleep_ns * total(subtract(may_be, linked)) / may_ns if may_ns else 0.0
    return _Times(exposed_ns, all_ns, local_exposed_ns, local_ns)


def _kinds(recording: Recording, spans: List[Interval], steps: int) -> Dict[str, Dict[str, float]]:
    """Return count and bytes as issued on the CPU, and seconds where the communication ran. Overlapping calls count once."""
    ran = recording.on_gpu or recording.collectives
    kinds: Dict[str, Dict[str, float]] = {}
    for name in sorted({one.kind for one in ran} | {one.kind for one in recording.collectives}):
        issued = _within([one for one in recording.collectives if one.kind == name], spans)
        kernels = _within([one for one in recording.on_gpu if one.kind == name], spans)
        if not issued and not kernels:
            continue
        intervals = union((one.begin, one.end) for one in ran if one.kind == name)
        kinds[name] = {
            "count": len(issued or kernels) / steps,
            "bytes": sum(one.bytes for one in issued) / steps,
            "seconds": total(intersect(intervals, spans)) / steps / _NS,
        }
        if recording.divides:
            kinds[name]["link_bytes"] = sum(one.bytes * one.link_share for one in issued) / steps
    return kinds


def _within(collectives: List[Collective], spans: List[Interval]) -> List[Collective]:
    """Return the collectives that began in the window, so that each collective of a long run belongs to one window only."""
    return [one for one in collectives if any(begin <= one.begin < end for begin, end in spans)]
