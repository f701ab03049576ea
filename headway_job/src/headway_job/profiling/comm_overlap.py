"""Splits the steps of a profile window into compute, exposed and hidden communication: pure.

Communication is hidden while the training goes on beside it, and exposed while the training waits for it.

On a GPU that is seen directly: a collective's kernel is exposed where no other kernel or copy runs beside it.

On a CPU the profiler sees when collectives were under way (each from when a worker thread of gloo takes it up until it is done),
but a thread that waits leaves no event. The kernel knows it: the wall time of a step less the thread's CPU time less the time
that it stood in the run queue is the time that it slept. It slept for communication at most as long as communication was
under way, and not while it waited for a worker of its DataLoader, which the profiler does record. So, for every step:
    exposed = least of (slept - slept for data, communication under way and no wait for data)
What it slept for other reasons beside communication (a disk, a pool of threads) is told as exposed too: an upper bound there.

Everything that is not exposed communication is compute_s, data loading and Python included: what would be left of the step
if the network were infinitely fast. Of that busy_s, where there is a GPU, is the time in which a kernel or copy ran: what the
model and its batch take, whoever else is on the host.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from .intervals import Span, clip, intersect, subtract, total, union

_NS = 1e9
_KINDS = (
    ("all_reduce", ("allreduce",)),
    ("reduce_scatter", ("reducescatter",)),
    ("all_gather", ("allgather",)),
    ("broadcast", ("broadcast",)),
    ("all_to_all", ("alltoall",)),
    ("send_recv", ("send", "recv")),
)
"""Kind -> what its names have in common, once lower-cased and without underscores; the first that fits."""
_ON_CPU = re.compile(r"^(?:gloo|nccl|rccl|mpi|ucc|xccl|hccl|cncl):(\w+)")
"""How torch.distributed names a collective: backend:operation."""
_ON_GPU = re.compile(r"^(?:nccl|rccl)\w*?kernel_(\w+)|^(?:nccl|rccl)(\w+)", re.IGNORECASE)
"""How NCCL and RCCL name their kernels: ncclKernel_AllReduce_RING_LL_Sum_float, ncclDevKernel_AllReduce_Sum_f32_RING_LL."""


class StepMark(NamedTuple):
    """The end of a step, as the training thread sees it."""

    unix_ns: int
    """The profiler's clock."""
    cpu_ns: int
    """CPU time of the thread so far."""
    queued_ns: int
    """Time of the thread in the run queue so far."""


class Collective(NamedTuple):
    """One collective: under way from begin to end."""

    kind: str
    begin: int
    end: int
    bytes: int
    """Of this process's input; 0 where not known."""


class Recording(NamedTuple):
    """What a window recorded. Times are Unix ns."""

    marks: Sequence[StepMark]
    """The begin of the window and the end of each of its steps."""
    collectives: Sequence[Collective]
    """As torch.distributed issued them: on a GPU these are no longer than their launch."""
    on_gpu: Sequence[Collective]
    """Kernels of NCCL; they know no bytes."""
    kernels: Sequence[Span]
    """Every other kernel and copy on a GPU."""
    data_waits: Sequence[Span]
    """While the training thread waited for workers of a DataLoader."""


def kind_on_cpu(name: str) -> str:
    """The kind of collective of a profiler event on the CPU; empty for anything else."""
    found = _ON_CPU.match(name)
    return _kind(found.group(1)) if found else ""


def kind_on_gpu(name: str) -> str:
    """The kind of collective of a GPU kernel; empty for anything else."""
    found = _ON_GPU.match(name)
    return _kind(found.group(1) or found.group(2)) if found else ""


def _kind(operation: str) -> str:
    flat = operation.lower().replace("_", "")
    for kind, parts in _KINDS:
        if any(part in flat for part in parts):
            return kind
    return "other"


def split(recording: Recording) -> Dict[str, Any]:
    """The fields of a profile frame: means per step. Raises ValueError where the recording is of no use."""
    marks = recording.marks
    steps = len(marks) - 1
    if steps < 1 or any(later.unix_ns <= earlier.unix_ns for earlier, later in zip(marks, marks[1:])):
        raise ValueError("no steps, or the clock was set back")
    begin, end = marks[0].unix_ns, marks[-1].unix_ns
    exposed_ns, under_way_ns = _on_gpu(recording, begin, end) if recording.on_gpu else _on_cpu(recording)
    step_s = (end - begin) / steps / _NS
    exposed_s = exposed_ns / steps / _NS
    busy = {"busy_s": total(clip(union(recording.kernels), begin, end)) / steps / _NS} if recording.kernels else {}
    return {
        **busy,
        "steps": steps,
        "step_s": step_s,
        "compute_s": max(step_s - exposed_s, 0.0),
        "comm_exposed_s": exposed_s,
        "comm_hidden_s": max(under_way_ns - exposed_ns, 0) / steps / _NS,
        "kinds": _kinds(recording, begin, end, steps),
    }


def _on_gpu(recording: Recording, begin: int, end: int) -> Tuple[int, int]:
    under_way = clip(union((one.begin, one.end) for one in recording.on_gpu), begin, end)
    exposed = subtract(under_way, union(recording.kernels))
    return total(exposed), total(under_way)


def _on_cpu(recording: Recording) -> Tuple[int, int]:
    under_way = union((one.begin, one.end) for one in recording.collectives)
    waits = union(recording.data_waits)
    exposed_ns = all_ns = 0
    for earlier, later in zip(recording.marks, recording.marks[1:]):
        here = clip(under_way, earlier.unix_ns, later.unix_ns)
        for_data = clip(waits, earlier.unix_ns, later.unix_ns)
        wall_ns = later.unix_ns - earlier.unix_ns
        slept_ns = wall_ns - (later.cpu_ns - earlier.cpu_ns) - (later.queued_ns - earlier.queued_ns)
        may_ns = total(subtract(here, for_data))
        exposed_ns += min(may_ns, max(slept_ns - total(for_data), 0))
        all_ns += total(here)
    return exposed_ns, all_ns


def _kinds(recording: Recording, begin: int, end: int, steps: int) -> Dict[str, Dict[str, float]]:
    """Count and bytes as issued on the CPU; seconds where the communication ran. A kind's overlapping calls count once."""
    ran = recording.on_gpu or recording.collectives
    kinds: Dict[str, Dict[str, float]] = {}
    for name in sorted({one.kind for one in ran} | {one.kind for one in recording.collectives}):
        issued = _within([one for one in recording.collectives if one.kind == name], begin, end)
        kernels = _within([one for one in recording.on_gpu if one.kind == name], begin, end)
        if not issued and not kernels:
            continue
        spans = union((one.begin, one.end) for one in ran if one.kind == name)
        kinds[name] = {
            "count": len(issued or kernels) / steps,
            "bytes": sum(one.bytes for one in issued) / steps,
            "seconds": total(intersect(spans, [(begin, end)])) / steps / _NS,
        }
    return kinds


def _within(collectives: List[Collective], begin: int, end: int) -> List[Collective]:
    """Those that began in the window: each collective of a long run belongs to one window."""
    return [one for one in collectives if begin <= one.begin < end]
