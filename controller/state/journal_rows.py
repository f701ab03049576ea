"""Decoding of the journal's rows: each value must have the right type and range, or its row is refused.

A field of a newer version is ignored, and a field that an older version did not write gets its default, so journals of older
versions and of newer ones with the same schema can be read. Everything else raises RowError for that row alone, and the row
stays in the file. The version of the schema is that of the file (`PRAGMA user_version`); a file of a newer schema is set aside.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from typing import Any, Protocol, TypeVar

from pydantic import TypeAdapter

from controller.slurm.hostlist import NODE_NAME
from controller.slurm.model.job import JobKey, ResourceRequest
from controller.state.ledger import PinRecord, Refusal, Served
from controller.state.preemption import Preemption, RelocationConstraint
from controller.state.typed_rows import MOST_NUMBER

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_JOB_ID = re.compile(r"(?:([A-Za-z0-9_.\-]{1,64})/)?([0-9]{1,12}(?:_[0-9]{1,12})?)")
"""A job id, after the name of its cluster unless that is the controller's own. Earlier versions leave such rows in the file."""
_GPU_TYPE = re.compile(r"[A-Za-z0-9_.\-]*")
_MOST_TEXT = 1 << 20
"""Maximum number of characters in one column: enough for a request that names ten thousand nodes."""

_REQUEST = TypeAdapter(ResourceRequest)
_PIN = TypeAdapter(PinRecord)
_REFUSAL = TypeAdapter(Refusal)
_SERVED = TypeAdapter(Served)
_ELSEWHERE = TypeAdapter(RelocationConstraint)
_PREEMPTION = TypeAdapter(Preemption)


class RowError(ValueError):
    """A row cannot be decoded; the text says why."""


class _Adapter(Protocol[T_co]):
    def validate_json(self, data: str, *, strict: bool) -> T_co:
        """See pydantic."""


def encode_key(key: JobKey) -> tuple[str, int]:
    """Return the columns `job_id` and `submit_time_s` of a job; `decode_key` reads them."""
    return (f"{key.cluster}/{key.job_id}" if key.cluster else key.job_id), key.submit_time_s


def lenient_key(job_id: str, submit_time_s: int) -> JobKey:
    """Return the key of a row that only people read, whatever its job id looks like."""
    cluster, _, own_id = job_id.rpartition("/")
    return JobKey(own_id, submit_time_s, cluster)


def decode_key(job_id: object, submit_time_s: object) -> JobKey:
    """Return the key of a row. Raises RowError."""
    found = _JOB_ID.fullmatch(job_id) if isinstance(job_id, str) else None
    if found is None:
        raise RowError(f"not a job id: {str(job_id)[:40]!r}")
    return JobKey(found[2], whole_number(submit_time_s), found[1] or "")


def whole_number(value: object) -> int:
    """Return a count or a time in seconds. Raises RowError."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MOST_NUMBER:
        raise RowError(f"not a whole number: {str(value)[:40]!r}")
    return value


def decode_request(text: object) -> ResourceRequest:
    """Return a request that `encode` wrote. Raises RowError."""
    found = _decode(_REQUEST, text)
    _require_nodes((*found.required_nodes, *found.excluded_nodes))
    if found.min_nodes < 1 or not _GPU_TYPE.fullmatch(found.gpu_type):
        raise RowError("a request for no node, or for a GPU type with forbidden characters")
    if not found.has_gpus:
        # A byte of the field's name was damaged: Headway keeps requests of jobs with GPUs only.
        raise RowError("a request for no GPU")
    return found


def decode_pin(text: object) -> PinRecord:
    """Return a pin. Raises RowError."""
    found = _decode(_PIN, text)
    _require_nodes(found.nodes)
    return found


def decode_refusal(text: object) -> Refusal:
    """Return a refusal. Raises RowError."""
    return _decode(_REFUSAL, text)


def decode_served(text: object) -> Served:
    """Return the usage of earlier runs. Raises RowError."""
    return _decode(_SERVED, text)


def decode_constraint(text: object) -> RelocationConstraint:
    """Return a relocation constraint. Raises RowError."""
    found = _decode(_ELSEWHERE, text)
    _require_nodes((*found.avoid, *found.only))
    return found


def decode_preemption(row: Mapping[str, Any]) -> Preemption:
    """Return a preemption from the columns of its row. Raises RowError."""
    try:
        values = {
            **{name: value for name, value in row.items() if name != "elsewhere"},
            "nodes": json.loads(row["nodes"]),
            "constraint": json.loads(row["elsewhere"]),
            "force": {0: False, 1: True}[row["force"]],
        }
        text = json.dumps(values)
    except (ValueError, TypeError, KeyError, RecursionError, MemoryError) as error:
        raise RowError(_short(error)) from error
    found = _decode(_PREEMPTION, text)
    _require_nodes((*found.nodes, *found.constraint.avoid, *found.constraint.only))
    key = decode_key(found.job_id, found.submit_time_s)
    return replace(found, job_id=key.job_id, cluster=key.cluster)


def encode_constraint(constraint: RelocationConstraint) -> str:
    """Return a relocation constraint as text; `decode_constraint` reads it."""
    return encode(constraint)


def encode(facts: Any) -> str:
    """Return a dataclass as text; its sets become sorted lists."""
    return json.dumps(asdict(facts), default=sorted)


def _decode(adapter: _Adapter[T], text: object) -> T:
    if not isinstance(text, str) or len(text) > _MOST_TEXT:
        raise RowError("not a text, or too long")
    try:
        found = adapter.validate_json(text, strict=True)
    except (ValueError, TypeError, RecursionError, MemoryError, OverflowError) as error:
        raise RowError(_short(error)) from error
    _require_range(found)
    return found


def _require_range(value: object) -> None:
    """Check that every number is finite, not negative, and small enough to be exact as a double."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not 0 <= value < MOST_NUMBER:  # also NaN
            raise RowError("a number out of range")
    elif is_dataclass(value):
        for field in fields(value):
            _require_range(getattr(value, field.name))
    elif isinstance(value, tuple | frozenset):
        for item in value:
            _require_range(item)


def _require_nodes(names: tuple[str, ...]) -> None:
    for name in names:
        if not NODE_NAME.fullmatch(name):
            raise RowError(f"not a name of a node: {name[:40]!r}")


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
