"""Files of earlier versions, which torch.save has written: a zip archive with a pickle, read without executing anything.

torch.load is not used, as `weights_only` of torch < 2.10 can be bypassed (CVE-2025-32434, CVE-2026-24747). Here, the names in the
pickle stand for functions of this module, and for nothing else; and what stands for a tensor is a plain tuple until the pickle has
ended. So the pickle can neither call anything of torch nor change a tensor, and its tensors lie within the archive.
"""

from __future__ import annotations

import io
import math
import os
import pickle
import struct
import zipfile
from collections import Counter, OrderedDict
from typing import Any, BinaryIO, Callable, Dict, NamedTuple, Tuple

import torch

from .pytree import map_leaves
from .tensor_bytes import fill, memory_of

_ZIP = b"PK\x03\x04"
_MAX_PICKLE_BYTES = 1 << 30
_STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8", "ByteStorage": "uint8",
    "BoolStorage": "bool", "ComplexDoubleStorage": "complex128", "ComplexFloatStorage": "complex64", "UntypedStorage": "uint8",
}  # fmt: skip


_ERRORS = (
    zipfile.BadZipFile, pickle.UnpicklingError, struct.error,
    KeyError, IndexError, TypeError, AttributeError, EOFError, OverflowError,
)  # fmt: skip
"""Errors of Python and torch for data that was not checked before."""


class _Storage(NamedTuple):
    """The elements of one or more tensors: an entry of the archive."""

    key: str
    dtype: torch.dtype


class _Strided(NamedTuple):
    """A part of a storage."""

    storage: _Storage
    offset: int
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]
    dtype: torch.dtype


class _Sparse(NamedTuple):
    layout: str
    parts: Tuple[Any, ...]


def read(file: BinaryIO) -> Any:
    """Return the object that torch.save has written. Raises ValueError for anything else, before it executes any of it."""
    size_bytes = file.seek(0, os.SEEK_END)
    file.seek(0)
    begin = file.read(len(_ZIP))
    file.seek(0)
    if begin != _ZIP:
        raise ValueError("it is not a zip file as torch.save writes them")
    try:
        with zipfile.ZipFile(file) as archive:
            return _Archive(archive, size_bytes).tree()
    except _ERRORS as error:
        raise ValueError(f"it is not a file as torch.save writes them ({type(error).__name__}: {error})") from error


class _Archive:
    """An archive of torch.save. Invariant: it has no compressed entry, so that no entry is larger than the file."""

    def __init__(self, archive: zipfile.ZipFile, size_bytes: int) -> None:
        """`size_bytes`: of the file."""
        if any(one.compress_type != zipfile.ZIP_STORED or one.file_size > size_bytes for one in archive.infolist()):
            raise ValueError("it has compressed or impossibly large entries, which torch.save does not write")
        self._archive = archive
        (found,) = [name for name in archive.namelist() if name.endswith("/data.pkl")] or [""]
        self._pickle = found
        self._folder = found[: -len("data.pkl")]
        self._storages: Dict[str, torch.Tensor] = {}
        """Bound: the storages of one file."""

    def tree(self) -> Any:
        """Return the object in the pickle."""
        if not self._pickle or self._archive.getinfo(self._pickle).file_size > _MAX_PICKLE_BYTES:
            raise ValueError("it has no pickle, or an impossibly large one")
        data = io.BytesIO(self._archive.read(self._pickle))
        return map_leaves(_Unpickler(data).load(), lambda _, leaf: self._leaf(leaf), stop=_is_tensor)

    def _leaf(self, leaf: Any) -> Any:
        if isinstance(leaf, _Strided):
            return self._tensor(leaf)
        if isinstance(leaf, _Sparse):
            parts = [self._leaf(part) for part in leaf.parts]
            if leaf.layout == "sparse_coo":
                indices, values, shape, *coalesced = parts
                found = torch.sparse_coo_tensor(indices, values, shape, check_invariants=True)
                return found._coalesced_(bool(coalesced and coalesced[0]))
            layout = getattr(torch, leaf.layout)
            return torch.sparse_compressed_tensor(*parts, layout=layout, check_invariants=True)
        if isinstance(leaf, _Storage):
            raise ValueError("it has a storage that belongs to no tensor")  # noqa: TRY004 - the data is wrong
        return leaf

    def _tensor(self, row: _Strided) -> torch.Tensor:
        """Return a tensor of its own. Raises ValueError if it does not lie within its storage."""
        whole = self._elements(row.storage.key).view(row.dtype)
        last = row.offset + sum((size - 1) * stride for size, stride in zip(row.shape, row.strides))
        if min((row.offset, *row.shape, *row.strides)) < 0 or len(row.shape) != len(row.strides):
            raise ValueError("a tensor has an impossible shape")
        if 0 in row.shape:
            return torch.empty(row.shape, dtype=row.dtype, device="cpu")
        if max(last + 1, math.prod(row.shape)) > whole.numel():
            raise ValueError(f"a tensor lies outside of its storage {row.storage.key!r}")
        return whole.as_strided(row.shape, row.strides, row.offset)

    def _elements(self, key: str) -> torch.Tensor:
        """Return the bytes of a storage."""
        if key not in self._storages:
            name = f"{self._folder}data/{key}"
            size = self._archive.getinfo(name).file_size
            found = torch.empty(size, dtype=torch.uint8, device="cpu")
            with self._archive.open(name) as entry:
                if not fill(memory_of(found), entry):  # type: ignore[arg-type]
                    raise ValueError(f"storage {key!r} is truncated")
            self._storages[key] = found
        return self._storages[key]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, (_Strided, _Sparse, _Storage))


