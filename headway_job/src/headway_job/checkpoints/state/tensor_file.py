"""A file of tensors with a text: the safetensors format, which any program can read, and from which nothing is executed.

The file: 8 bytes with the length of the header (little-endian), the header (JSON: type, shape and place of each tensor), and the
data of the tensors one after the other. The library safetensors is not used: jobs need nothing but torch.

Whatever the file contains, `read` returns tensors that lie within it, or raises ValueError. Their sizes are checked before any
memory is used for them.
"""

from __future__ import annotations

import json
import os
from typing import Any, BinaryIO, Container, Dict, List, NamedTuple, Sequence, Tuple

import torch

from .tensor_bytes import fill, memory_of, size_bytes

_LENGTH_BYTES = 8
_MAX_HEADER_BYTES = 1 << 30
_METADATA = "__metadata__"
_RAW = "U8"
_NAMES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16",
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "uint8": _RAW, "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
}  # fmt: skip
"""The format's name of each type of torch. Tensors of other types are written as bytes, and their type in the text."""


class TensorShape(NamedTuple):
    """Type and shape of a tensor, as the text states them."""

    dtype: torch.dtype
    shape: Tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """Memory that it needs."""
        elements = 1
        for size in self.shape:
            elements *= size
        return elements * torch.empty((), dtype=self.dtype).element_size()


def write(metadata: Dict[str, str], tensors: Sequence[torch.Tensor], file: BinaryIO) -> None:
    """Write contiguous tensors on the CPU, with a text for each key. Raises ValueError if the texts are too long."""
    header: Dict[str, Any] = {_METADATA: metadata}
    start = 0
    for number, tensor in enumerate(tensors):
        end = start + size_bytes(tensor)
        kind = _NAMES.get(str(tensor.dtype).split(".")[-1])
        shape = list(tensor.shape) if kind else [end - start]
        header[str(number)] = {"dtype": kind or _RAW, "shape": shape, "data_offsets": [start, end]}
        start = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _LENGTH_BYTES)  # so that the data is aligned
    if len(text) > _MAX_HEADER_BYTES:
        raise ValueError(f"the state without its tensors has {len(text)} bytes; give large parts of it as tensors")
    file.write(len(text).to_bytes(_LENGTH_BYTES, "little") + text)
    for tensor in tensors:
        if size_bytes(tensor):
            file.write(memory_of(tensor))


class TensorFile:
    """An open file that `write` has written. Invariant: no tensor is read whose place is not inside of the file."""

    def __init__(self, file: BinaryIO) -> None:
        """Read the header. Raises ValueError."""
        self._file = file
        end = file.seek(0, os.SEEK_END)
        file.seek(0)
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        if length > min(_MAX_HEADER_BYTES, end - _LENGTH_BYTES):
            raise ValueError(f"it is not a file of tensors (a header of {length} bytes)")
        self._data_start = _LENGTH_BYTES + length
        self._data_bytes = end - self._data_start
        header = _object(json.loads(file.read(length).decode()), "its header")
        self.metadata = _object(header.pop(_METADATA, None), "its metadata")
        self._places = header

    def read(self, shapes: List[TensorShape], wanted: Container[int]) -> Dict[int, torch.Tensor]:
        """Return those of the file's tensors that are wanted, by number. All have these types and shapes. Raises ValueError."""
        if len(shapes) != len(self._places):
            raise ValueError(f"it has {len(self._places)} tensors, and its text names {len(shapes)}")
        return {number: self._read(str(number), expected) for number, expected in enumerate(shapes) if number in wanted}

    def _read(self, name: str, expected: TensorShape) -> torch.Tensor:
        place = _object(self._places.get(name), f"tensor {name}").get("data_offsets")
        if not isinstance(place, list) or [type(one) for one in place] != [int, int]:
            raise ValueError(f"tensor {name} has no place")
        start, end = place
        if not 0 <= start <= end <= self._data_bytes or end - start != expected.size_bytes:
            raise ValueError(f"tensor {name} needs {expected.size_bytes} bytes, and its place is from {start} to {end}")
        tensor = torch.empty(expected.shape, dtype=expected.dtype, device="cpu")
        self._file.seek(self._data_start + start)
        if not fill(memory_of(tensor), self._file):
            raise ValueError(f"the file ends within tensor {name}")
        return tensor


def _object(value: Any, what: str) -> Dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is no object")  # noqa: TRY004 - the data is wrong, not the program
    return value
