"""The bytes of tensors in files: written from the memory of a tensor, and read into it. No copy, and without NumPy.

NumPy has no bfloat16, and torch does not need it.
"""

from __future__ import annotations

import ctypes
from typing import BinaryIO

import torch

_READ_BYTES = 1 << 26
"""Bytes that are read at a time."""


def size_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes of a dense tensor."""
    return tensor.numel() * tensor.element_size()


def memory_of(tensor: torch.Tensor) -> memoryview:
    """Return the memory of a contiguous tensor on the CPU. It is valid as long as the tensor exists. Raises ValueError."""
    if not size_bytes(tensor):
        return memoryview(b"")
    address = tensor.data_ptr()
    if address == 0:  # of a wrapper: reading it would end the process
        raise ValueError(f"a tensor of the type {type(tensor).__qualname__} has no memory")
    return memoryview((ctypes.c_char * size_bytes(tensor)).from_address(address)).cast("B")


def fill(data: memoryview, file: BinaryIO) -> bool:
    """Read from the file until `data` is full. Return False if the file ends before."""
    done = 0
    while done < len(data):
        portion = file.read(min(len(data) - done, _READ_BYTES))
        if not portion:
            return False
        data[done : done + len(portion)] = portion
        done += len(portion)
    return True
