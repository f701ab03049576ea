"""Conversion of columns between messages and numpy, with their checks.

A packed repeated field of fixed width has, on the wire, the very bytes that a `bytes` field with the array in little endian
has. `RawSnapshot` is `headway.v1.ClusterSnapshot` with its columns declared that way: the same messages, read and written as
whole arrays and not number by number. It is made here from the descriptor of the real message, so the two cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from policies.errors import WireError
from protos.headway.v1 import snapshot_pb2

_Field = descriptor_pb2.FieldDescriptorProto
_DTYPES: dict[int, str] = {
    _Field.TYPE_FIXED32: "<u4",
    _Field.TYPE_FIXED64: "<u8",
    _Field.TYPE_DOUBLE: "<f8",
    # Varints, but of one byte each for every value that is allowed.
    _Field.TYPE_BOOL: "u1",
    _Field.TYPE_ENUM: "u1",
}


def _declare_raw() -> tuple[type[Any], dict[str, np.dtype[Any]]]:
    """Return the class of the wire-identical message, and the type of each column on the wire."""
    file = descriptor_pb2.FileDescriptorProto()
    snapshot_pb2.DESCRIPTOR.CopyToProto(file)
    file.name, file.package = "headway/raw/snapshot.proto", "headway.raw"
    dtypes = {}
    for message in file.message_type:
        for field in message.field:
            if field.type_name:
                field.type_name = field.type_name.replace(".headway.v1.", ".headway.raw.")
            if field.label == _Field.LABEL_REPEATED and field.type in _DTYPES:
                dtypes[f"{message.name.lower()}.{field.name}"] = np.dtype(_DTYPES[field.type])
                field.label, field.type = _Field.LABEL_OPTIONAL, _Field.TYPE_BYTES
                field.ClearField("type_name")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    raw = message_factory.GetMessageClass(pool.FindMessageTypeByName("headway.raw.ClusterSnapshot"))
    return raw, dtypes


RawSnapshot, WIRE_DTYPES = _declare_raw()


def write_column(message: Any, table: str, name: str, values: npt.NDArray[Any]) -> None:
    """Put a column into a message of RawSnapshot. `table` is nodes or jobs."""
    setattr(message, name, values.astype(WIRE_DTYPES[f"{table}.{name}"]).tobytes())


def read_column(message: Any, table: str, name: str, count: int | None) -> npt.NDArray[Any]:
    """Return a column of `count` entries (None: any number) of a message of RawSnapshot, as int64, float64
    or (bit masks) uint64."""
    field, dtype = f"{table}.{name}", WIRE_DTYPES[f"{table}.{name}"]
    data = getattr(message, name)
    if len(data) % dtype.itemsize:
        refuse(field, f"has {len(data)} bytes, not a whole number of entries of {dtype.itemsize}")
    raw = np.frombuffer(data, dtype=dtype)
    if count is not None and len(raw) != count:
        refuse(field, f"has {len(raw)} entries, not {count}")
    if dtype.kind == "f":
        return raw.astype(np.float64)
    if name.endswith("_mask"):
        return raw.astype(np.uint64)
    if dtype.itemsize == 8:
        check(field, raw < 1 << 63, raw, "2^63 or more")
    return raw.astype(np.int64)


def refuse(field: str, problem: str) -> NoReturn:
    """Raise the WireError that names the field."""
    raise WireError(f"{field}: {problem}")


def check(field: str, fine: npt.NDArray[np.bool_], values: npt.NDArray[Any], problem: str) -> None:
    """Raise the WireError that names field, row and value of the first entry that is not fine."""
    if not fine.all():
        row = int(fine.argmin())
        refuse(f"{field}[{row}]", f"is {values[row]}: {problem}")


def integers(field: str, values: Sequence[int], count: int | None) -> npt.NDArray[np.int64]:
    """Return a column of an ordinary message."""
    if count is not None and len(values) != count:
        refuse(field, f"has {len(values)} entries, not {count}")
    return np.fromiter(values, dtype=np.int64, count=len(values))


def distinct_names(field: str, values: Sequence[str]) -> tuple[str, ...]:
    """Return a column of names: none empty, none twice."""
    names = tuple(values)
    if not all(names):
        refuse(f"{field}[{names.index('')}]", "is empty")
    if len(set(names)) != len(names):
        seen: set[str] = set()
        twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        refuse(field, f"has {twice!r} twice")
    return names


def distinct_rows(field: str, values: Sequence[int], count: int) -> npt.NDArray[np.int64]:
    """Return rows of a table of `count` jobs, each at most once."""
    rows = integers(field, values, None)
    check(field, rows < count, rows, f"beyond the {count} jobs")
    if len(rows) and np.bincount(rows).max() > 1:
        refuse(field, f"names row {int(np.bincount(rows).argmax())} twice")
    return rows


def entries_per_row(field: str, offset: npt.NDArray[np.int64], end: int) -> npt.NDArray[np.int64]:
    """Return the entries of each row, from offsets that must rise from 0 to `end`."""
    if offset[0] != 0 or offset[-1] != end:
        refuse(field, f"goes from {offset[0]} to {offset[-1]}, not from 0 to {end}")
    counts = np.diff(offset)
    check(field, np.append(True, counts >= 0), offset, "less than the entry before it")
    return counts
