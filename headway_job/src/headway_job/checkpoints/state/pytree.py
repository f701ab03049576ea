"""State dicts as trees of lists and dicts, whose leaves are tensors and other values."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Tuple

import torch

from ..errors import Refused
from .memory import MemoryBudget
from .savable import check_tensor

Path = Tuple[Any, ...]
"""Keys and indexes on the way from the root of a tree to a leaf."""

_TEST_SIZE = 2
"""Size of the tensors in a state of which only the types are tested."""


def is_torch_type(value: Any, *names: str) -> bool:
    """Return True for instances of classes of torch with these names. Names are compared, so that nothing has to be imported."""
    return any(base.__name__ in names and base.__module__.startswith("torch.") for base in type(value).__mro__)


def is_shard(value: Any) -> bool:
    """Return True for a tensor of which each rank has a part."""
    return isinstance(value, torch.Tensor) and is_torch_type(value, "DTensor", "ShardedTensor")


def unwrap(given: Any) -> Any:
    """Return the module inside wrappers such as DDP or torch.compile, so that its checkpoint can be loaded without them."""
    while True:
        if is_torch_type(given, "DistributedDataParallel", "DataParallel"):
            given = given.module
        elif is_torch_type(given, "OptimizedModule"):
            given = given._orig_mod
        else:
            return given


def deep_copy(value: Any, budget: MemoryBudget, path: Path = ()) -> Any:
    """Return a deep copy with all tensors on the CPU. Raises as `copy_leaf`. `path`: of the value, for messages."""
    return map_leaves(value, lambda at, leaf: copy_leaf(leaf, budget, at), path)


def copy_leaf(value: Any, budget: MemoryBudget, path: Path) -> Any:
    """Return a copy of a leaf, on the CPU. Raises MemoryError if it does not fit into the budget, and UnsavableError.

    Tensors on a GPU are copied through the driver's own small buffers. Pinned memory would be as large as the state, rounded up,
    and the process would keep it.
    """
    if isinstance(value, bytearray):
        return bytearray(value)
    if not isinstance(value, torch.Tensor):
        return value
    if is_shard(value):
        raise Refused(
            "A tensor is sharded over ranks, but is not part of a model or its optimizer: it cannot be saved."
        )
    check_tensor(value, path, _parts)
    budget.take(_tensor_bytes(value))
    return value.detach().to("cpu", copy=True)


def state_bytes(value: Any) -> int:
    """Return the memory that `deep_copy` takes of its budget, for a state that it can copy."""
    found: List[int] = []
    map_leaves(value, lambda _, leaf: found.append(_tensor_bytes(leaf) if isinstance(leaf, torch.Tensor) else 0))
    return sum(found)


def _tensor_bytes(tensor: torch.Tensor) -> int:
    if is_torch_type(tensor, "UninitializedTensorMixin"):
        return 0  # of a lazy module: its shape is not known yet
    return sum(part.numel() * part.element_size() for part in _parts(tensor.detach()))


def _parts(tensor: Any) -> Tuple[Any, ...]:
    """Return the dense tensors that it consists of: for a sparse one, its indices and values."""
    layout = str(tensor.layout)
    if layout == "torch.sparse_coo":
        return tensor._indices(), tensor._values()  # works for tensors that are not coalesced, too
    if layout in ("torch.sparse_csr", "torch.sparse_bsr"):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if layout in ("torch.sparse_csc", "torch.sparse_bsc"):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return (tensor,)


def with_tiny_tensors(value: Any, path: Path = ()) -> Any:
    """Return the same tree with tiny tensors. Raises UnsavableError for tensors without memory. `path`: as in `deep_copy`."""

    def shrunk(at: Path, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if not is_shard(leaf) and not is_torch_type(leaf, "UninitializedTensorMixin"):
            check_tensor(leaf, at, _parts)  # parameters of lazy modules have memory after the first step
        return torch.zeros(_TEST_SIZE, dtype=leaf.dtype, device="cpu")

    return map_leaves(value, shrunk, path)


def map_leaves(
    value: Any, each: Callable[[Path, Any], Any], path: Path = (), stop: Optional[Callable[[Any], bool]] = None
) -> Any:
    """Return the tree with `each` applied to its leaves. A value for which `stop` returns True is a leaf, too."""
    kind = type(value)
    if isinstance(value, torch.Tensor) or (stop is not None and stop(value)):
        return each(path, value)
    if isinstance(value, dict):
        pairs: List[Tuple[Any, Any]] = [(key, map_leaves(of, each, (*path, key), stop)) for key, of in value.items()]
        return dict(pairs) if kind.__name__ in ("dict", "OrderedDict") else _like(value, pairs)
    if kind in (list, tuple):
        return kind(map_leaves(one, each, (*path, place), stop) for place, one in enumerate(value))
    return set(value) if kind is set else each(path, value)


def has_shard(value: Any) -> bool:
    """Return True if one of the leaves is a sharded tensor."""
    leaves: List[Any] = []
    map_leaves(value, lambda _, leaf: leaves.append(leaf))
    return any(is_shard(leaf) for leaf in leaves)


def value_at(tree: Any, path: Path) -> Any:
    """Return the value at a path; None = there is none."""
    for step in path:
        try:
            tree = tree[step]
        except (KeyError, IndexError, TypeError):
            return None
    return tree


def _like(value: Any, pairs: List[Tuple[Any, Any]]) -> Any:
    copy = value.copy()
    for key, of in pairs:  # not update(), which would count the pairs in a Counter
        copy[key] = of
    return copy
