"""Rows of the journal, decoded at one boundary: each value is of the right type and within its range, or its row is refused.

A field that a newer version has added is ignored, and one that an older version did not write takes its default: an older
journal, and one that a newer version has written in the same schema, can both be read. Everything else that is not understood
raises RowError, for that row alone; whoever reads it leaves the row in the file.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass
from typing import Any, Protocol, TypeVar

from pydantic import TypeAdapter

from controller.slurm.client import JobKey, ResourceRequest
from controller.slurm.hostlist import NODE_NAME
from controller.state.ledger import PinRecord, Refusal, Served
from controller.state.preemption import Preemption, RelocationConstraint

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_JOB_ID = re.compile(r"[0-9]{1,12}(_[0-9]{1,12})?")
_GPU_TYPE = re.compile(r"[A-Za-z0-9_.\-]*")
_MOST_NUMBER = 2**53
"""Numbers beyond it are no counts and no times."""
_MOST_TEXT = 1 << 20
"""Characters of one column: a request for some ten thousand nodes by name."""

_REQUEST = TypeAdapter(ResourceRequest)
_PIN = TypeAdapter(PinRecord)
_REFUSAL = TypeAdapter(Refusal)
_SERVED = TypeAdapter(Served)
_ELSEWHERE = TypeAdapter(RelocationConstraint)
_PREEMPTION = TypeAdapter(Preemption)


class RowError(ValueError):
    """This row is not understood: the text says why."""


class _Adapter(Protocol[T_co]):
    def validate_json(self, data: str, *, strict: bool) -> T_co:
        """See pydantic."""


def well_typed(rows: Iterable[tuple[Any, ...]], *kinds: str) -> Iterator[tuple[Any, ...]]:
    """Leave out rows with values of other kinds than these: "text", "number" (a count or a time), with "?" if it may be NULL."""
    tests = [(_TESTS[kind.rstrip("?")], kind.endswith("?")) for kind in kinds]
    for row in rows:
        if all((value is None and may_lack) or test(value) for value, (test, may_lack) in zip(row, tests, strict=True)):
            yield row


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < _MOST_NUMBER


_TESTS: dict[str, Callable[[object], bool]] = {"text": lambda value: isinstance(value, str), "number": _is_number}


def decode_key(job_id: object, submit_time_s: object) -> JobKey:
    """Return the key of a row. Raises RowError."""
    if not isinstance(job_id, str) or not _JOB_ID.fullmatch(job_id):
        raise RowError(f"no job id: {str(job_id)[:40]!r}")
    return JobKey(job_id, whole_number(submit_time_s))


def whole_number(value: object) -> int:
    """Return a count or a time in seconds. Raises RowError."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MOST_NUMBER:
        raise RowError(f"no whole number: {str(value)[:40]!r}")
    return value


def decode_request(text: object) -> ResourceRequest:
    """Return a request that `encode` wrote. Raises RowError."""
    found = _decode(_REQUEST, text)
    _require_nodes((*found.required_nodes, *found.excluded_nodes))
    if found.min_nodes < 1 or not _GPU_TYPE.fullmatch(found.gpu_type):
        raise RowError("a request for no node, or for a type of GPU that cannot be")
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
    """Return what earlier runs used. Raises RowError."""
    return _decode(_SERVED, text)


def decode_elsewhere(text: object) -> RelocationConstraint:
    """Return where a job is to go. Raises RowError."""
    found = _decode(_ELSEWHERE, text)
    _require_nodes((*found.avoid, *found.only))
    return found


def decode_preemption(row: Mapping[str, Any]) -> Preemption:
    """Return a preemption from the columns of its row. Raises RowError."""
    try:
        values = {
            **row,
            "nodes": json.loads(row["nodes"]),
            "elsewhere": json.loads(row["elsewhere"]),
            "force": {0: False, 1: True}[row["force"]],
        }
        text = json.dumps(values)
    except (ValueError, TypeError, KeyError, RecursionError, MemoryError) as error:
        raise RowError(_short(error)) from error
    found = _decode(_PREEMPTION, text)
    _require_nodes((*found.nodes, *found.elsewhere.avoid, *found.elsewhere.only))
    decode_key(found.job_id, found.submit_time_s)
    return found


def encode_elsewhere(elsewhere: RelocationConstraint) -> str:
    """Return it as text; `decode_elsewhere` is its inverse."""
    return json.dumps({"avoid": sorted(elsewhere.avoid), "only": sorted(elsewhere.only), "gpus": elsewhere.gpus})


def encode(facts: Any) -> str:
    """Return a dataclass as text; its sets as lists, in order."""
    return json.dumps(asdict(facts), default=sorted)


def _decode(adapter: _Adapter[T], text: object) -> T:
    if not isinstance(text, str) or len(text) > _MOST_TEXT:
        raise RowError("no text, or too long")
    try:
        found = adapter.validate_json(text, strict=True)
    except (ValueError, TypeError, RecursionError, MemoryError, OverflowError) as error:
        raise RowError(_short(error)) from error
    _require_range(found)
    return found


def _require_range(value: object) -> None:
    """Every number counts something or is a time: finite, not below zero, and no larger than a double holds exactly."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not (math.isfinite(value) and 0 <= value < _MOST_NUMBER):
            raise RowError(f"a number out of range: {str(value)[:40]}")
    elif is_dataclass(value):
        for field in fields(value):
            _require_range(getattr(value, field.name))
    elif isinstance(value, tuple | frozenset):
        for item in value:
            _require_range(item)


def _require_nodes(names: tuple[str, ...]) -> None:
    for name in names:
        if not NODE_NAME.fullmatch(name):
            raise RowError(f"no name of a node: {name[:40]!r}")


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
