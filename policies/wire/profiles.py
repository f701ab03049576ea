"""Conversion of measured profiles to the message Profiles of a snapshot, and back. Columns are as in `policies.wire.state`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from policies.model import Pairs, ProfileTable
from policies.state.ring_reduction import RingTime
from policies.wire.columns import check, distinct_names, read_column, refuse, write_column

_TIERS = 4
_COLUMNS = ("bytes_per_step", "compute_s", "cpu_cores", "pcie_gbyte_s")
_MORE = ("overlap", "hiding", "batch_per_gpu", "neighbour_loss", "speed_sensitivity")
_SHARES = frozenset({"overlap", "hiding", "speed_sensitivity"})
_ABOVE_0 = frozenset({"compute_s", "batch_per_gpu"})
_PAIRS = ("target", "other", "ratio")
_RING = ("small_s", "large_s", "per_rack")


def profile_columns(profiles: ProfileTable) -> Iterator[tuple[str, Any]]:
    """Yield every column by its name, also those of pairs and of the ring; None for a missing one."""
    for name, value in vars(profiles).items():
        if name == "pairs" and value is not None:
            yield from ((f"pairs.{column}", entries) for column, entries in vars(value).items())
        elif name == "ring" and value is not None:
            yield name, _ring_column(value)
        else:
            yield name, value


def write_profiles(message: Any, profiles: ProfileTable) -> None:
    """Put the profiles into a message of RawSnapshot."""

    def write(name: str, values: npt.NDArray[Any]) -> None:
        write_column(message, "profiles", name, values)

    message.SetInParent()  # present even if it is empty
    message.model.extend(profiles.models)
    write("locality", profiles.locality.reshape(-1))
    write("of_job", profiles.of_job + 1)
    for name in _COLUMNS:
        write(name, getattr(profiles, name))
    for name in (*_MORE, "job_batch_per_gpu"):
        if getattr(profiles, name) is not None:
            write(name, getattr(profiles, name))
    if profiles.pairs is not None:
        message.pair_kind.extend(profiles.pairs.kinds)
        for name in _PAIRS:
            write(f"pair_{name}", getattr(profiles.pairs, name))
    if profiles.ring is not None:
        write("ring", _ring_column(profiles.ring))


def read_profiles(message: Any, num_jobs: int) -> ProfileTable:
    """Return the profiles in a message of RawSnapshot with `num_jobs` jobs. Raises WireError."""
    models = distinct_names("profiles.model", message.model)
    of_job = _read(message, "of_job", num_jobs) - 1
    check("profiles.of_job", of_job < len(models), of_job + 1, f"beyond the {len(models)} models")
    columns = {name: _numbers(message, name, len(models)) for name in _COLUMNS}
    columns |= {name: _numbers(message, name, len(models)) for name in _MORE if getattr(message, name)}
    if message.job_batch_per_gpu:
        columns["job_batch_per_gpu"] = _numbers(message, "job_batch_per_gpu", num_jobs)
    return ProfileTable(
        models=models,
        of_job=of_job,
        locality=_numbers(message, "locality", _TIERS * len(models)).reshape(-1, _TIERS),
        pairs=_read_pairs(message),
        ring=_read_ring(message),
        **columns,
    )


def _read(message: Any, name: str, count: int | None) -> npt.NDArray[Any]:
    return read_column(message, "profiles", name, count)


def _numbers(message: Any, name: str, count: int) -> npt.NDArray[np.float64]:
    """Return a column of measurements: finite, or NaN."""
    values: npt.NDArray[np.float64] = _read(message, name, count)
    field = f"profiles.{name}"
    check(field, ~np.isinf(values), values, "not a finite number")
    if name in _ABOVE_0 or name in {"locality", "job_batch_per_gpu"}:
        check(field, ~(values <= 0), values, "not above 0")
    elif name == "neighbour_loss":
        # Below 0 is possible: within the error of measurement a job can be faster beside another one.
        check(field, ~(values > 1), values, "more than 1, which is all of the throughput")
    else:
        check(field, ~(values < 0), values, "negative")
    if name in _SHARES:
        check(field, ~(values > 1), values, "more than 1")
    return values


def _read_pairs(message: Any) -> Pairs | None:
    kinds = distinct_names("profiles.pair_kind", message.pair_kind)
    ratio = _read(message, "pair_ratio", None)
    rows = [_read(message, f"pair_{name}", len(ratio)) for name in ("target", "other")]
    for name, row in zip(("target", "other"), rows, strict=True):
        check(f"profiles.pair_{name}", row < len(kinds), row, f"beyond the {len(kinds)} kinds")
    check("profiles.pair_ratio", (ratio > 0) & np.isfinite(ratio), ratio, "not a finite number above 0")
    return Pairs(kinds, rows[0], rows[1], ratio) if len(ratio) else None


def _ring_column(ring: RingTime) -> npt.NDArray[np.float64]:
    return np.array([getattr(ring, name) for name in _RING])


def _read_ring(message: Any) -> RingTime | None:
    if not message.ring:
        return None
    numbers = _read(message, "ring", None)
    if len(numbers) != len(_RING):
        refuse("profiles.ring", f"has {len(numbers)} entries, not {len(_RING)}")
    check("profiles.ring", (numbers >= 0) & np.isfinite(numbers), numbers, "not a finite number, 0 or more")
    return RingTime(*numbers.tolist())
