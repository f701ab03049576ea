"""State dicts as text: JSON, in which each tensor is a number. Reading it executes nothing, and gives equal types and values.

Numbers, text, None and lists are themselves. Everything else is an object with one key, which is its kind. Types that are not known
here are refused when the state is written, so that no checkpoint contains what could not be read back.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from typing import Any, Callable, Container, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Set, Tuple

import torch

from ..errors import UnsavableError
from . import numpy_scalar
from .savable import path_text, unknown_type
from .tensor_file import TensorShape

Path = Tuple[Any, ...]
Read = Callable[[List[TensorShape], Container[int]], Mapping[int, torch.Tensor]]
_PLAIN = (type(None), bool, int, float, str)
_SEQUENCES: Dict[str, Callable[[List[Any]], Any]] = {"tuple": tuple, "set": set, "size": torch.Size}
_QUANTIZED = (torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4)
_COMPRESSED = ("sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")


def dumps(tree: Any, path: Path = (), hidden: int = 0) -> Tuple[str, List[torch.Tensor]]:
    """Return the text, and the dense tensors in it, contiguous. Raises UnsavableError for what could not be read back.

    `path`: of the tree; messages name paths without their first `hidden` steps.
    """
    tensors: List[torch.Tensor] = []
    return json.dumps(_encode(tree, tensors, path, hidden)), tensors


class Parsed(NamedTuple):
    """A text whose tensors are not read yet."""

    coded: Any
    shapes: List[TensorShape]
    """Types and shapes of all tensors."""
    wanted: Set[int]
    """Numbers of the tensors that are in the tree."""


def parse(text: str, without: Container[str] = ()) -> Parsed:
    """Parse the text. `without`: keys of the tree, a dict, whose values become None. Raises ValueError."""
    shapes: List[TensorShape] = []
    coded = json.loads(text, object_hook=lambda row: _note_tensor(row, shapes))
    if not without:
        return Parsed(coded, shapes, set(range(len(shapes))))
    try:
        keys, values = coded["dict"]
        coded = {"dict": [keys, [None if key in without else of for key, of in zip(keys, values)]]}
        return Parsed(coded, shapes, set(_numbers_in(coded)))
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise ValueError("its text does not describe the state of a run") from error


def loads(text: str, read: Read, without: Container[str] = ()) -> Any:
    """Return the tree. `read` gets type and shape of each tensor, and the numbers of those to return. `without`: as in `parse`.

    Raises ValueError, and torch's errors.
    """
    parsed = parse(text, without)
    tensors = read(parsed.shapes, parsed.wanted)
    try:
        return _decode(parsed.coded, tensors)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"its text does not describe a state ({type(error).__name__}: {error})") from error


def _numbers_in(coded: Any) -> Iterator[int]:
    if isinstance(coded, list):
        for one in coded:
            yield from _numbers_in(one)
    elif isinstance(coded, dict):
        for kind, of in coded.items():
            yield from [of[0]] if kind == "tensor" and isinstance(of, list) else _numbers_in(of)


def _encode(value: Any, tensors: List[torch.Tensor], path: Path, hidden: int) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, torch.Tensor):
        try:
            return _encode_tensor(value, tensors)
        except TypeError as error:
            raise UnsavableError(f"{path_text(path[hidden:])} cannot be saved: it is {error}.") from error

    def each(values: Iterable[Any], steps: Iterable[Any]) -> List[Any]:
        return [_encode(one, tensors, (*path, step), hidden) for one, step in zip(values, steps)]

    if kind is list:
        return each(value, range(len(value)))
    if kind in (dict, Counter):
        return {kind.__name__: [each(value, value), each(value.values(), value)]}
    for name, of in _SEQUENCES.items():
        if kind is of:
            return {name: each(value, range(len(value)))}
    found = _encode_scalar(value)
    if found is None:
        raise unknown_type(value, path[hidden:])
    return found


def _encode_scalar(value: Any) -> Any:
    """Return the object for a value that is neither a tensor nor a container; None = its type is not known."""
    kind = type(value)
    if kind in (bytes, bytearray):
        return {kind.__name__: base64.b64encode(value).decode()}
    if kind is complex:
        return {"complex": [value.real, value.imag]}
    if kind in (torch.dtype, torch.device):
        return {kind.__name__: str(value).split(".")[-1]}
    return numpy_scalar.encoded(value)


def _encode_tensor(tensor: torch.Tensor, tensors: List[torch.Tensor]) -> Any:
    layout = str(tensor.layout).split(".")[-1]
    if layout == "strided":
        # Parameters in another memory format, such as channels_last, keep it: kernels may compute sums in another order.
        order = _order(tensor)
        tensors.append(tensor.permute(order).contiguous().resolve_conj().resolve_neg())
        return _tensor_row(tensors, order)
    parts: Tuple[torch.Tensor, ...]
    if layout == "sparse_coo":
        parts = tensor._indices(), tensor._values()
    elif layout in _COMPRESSED:
        by_rows = layout in ("sparse_csr", "sparse_bsr")
        starts = tensor.crow_indices() if by_rows else tensor.ccol_indices()
        parts = starts, tensor.col_indices() if by_rows else tensor.row_indices(), tensor.values()
    else:
        raise TypeError(f"a tensor with the layout {layout}")
    coalesced = layout == "sparse_coo" and bool(tensor.is_coalesced())
    coded = [_encode_tensor(part.contiguous(), tensors) for part in parts]
    return {"sparse": [layout, list(tensor.shape), coalesced, *coded]}


def _tensor_row(tensors: List[torch.Tensor], order: List[int]) -> Dict[str, Any]:
    tensor = tensors[-1]
    if tensor.is_quantized:
        raise TypeError("a quantized tensor")
    row = [len(tensors) - 1, str(tensor.dtype).split(".")[-1], list(tensor.shape)]
    return {"tensor": row if order == sorted(order) else [*row, order]}


def _order(tensor: torch.Tensor) -> List[int]:
    """Return its dimensions from the largest stride to the smallest, if it is dense in that order; else as they are."""
    plain = list(range(tensor.dim()))
    if tensor.is_contiguous():
        return plain
    order = sorted(plain, key=lambda place: (-tensor.stride()[place], place))
    return order if tensor.permute(order).is_contiguous() else plain


def _note_tensor(row: Dict[str, Any], shapes: List[TensorShape]) -> Dict[str, Any]:
    """Note type and shape of a tensor. Rows are parsed in the order of their numbers, which is checked."""
    if set(row) != {"tensor"} or not isinstance(row["tensor"], list):
        return row
    number, name, shape = row["tensor"][:3]
    dtype = getattr(torch, name, None) if isinstance(name, str) else None
    if number != len(shapes) or not isinstance(dtype, torch.dtype) or dtype in _QUANTIZED:
        raise ValueError(f"tensor {number} has the unknown type {name!r}, or is not the next one")
    if not isinstance(shape, list) or any(type(size) is not int or size < 0 for size in shape):
        raise ValueError(f"tensor {number} has an impossible shape")
    shapes.append(TensorShape(dtype, tuple(shape)))
    return row


def _decode(coded: Any, tensors: Mapping[int, torch.Tensor]) -> Any:
    if isinstance(coded, list):
        return [_decode(one, tensors) for one in coded]
    if not isinstance(coded, dict):
        return coded
    ((kind, of),) = coded.items()
    if kind == "tensor":
        return tensors[of[0]] if len(of) == 3 else tensors[of[0]].permute(_inverse(of[3]))
    if kind == "sparse":
        return _decode_sparse(of, tensors)
    if kind in _FROM_TREES:
        return _FROM_TREES[kind](_decode(of, tensors))
    if kind in _FROM_TEXT:
        return _FROM_TEXT[kind](of)
    raise ValueError(f"its text has the unknown kind {kind!r}")


def _decode_sparse(of: List[Any], tensors: Mapping[int, torch.Tensor]) -> torch.Tensor:
    """Return a sparse tensor. torch checks that its indices are inside of its shape, as other indices would reach other memory."""
    layout, shape, coalesced, *coded = of
    parts = [_decode(part, tensors) for part in coded]
    if layout == "sparse_coo":
        indices, values = parts
        found = torch.sparse_coo_tensor(indices, values, shape, check_invariants=True)
        return found._coalesced_(coalesced)
    if layout not in _COMPRESSED:
        raise ValueError(f"a tensor has the unknown layout {layout!r}")
    starts, indices, values = parts
    kind = getattr(torch, layout)
    return torch.sparse_compressed_tensor(starts, indices, values, shape, layout=kind, check_invariants=True)


def _dtype(name: str) -> torch.dtype:
    found = getattr(torch, name)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"its text has the unknown type {name!r}")  # noqa: TRY004 - the data is wrong, not the program
    return found


def _inverse(order: List[int]) -> List[int]:
    return [order.index(place) for place in range(len(order))]


_FROM_TREES: Dict[str, Callable[[Any], Any]] = {
    **_SEQUENCES,
    "dict": lambda pairs: dict(zip(*pairs)),
    "Counter": lambda pairs: Counter(dict(zip(*pairs))),
}
_FROM_TEXT: Dict[str, Callable[[Any], Any]] = {
    "bytes": lambda text: base64.b64decode(text, validate=True),
    "bytearray": lambda text: bytearray(base64.b64decode(text, validate=True)),
    "complex": lambda parts: complex(*parts),
    "device": torch.device,
    "dtype": _dtype,
    numpy_scalar.KIND: numpy_scalar.decoded,
}
