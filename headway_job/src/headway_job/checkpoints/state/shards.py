"""A rank's pieces of the tensors that are sharded over ranks, in a file from which any part can be read alone.

The file: 8 bytes that say what it is, 8 bytes with the length of the index, the index (JSON), and the pieces' numbers one after
the other, each row by row. Nothing in it is executed, and a run of another number of ranks reads the rows that it needs.
"""

from __future__ import annotations

import ctypes
import json
from typing import Any, BinaryIO, Callable, Dict, Iterable, List, NamedTuple, Sequence, Tuple

import torch

from ..errors import Damaged

_MAGIC = b"hwshard1"
_LENGTH_BYTES = 8
_LARGEST_INDEX = 1 << 28
_PORTION = 1 << 26
"""Bytes read at a time."""

Box = Tuple[Tuple[int, ...], Tuple[int, ...]]
"""Where a piece lies in the whole tensor: its offsets and its sizes."""


class Piece(NamedTuple):
    """What a rank has of a tensor."""

    name: str
    shape: Tuple[int, ...]
    """Of the whole tensor."""
    offsets: Tuple[int, ...]
    data: torch.Tensor
    """On the CPU, contiguous."""


class Kept(NamedTuple):
    """A piece in a file."""

    file: str
    name: str
    dtype: torch.dtype
    shape: Tuple[int, ...]
    offsets: Tuple[int, ...]
    sizes: Tuple[int, ...]
    start: int
    """Of its first byte in the file."""


class Request(NamedTuple):
    """A tensor to be filled with the numbers of one that was saved, from `offsets` on."""

    name: str
    offsets: Tuple[int, ...]
    into: torch.Tensor


def write(pieces: Sequence[Piece], file: BinaryIO) -> None:
    """A rank's file."""
    rows: List[Dict[str, Any]] = []
    start = 0
    for piece in pieces:
        rows.append(
            {
                "name": piece.name,
                "dtype": str(piece.data.dtype).split(".")[-1],
                "shape": list(piece.shape),
                "offsets": list(piece.offsets),
                "sizes": list(piece.data.shape),
                "start": start,
            }
        )
        start += piece.data.numel() * piece.data.element_size()
    index = json.dumps(rows).encode()
    file.write(_MAGIC + len(index).to_bytes(_LENGTH_BYTES, "big") + index)
    for piece in pieces:
        size_bytes = piece.data.numel() * piece.data.element_size()
        if size_bytes:
            # NumPy, which torch can do without, has no bfloat16.
            file.write(memoryview((ctypes.c_char * size_bytes).from_address(piece.data.data_ptr())).cast("B"))


def read_index(file: BinaryIO, name: str) -> List[Kept]:
    """What is in a rank's file. Raises Damaged."""
    start = len(_MAGIC) + _LENGTH_BYTES
    head = file.read(start)
    if len(head) < start or not head.startswith(_MAGIC):
        raise Damaged(f"{name} is no file of shards")
    length = int.from_bytes(head[len(_MAGIC) :], "big")
    if length > _LARGEST_INDEX:
        raise Damaged(f"{name} has an index of {length} bytes")
    try:
        return [_kept(row, name, start + length) for row in json.loads(file.read(length).decode())]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"{name} has no index that can be read ({type(error).__name__}: {error})") from error


class Pieces:
    """The pieces of all ranks. Invariant: a tensor is filled whole or Damaged is raised."""

    def __init__(self, kept: Iterable[Kept], opened: Callable[[str], BinaryIO]) -> None:
        """`opened`: a file of the checkpoint."""
        self._opened = opened
        self._by_name: Dict[str, Dict[Box, Kept]] = {}
        for piece in kept:
            # Ranks that have the same piece, as replicas do, have the same numbers.
            self._by_name.setdefault(piece.name, {}).setdefault((piece.offsets, piece.sizes), piece)

    def fill(self, requests: Sequence[Request]) -> None:
        """Reads what is asked for and nothing else, one file after the other. Raises Damaged, and what the store raises."""
        by_file: Dict[str, List[Tuple[Kept, Request]]] = {}
        for request in requests:
            found = [
                kept for kept in self._by_name.get(request.name, {}).values() if _volume(_shared(kept, request)[1])
            ]
            if sum(_volume(_shared(kept, request)[1]) for kept in found) != request.into.numel():
                raise Damaged(f"the pieces of {request.name} do not make it whole")
            for kept in found:
                by_file.setdefault(kept.file, []).append((kept, request))
        for name, reads in sorted(by_file.items()):
            with self._opened(name) as file:
                for kept, request in sorted(reads, key=lambda read: read[0].start):
                    _copy(file, kept, request)


def _kept(row: Dict[str, Any], file: str, base: int) -> Kept:
    dtype = getattr(torch, str(row["dtype"]), None)
    shape, offsets, sizes = (tuple(int(one) for one in row[name]) for name in ("shape", "offsets", "sizes"))
    if not isinstance(dtype, torch.dtype) or not len(shape) == len(offsets) == len(sizes) or int(row["start"]) < 0:
        raise ValueError(f"{row['name']} is of no kind that is known")
    if any(not 0 <= offset <= offset + size <= most for offset, size, most in zip(offsets, sizes, shape)):
        raise ValueError(f"{row['name']} lies outside of itself")
    return Kept(file, str(row["name"]), dtype, shape, offsets, sizes, base + int(row["start"]))


def _shared(kept: Kept, request: Request) -> Box:
    """Where both are."""
    if len(kept.sizes) != request.into.dim():
        return (), (0,)
    low = tuple(max(one, other) for one, other in zip(kept.offsets, request.offsets))
    high = (min(a + b, c + d) for a, b, c, d in zip(kept.offsets, kept.sizes, request.offsets, request.into.shape))
    return low, tuple(max(end - start, 0) for start, end in zip(low, high))


def _volume(sizes: Sequence[int]) -> int:
    volume = 1
    for size in sizes:
        volume *= size
    return volume


def _copy(file: BinaryIO, kept: Kept, request: Request) -> None:
    """Whole rows are read, of the first dimension; what is left and right of the shared part is thrown away."""
    item = torch.empty((), dtype=kept.dtype).element_size()
    low, sizes = _shared(kept, request)
    row_bytes = _volume(kept.sizes[1:]) * item
    first, rows = (low[0] - kept.offsets[0], sizes[0]) if sizes else (0, 1)
    at_once = max(_PORTION // row_bytes, 1)
    for row in range(0, rows, at_once):
        count = min(at_once, rows - row)
        file.seek(kept.start + (first + row) * row_bytes)
        data = bytearray(count * row_bytes)
        _read_into(file, memoryview(data), kept)
        numbers = torch.frombuffer(data, dtype=kept.dtype)
        if not sizes:
            request.into.copy_(numbers.reshape(()))
            continue
        within = [slice(start - offset, start - offset + size) for start, offset, size in zip(low, kept.offsets, sizes)]
        target = [
            slice(start - offset, start - offset + size) for start, offset, size in zip(low, request.offsets, sizes)
        ]
        target[0] = slice(target[0].start + row, target[0].start + row + count)
        request.into[tuple(target)].copy_(numbers.reshape(count, *kept.sizes[1:])[(slice(None), *within[1:])])


def _read_into(file: BinaryIO, data: memoryview, kept: Kept) -> None:
    done = 0
    while done < len(data):
        piece = file.read(len(data) - done)
        if not piece:
            raise Damaged(f"{kept.file} ends within {kept.name}")
        data[done : done + len(piece)] = piece
        done += len(piece)
