"""A trace: the jobs that came to a cluster, as columns, in the order in which they came.

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
"""No time in a trace is longer (126 years): a submit time and a duration still add up in 64 bits of nanoseconds."""


@dataclass(frozen=True, eq=False)
class Trace:
    """Jobs sorted by submit time; those of one instant in the order of their file. `Trace.of` makes one.

    Every column has one entry a job. Times are whole nanoseconds, so that sums over years are exact. Arrays are not
    writable: a trace is shared between runs.
    """

    name: str
    """What it is called in reports: the file's stem, or the generator and its seed."""
    job_ids: tuple[str, ...]
    """Unique."""
    submit_ns: IntColumn
    """0 or more."""
    num_gpus: IntColumn
    """GPUs that the job asks for: at least 1."""
    duration_ns: IntColumn
    """Run time alone, at `num_gpus` and the best locality: more than 0."""
    limit_ns: IntColumn
    """The user's time limit; -1 where it is not known."""
    preemptible: BoolColumn
    """Whether the job may be stopped and started again; true unless the trace says otherwise."""
    min_gpus: IntColumn
    """The smallest size that the job may be given; `num_gpus` unless the trace says otherwise."""
    max_gpus: IntColumn
    """The largest size that the job may be given; `num_gpus` unless the trace says otherwise."""
    batch_size: IntColumn
    """Samples a step, over all GPUs; -1 where it is not known."""
    user: tuple[str, ...]
    """Like `vc`, `status` and `model`: an empty text is not known."""
    vc: tuple[str, ...]
    """Virtual cluster, partition or queue."""
    status: tuple[str, ...]
    """How the job ended, in the words of its log."""
    model: tuple[str, ...]
    """What it trains."""
    file_rows: IntColumn
    """Where the job stood in its file, from 0: what `head` counts by."""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Columns that nobody here knows, by name, as text."""

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
        """The trace of these columns, which stand in the order of their file. Raises ValueError for columns that are no trace.

        `ids_are_unique` says that the caller has seen to that, which saves a look at each.
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
        """Raises ValueError for what no reader or generator may let through: they name the line, here is the last net."""
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
    def elastic(self) -> bool:
        """Whether some job may be given another number of GPUs than it asks for."""
        return bool((self.min_gpus < self.max_gpus).any())

    def take(self, rows: npt.ArrayLike) -> Trace:
        """The jobs at these positions, in the order given (which must be one of submit times)."""
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
        """The jobs of the first `limit` rows of its file, which need not be the first to be submitted."""
        if limit >= len(self):
            return self
        last = np.partition(self.file_rows, limit)[limit]
        return self.take(self.file_rows < last)

    def fitting(self, total_gpus: int) -> tuple[Trace, int]:
        """The jobs that a cluster of so many GPUs can hold, and how many it never can."""
        fits = self.num_gpus <= total_gpus
        dropped = len(self) - int(fits.sum())
        return (self.take(fits), dropped) if dropped else (self, 0)

    def from_zero(self) -> Trace:
        """The same with the first submit at time 0."""
        if not len(self) or not self.submit_ns[0]:
            return self
        return replace(self, submit_ns=self.submit_ns - self.submit_ns[0])

    def same_jobs(self, other: Trace) -> bool:
        """Whether both hold the same jobs in the same order, whatever they are called and wherever they stood in their files."""
        return all(
            np.array_equal(mine, theirs) if isinstance(mine, np.ndarray) else mine == theirs
            for mine, theirs in (
                (getattr(self, each.name), getattr(other, each.name))
                for each in fields(self)
                if each.name not in {"name", "file_rows"}
            )
        )


def _integers(values: npt.ArrayLike | None, rows: int = 0) -> IntColumn:
    """A column of its own; not known throughout, where no values are given."""
    if values is None:
        return np.full(rows, NOT_KNOWN, dtype=np.int64)
    return np.array(values, dtype=np.int64)


def _outside(column: IntColumn, least: int, most: int | None) -> bool:
    return bool(len(column) and (int(column.min()) < least or (most is not None and int(column.max()) > most)))
