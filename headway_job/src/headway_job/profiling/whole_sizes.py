"""Sizes of whole tensors where torch's profiler records only one rank's part, such as the input of an all-gather.

A recording has the inputs of each collective that the backend hands to the profiler. By torch's sources (ProcessGroupGloo.cpp,
ProcessGroupNCCL.cpp) and by trials with gloo in torch 2.13 these are:

- all-gather in all its variants, and gather: this rank's part of the result; a whole has as many parts as the group has ranks;
- scatter: with NCCL the part that this rank receives; with gloo the whole on the root, and nothing elsewhere;
- all-to-all of lists: the whole list, but in some versions of NCCL's backend only its first tensor;
- all-reduce, reduce-scatter (also of lists), broadcast, reduce, send and receive: the whole.

gloo carries reduce-scatter out as an all-reduce, under that name and with the whole as its input.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Callable, Dict, Iterator, Mapping, Sequence, Tuple

GATHER, SCATTER, ALL_TO_ALL = "gather", "scatter", "all_to_all"

METHODS: Mapping[str, str] = {
    "allgather": GATHER, "allgather_coalesced": GATHER,
    "_allgather_base": GATHER, "allgather_into_tensor_coalesced": GATHER,
    "all_gather_single": GATHER, "all_gather_single_coalesced": GATHER,  # names of the two before in newer versions
    "gather": GATHER, "scatter": SCATTER, "alltoall": ALL_TO_ALL,
}  # fmt: skip
"""Kinds of the methods of torch's process groups that are watched: their first arguments are outputs and inputs. Versions of torch
lack some of them."""
_MAX_NOTES = 1_000
"""Different calls that are remembered: a model has one for each of its layers."""

Shapes = Tuple[Tuple[int, ...], ...]


class WholeSizes:
    """Notes, for the calls of a recording, how many times larger than its recorded inputs a whole tensor is.

    Calls that C++ makes, such as those of functional collectives, pass no method of Python: for them the caller names the size of
    a group.
    """

    def __init__(self) -> None:
        self._factors: Dict[Tuple[str, Shapes], float] = {}
        """By kind and recorded shapes. Bound: `_MAX_NOTES`."""

    def watch(self, method: str) -> Callable[..., bool]:
        """Return a function that takes the arguments of that method at each call. It raises nothing, and returns False."""
        kind = METHODS[method]

        def note(group: Any, *args: Any, **_kwargs: Any) -> bool:
            try:
                self._note(kind, group, args)
            except Exception:
                pass  # the arguments of another version: the caller's size of a group counts
            return False

        return note

    def factor(self, name: str, shapes: Sequence[Any], group_size: int, known_size: int = 0) -> float:
        """Return the factor for an event; `group_size`: number of ranks of a group that was not noted.

        `known_size`: number of ranks of its group, where that is known from elsewhere.
        """
        kind = _kind(name)
        if not kind:
            return 1.0
        if known_size and kind != ALL_TO_ALL:
            return float(known_size)
        unknown = 1.0 if kind == ALL_TO_ALL else float(max(group_size, 1))
        return self._factors.get((kind, _shapes(shapes)), unknown)

    def _note(self, kind: str, group: Any, args: Tuple[Any, ...]) -> None:
        if len(self._factors) >= _MAX_NOTES:
            return
        outputs, inputs = args[:2]
        if kind == ALL_TO_ALL:  # its factor is 1 where all inputs are recorded
            sizes = [int(each.numel()) for each in inputs]
            if len(sizes) > 1 and sizes[0]:
                self._factors[kind, _shapes([inputs[0].shape])] = sum(sizes) / sizes[0]
            return
        parts = _shapes(each.shape for each in _tensors(outputs if kind == SCATTER else inputs))
        self._factors[kind, parts] = float(group.size())


def _tensors(value: Any) -> Iterator[Any]:
    """Yield a tensor, or those of a list."""
    if isinstance(value, (list, tuple)):
        yield from value
    else:
        yield value


def _shapes(shapes: Any) -> Shapes:
    return tuple(tuple(int(size) for size in shape) for shape in shapes)


@lru_cache(maxsize=256)
def _kind(name: str) -> str:
    """Return the kind of an event of which a part may be recorded; empty: the whole is."""
    backend, _, operation = name.partition(":")
    flat = re.sub(r"\W.*", "", operation.lower()).replace("_", "")
    if "allgather" in flat or flat == "gather":
        return GATHER
    if flat == "scatter" and backend != "gloo":
        return SCATTER
    return ALL_TO_ALL if flat == "alltoall" and backend != "gloo" else ""
