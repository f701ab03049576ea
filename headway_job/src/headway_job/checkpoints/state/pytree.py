"""State dicts as trees: lists and dicts in each other, with tensors as leaves among others."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Tuple

import torch

from ..errors import Refused
from .memory import Room

Path = Tuple[Any, ...]
"""The keys and places on the way from a tree's root."""

_TOO_SMALL = 2
"""Stands for a tensor's size where only the kinds of things in a state are tried."""


def is_a(value: Any, *names: str) -> bool:
    """Whether its class is one of torch's of these names, or derived from one. By name: nothing is imported for it."""
    return any(base.__name__ in names and base.__module__.startswith("torch.") for base in type(value).__mro__)


def is_shard(value: Any) -> bool:
    """Whether this is a tensor of which each rank has a part."""
    return isinstance(value, torch.Tensor) and is_a(value, "DTensor", "ShardedTensor")


def unwrapped(given: Any) -> Any:
    """Without what only changes how it runs: a checkpoint of DDP's or of torch.compile's loads where there is neither."""
    while True:
        if is_a(given, "DistributedDataParallel", "DataParallel"):
            given = given.module
        elif is_a(given, "OptimizedModule"):
            given = given._orig_mod
        else:
            return given


def copied(value: Any, room: Room) -> Any:
    """The same without a tensor in common; tensors on the CPU. Raises MemoryError where there is no room for them."""
    return rebuilt(value, lambda _, leaf: copied_leaf(leaf, room))


def copied_leaf(value: Any, room: Room) -> Any:
    """Copy a leaf. Raises MemoryError.

    From a GPU by way of the driver's own small buffers: memory that is pinned for it would be as large as the state, rounded up,
    and stay with the process.
    """
    if not isinstance(value, torch.Tensor):
        return value
    if is_shard(value):
        raise Refused("A tensor is sharded over ranks, outside of a model and its optimizer.")
    room.take(sum(part.numel() * part.element_size() for part in _parts(value.detach())))
    return value.detach().to("cpu", copy=True)


def _parts(tensor: Any) -> Tuple[Any, ...]:
    """The dense tensors that it consists of: of a sparse one the places and the values that it has."""
    layout = str(tensor.layout)
    if layout == "torch.sparse_coo":
        return tensor._indices(), tensor._values()  # also where some places are there twice
    if layout in ("torch.sparse_csr", "torch.sparse_bsr"):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if layout in ("torch.sparse_csc", "torch.sparse_bsc"):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return (tensor,)


def hollow(value: Any) -> Any:
    """The same with next to nothing in place of its tensors."""

    def emptied(_: Path, leaf: Any) -> Any:
        return torch.zeros(_TOO_SMALL, dtype=leaf.dtype, device="cpu") if isinstance(leaf, torch.Tensor) else leaf

    return rebuilt(value, emptied)


def rebuilt(
    value: Any, each: Callable[[Path, Any], Any], path: Path = (), stop: Optional[Callable[[Any], bool]] = None
) -> Any:
    """The same tree of what `each` makes of its leaves. What `stop` says yes to is a leaf, whatever it is."""
    kind = type(value)
    if isinstance(value, torch.Tensor) or (stop is not None and stop(value)):
        return each(path, value)
    if isinstance(value, dict):
        pairs: List[Tuple[Any, Any]] = [(key, rebuilt(of, each, (*path, key), stop)) for key, of in value.items()]
        return dict(pairs) if kind.__name__ in ("dict", "OrderedDict") else _like(value, pairs)
    if kind in (list, tuple):
        return kind(rebuilt(one, each, (*path, place), stop) for place, one in enumerate(value))
    return set(value) if kind is set else each(path, value)


def has_shard(value: Any) -> bool:
    """Whether there is one among its leaves."""
    leaves: List[Any] = []
    rebuilt(value, lambda _, leaf: leaves.append(leaf))
    return any(is_shard(leaf) for leaf in leaves)


def at(tree: Any, path: Path) -> Any:
    """What is there; None where nothing is."""
    for step in path:
        try:
            tree = tree[step]
        except (KeyError, IndexError, TypeError):
            return None
    return tree


def _like(value: Any, pairs: List[Tuple[Any, Any]]) -> Any:
    copy = value.copy()
    copy.update(pairs)
    return copy
