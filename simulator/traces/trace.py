"""A trace: the jobs that arrived at a cluster, as columns, in order of arrival.

Nothing here does I/O; `simulator.traces.read` and `.write` do, and `.formats` and `.generators` make traces from elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
import numpy.typing as npt

from policies.model import BoolColumn, IntColumn

NS_PER_S = 1_000_000_000
NOT_KNOWN = -1
MAX_TIME_S = 4_000_000_000
"""Maximum time in a trace (126 years): submission plus duration fit into 64 bits of nanoseconds."""


@dataclass(frozen=True, eq=False)
class Trace:
    """Jobs sorted by submission; jobs of one instant are in the order of their file. `Trace.of` makes a trace.

    Every column has one entry per job. Times are whole nanoseconds, so that sums over years are exact. Arrays are
    read-only: a trace is shared between runs.
    """

    name: str
    """Name in reports: the file's stem, or the generator and its seed."""
    job_ids: tuple[str, ...]
    """Ids of the jobs, unique."""
    submit_ns: IntColumn
    """Submission, 0 or more."""
    num_gpus: IntColumn
    """Requested GPUs: at least 1."""
    duration_ns: IntColumn
    """Run time alone, at `num_gpus` and the best locality: more than 0."""
    limit_ns: IntColumn
    """The user's time limit; -1 when not known."""
    preemptible: BoolColumn
    """True if the job may be stopped and started again, which is the default."""
    min_gpus: IntColumn
    """Smallest size of the job; by default `num_gpus`."""
    max_gpus: IntColumn
    """Largest size of the job; by default `num_gpus`."""
    batch_size: IntColumn
    """Examples per step over all GPUs; -1 when not known."""
    user: tuple[str, ...]
    """User; as for `vc`, `status` and `model`, an empty text means not known."""
    vc: tuple[str, ...]
    """Virtual cluster, partition or queue."""
    status: tuple[str, ...]
    """Final status of the job, in the words of its log."""
    model: tuple[str, ...]
    """Name of the network that it trains."""
    file_rows: IntColumn
    """Row of the job in its file, from 0, by which `head` counts."""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Unknown columns by name, as text."""

    @classmethod
    def of(
        cls,
        name: str,
        job_ids: Sequence[str],
        submit_ns: npt.ArrayLike,
        num_gpus: npt.ArrayLike,
        duration_ns: npt.ArrayLike,
        *,
        limit_ns: npt.ArrayLike | None = None,
        preemptible: npt.ArrayLike | None = None,
        min_gpus: npt.ArrayLike | None = None,
        max_gpus: npt.ArrayLike | None = None,
        batch_size: npt.ArrayLike | None = None,
        user: Sequence[str] | None = None,
        vc: Sequence[str] | None = None,
        status: Sequence[str] | None = None,
        model: Sequence[str] | None = None,
        extra: Mapping[str, Sequence[str]] | None = None,
        ids_are_unique: bool = False,
    ) -> Trace:
        """Return the trace of these columns, in the order of their file. Raises ValueError for columns that are not a trace.

        With `ids_are_unique` the caller guarantees that no id occurs twice, and the ids are not checked.
        """
        rows = len(job_ids)
        gpus = _integers(num_gpus)
        nothing = ("",) * rows
        unsorted = cls(
            name=name,
            job_ids=tuple(job_ids),
            submit_ns=_integers(submit_ns),
            num_gpus=gpus,
            duration_ns=_integers(duration_ns),
            limit_ns=_integers(limit_ns, rows),
            preemptible=np.ones(rows, dtype=np.bool_) if preemptible is None else np.array(preemptible, dtype=np.bool_),
            min_gpus=gpus if min_gpus is None else _integers(min_gpus),
            max_gpus=gpus if max_gpus is None else _integers(max_gpus),
            batch_size=_integers(batch_size, rows),
            user=nothing if user is None else tuple(user),
            vc=nothing if vc is None else tuple(vc),
            status=nothing if status is None else tuple(status),
            model=nothing if model is None else tuple(model),
            file_rows=np.arange(rows, dtype=np.int64),
            extra={column: tuple(texts) for column, texts in (extra or {}).items()},
        )
        unsorted._check(ids_are_unique)
        if rows > 1 and (np.diff(unsorted.submit_ns) < 0).any():
            return unsorted.take(np.argsort(unsorted.submit_ns, kind="stable"))
        return unsorted

    def __post_init__(self) -> None:
        rows = len(self.job_ids)
        columns = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in {"name", "extra"}}
        for name, column in [*columns.items(), *self.extra.items()]:
            if len(column) != rows:
                raise ValueError(f"column {name} has {len(column)} entries for {rows} jobs")
            if isinstance(column, np.ndarray):
                column.setflags(write=False)

    def _check(self, ids_are_unique: bool) -> None:
        """Raise ValueError for values that readers and generators must refuse themselves, with the line; this is the last check."""
        most_ns = MAX_TIME_S * NS_PER_S
        wrong = {
            "job_ids that are not unique": not ids_are_unique and len(set(self.job_ids)) < len(self.job_ids),
            "a submit time below 0 or beyond 126 years": _outside(self.submit_ns, 0, most_ns),
            "a duration that is not above 0, or beyond 126 years": _outside(self.duration_ns, 1, most_ns),
            "min_gpus below 1": _outside(self.min_gpus, 1, None),
            "num_gpus below min_gpus": bool((self.num_gpus < self.min_gpus).any()),
            "max_gpus below num_gpus": bool((self.max_gpus < self.num_gpus).any()),
        }
        problems = [problem for problem, there in wrong.items() if there]
        if problems:
            raise ValueError(f"trace {self.name!r} has {' and '.join(problems)}")

    def __len__(self) -> int:
        return len(self.job_ids)

    @property
    def file_length(self) -> int:
        """Number of rows of the file, up to that of its last job here.

        A number that is drawn for each of these rows is a job's own: it does not depend on which other jobs the trace has.
        """
        return int(self.file_rows.max()) + 1 if len(self) else 0

    @property
    def elastic(self) -> bool:
        """True if some job may get another number of GPUs than it requests."""
        return bool((self.min_gpus < self.max_gpus).any())

    def take(self, rows: npt.ArrayLike) -> Trace:
        """Return the jobs at these positions, in the given order (which must be by submission)."""
        chosen = np.asarray(rows)
        chosen = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen.astype(np.int64)
        positions = chosen.tolist()

        def taken(column: object) -> object:
            if isinstance(column, np.ndarray):
                return column[chosen]
            assert isinstance(column, tuple)
            return tuple(map(column.__getitem__, positions))

        columns = {
            each.name: taken(getattr(self, each.name)) for each in fields(self) if each.name not in {"name", "extra"}
        }
        extra = {name: taken(texts) for name, texts in self.extra.items()}
        return replace(self, **columns, extra=extra)  # type: ignore[arg-type] # the same types as before, column by column

    def head(self, limit: int) -> Trace:
        """Return the jobs of the first `limit` rows of its file, which need not be the first submissions."""
        if limit >= len(self):
            return self
        last = np.partition(self.file_rows, limit)[limit]
        return self.take(self.file_rows < last)

    def fitting(self, total_gpus: int) -> tuple[Trace, int]:
        """Return the jobs that fit on a cluster of so many GPUs, and the number of others."""
        fits = self.num_gpus <= total_gpus
        dropped = len(self) - int(fits.sum())
        return (self.take(fits), dropped) if dropped else (self, 0)

    def from_zero(self) -> Trace:
        """Return the trace with the first submission at time 0."""
        if not len(self) or not self.submit_ns[0]:
            return self
        return replace(self, submit_ns=self.submit_ns - self.submit_ns[0])

    def same_jobs(self, other: Trace) -> bool:
        """Return whether both have the same jobs in the same order; names and positions in files may differ."""
        return all(
            np.array_equal(mine, theirs) if isinstance(mine, np.ndarray) else mine == theirs
            for mine, theirs in (
                (getattr(self, each.name), getattr(other, each.name))
                for each in fields(self)
                if each.name not in {"name", "file_rows"}
            )
        )


def _integers(values: npt.ArrayLike | None, rows: int = 0) -> IntColumn:
    """Return a new column; all unknown if no values are given."""
    if values is None:
        return np.full(rows, NOT_KNOWN, dtype=np.int64)
    return np.array(values, dtype=np.int64)


def _outside(column: IntColumn, least: int, most: int | None) -> bool:
    return bool(len(column) and (int(column.min()) < least or (most is not None and int(column.max()) > most)))
