"""Names of the process groups of a recording's collectives. A recording itself does not have them.

There are two sources. torch's flight recorder lists the newest collectives of gloo with their groups (see gloo_trace), also those
that C++ calls, such as DistributedDataParallel and functional collectives. Methods of process groups that Python calls are noted on
their way, with any backend. NCCL's list is not read: to write it, torch asks CUDA about each collective in progress.
"""

from __future__ import annotations

import sys
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from . import gloo_trace
from .comm_overlap import kind_of, kind_on_cpu

_FIRST, _SECOND = 0, 1
METHODS: Mapping[str, int] = {
    "allreduce": _FIRST, "allreduce_coalesced": _FIRST, "broadcast": _FIRST, "reduce": _FIRST,
    "allgather": _SECOND, "allgather_coalesced": _SECOND, "_allgather_base": _SECOND,
    "allgather_into_tensor_coalesced": _SECOND, "all_gather_single": _SECOND, "all_gather_single_coalesced": _SECOND,
    "reduce_scatter": _SECOND, "_reduce_scatter_base": _SECOND, "reduce_scatter_tensor_coalesced": _SECOND,
    "reduce_scatter_single": _SECOND, "reduce_scatter_single_coalesced": _SECOND,
    "alltoall": _SECOND, "alltoall_base": _SECOND, "all_to_all_single": _SECOND, "gather": _SECOND,
}  # fmt: skip
"""Methods of torch's process groups, and which of their arguments is recorded. Versions of torch lack some of them."""
_MAX_NOTES = 100_000
"""Calls that are noted in one recording."""

Shapes = Tuple[Tuple[int, ...], ...]
Key = Tuple[str, str, Shapes]
"""Backend, kind of communication, and shapes of the input."""


class GroupNotes:
    """Notes the groups of calls during a recording. Invariant: a group that is not certain has no name."""

    def __init__(self) -> None:
        self._noted: Dict[Tuple[str, Shapes], List[str]] = {}
        """Groups of the calls from Python, in their order, by kind and shapes. Bound: `_MAX_NOTES`."""
        self._count = 0
        self._dumped: Optional[bytes] = None
        self._times = (0, 0)

    def watch(self, method: str) -> Callable[..., bool]:
        """Return a function that takes the arguments of that method at each call. It raises nothing, and returns False."""
        kind, place = kind_of(method), METHODS[method]

        def note(group: Any, *args: Any, **_kwargs: Any) -> bool:
            try:
                if self._count < _MAX_NOTES:
                    key = kind, as_shapes(tensor.shape for tensor in _tensors(args[place]))
                    self._noted.setdefault(key, []).append(_name(group))
                    self._count += 1
            except Exception:
                pass  # the arguments of another version: the group of this call is not known
            return False

        return note

    def take_list(self, begin_ns: int, end_ns: int) -> None:
        """Keep torch's list of collectives, of which those called within these times (Unix time) count.

        It is read later, in our own thread. With one group there is nothing to find out, and no list is made.
        """
        if _num_groups() > 1:
            self._dumped, self._times = gloo_trace.dump(), (begin_ns, end_ns)

    def names(self, counts: Mapping[Key, int]) -> Dict[Key, List[str]]:
        """Return the group of each recorded call; empty: not known. `counts`: number of recorded calls, in their order.

        torch lists a limited number of collectives, so the first ones of a recording may be missing. Training repeats itself: the
        last calls with the same shapes tell their groups.
        """
        listed: Dict[Key, List[str]] = {}
        for name, shapes, group in gloo_trace.called(self._dumped, *self._times):
            listed.setdefault(key_of(name, shapes), []).append(group)
        return {
            key: _repeated(listed[key], count) if key in listed else _in_order(self._noted.get(key[1:], []), count)
            for key, count in counts.items()
        }


def key_of(name: str, shapes: Any) -> Key:
    """Return the key of an event on the CPU; its kind is empty if it is no collective."""
    return name.partition(":")[0], kind_on_cpu(name), as_shapes(shapes)


def as_shapes(shapes: Any) -> Shapes:
    """Return shapes of tensors as a key."""
    return tuple(tuple(int(size) for size in shape) for shape in shapes)


def _repeated(groups: Sequence[str], count: int) -> List[str]:
    """Return the groups of so many calls, of which `groups` are the last ones."""
    return [groups[-1 - number % len(groups)] for number in range(count)][::-1]


def _in_order(noted: Sequence[str], count: int) -> List[str]:
    """Return the groups of so many calls, of which Python has made some: the others are not known.

    With more notes than calls, it is not certain which of them were recorded.
    """
    if len(noted) > count and len(set(noted)) > 1:
        return [""] * count
    return [*noted[:count], *[""] * (count - len(noted))]


def _tensors(value: Any) -> Iterator[Any]:
    """Yield a tensor, or those of a list or of a list of lists."""
    if isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each)
    else:
        yield value


def _name(group: Any) -> str:
    core: Any = sys.modules["torch.distributed.distributed_c10d"]
    world: Any = getattr(core, "_world", None)  # torch >= 2.0; older versions have a name of the module
    return str((world.pg_names if world is not None else core._pg_names).get(group, ""))


def _num_groups() -> int:
    core: Any = sys.modules.get("torch.distributed.distributed_c10d")
    return len(getattr(getattr(core, "_world", None), "pg_map", ()))