class _Callable(NamedTuple):
    """A function that a pickle may call. It has no attribute that a pickle could set, as functions and classes have."""

    function: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)


class _Unpickler(pickle.Unpickler):
    """Invariant: a name in the pickle leads to one of _NAMES or to a type of tensors, and to nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what stands for the name. Raises ValueError for all others."""
        if (module, name) in _NAMES:
            return _NAMES[module, name]
        if module in ("torch", "torch.storage") and _STORAGES.get(name, name) in _TYPES:
            return _TYPES[_STORAGES.get(name, name)]
        raise ValueError(f"it names {module}.{name}, which no state contains")

    def persistent_load(self, pid: Any) -> Any:
        """Return the storage with that id."""
        kind, dtype, key, _device, _elements = pid
        if kind != "storage" or not isinstance(dtype, torch.dtype) or type(key) is not str or "/" in key:
            raise ValueError("it has an unknown kind of persistent object")
        return _Storage(key, dtype)


def _numbers(values: Any) -> Tuple[int, ...]:
    if not isinstance(values, tuple) or any(type(one) is not int for one in values):
        raise ValueError("a tensor has an impossible shape")
    return tuple(values)


def _rebuild(storage: Any, offset: Any, shape: Any, strides: Any, *_others: Any) -> _Strided:
    if not isinstance(storage, _Storage):
        raise ValueError("a tensor has no storage")  # noqa: TRY004 - the data is wrong, not the program
    (first,) = _numbers((offset,))
    return _Strided(storage, first, _numbers(shape), _numbers(strides), storage.dtype)


def _rebuild_with_type(
    storage: Any, offset: Any, shape: Any, strides: Any, _grad: Any, _hooks: Any, dtype: Any, *_others: Any
) -> _Strided:
    if not isinstance(dtype, torch.dtype):
        raise ValueError("a tensor has no type")  # noqa: TRY004 - as above
    return _rebuild(storage, offset, shape, strides)._replace(dtype=dtype)


def _rebuild_sparse(layout: Any, parts: Any) -> _Sparse:
    if not isinstance(layout, str) or not isinstance(parts, tuple):
        raise ValueError("a sparse tensor has no layout")  # noqa: TRY004 - as above
    return _Sparse(layout, parts)


def _layout(name: Any) -> str:
    if name not in [f"torch.sparse_{kind}" for kind in ("coo", "csr", "csc", "bsr", "bsc")]:
        raise ValueError(f"a tensor has the unknown layout {name!r}")
    return str(name)[len("torch.") :]


def _encode(text: Any, encoding: Any) -> bytes:
    if type(text) is not str or encoding != "latin1":
        raise ValueError("it has bytes in an unknown form")
    return text.encode("latin1")


_BUILTINS: Dict[str, Callable[..., Any]] = {"set": set, "complex": complex, "bytearray": bytearray, "bytes": bytes}
_FUNCTIONS: Dict[Tuple[str, str], Callable[..., Any]] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("collections", "Counter"): Counter,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild,
    ("torch._utils", "_rebuild_tensor_v3"): _rebuild_with_type,
    ("torch._utils", "_rebuild_sparse_tensor"): _rebuild_sparse,
    ("torch.serialization", "_get_layout"): _layout,
    ("torch", "Size"): torch.Size,
    ("torch", "device"): torch.device,
    ("_codecs", "encode"): _encode,
    **{(module, name): of for module in ("builtins", "__builtin__") for name, of in _BUILTINS.items()},
}
_NAMES = {name: _Callable(function) for name, function in _FUNCTIONS.items()}
_TYPES = {
    name: of
    for name, of in vars(torch).items()
    if isinstance(of, torch.dtype) and "qu" not in name and "qi" not in name
}
