"""The traces for training, for validation and for tests.

A workload gives a different trace for every seed, and the three sets have no seed in common. A user's trace is cut in time: the
first 60 % of its jobs are for training, the next 20 % for validation, the last 20 % for tests. Each part is cut into windows of
about as many jobs as an episode has. Those for training and validation begin on an empty cluster, as episodes do. To compare
policies, the part for tests is run whole, or in windows that begin as full as the cluster was then (`TracePart`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Self, overload

import numpy as np

from policies.learned.training.systems import TEST_SEEDS, Places, TrainingSetup, WorkloadSpec
from policies.model import BoolColumn, IntColumn
from simulator.cluster.cluster import Cluster
from simulator.engine.job_sizes import JobSizes
from simulator.errors import TraceError
from simulator.runs.warm_starts import WARM_UP, Part, next_instant, parts_of
from simulator.traces.files import first_bytes
from simulator.traces.formats import FORMATS, load_log
from simulator.traces.generators import from_text, generate
from simulator.traces.generators.workload import Workload
from simulator.traces.read import read_trace
from simulator.traces.trace import Trace

TRAINING, VALIDATION = 0.6, 0.2
"""Shares of a user's trace for training and for validation; the rest is for tests."""
FEWEST = 30
"""Minimum number of jobs in a user's trace: fewer give no meaningful validation."""
TESTS = 5
"""Default number of seeds of a test."""
NOTHING_LATER = "no job was submitted after those for training and validation"
NOTHING_PLACED = "the system can place none of the jobs for tests"
_READ = ("epochs", "num_ps", "length_steps")
"""Columns that environments and states read beside those of every trace."""
_SACCT = b"JobIDRaw|"


@dataclass(frozen=True, eq=False, slots=True)
class TracePart:
    """A part of a user's trace on which policies are compared; the jobs before it fill the cluster."""

    trace: Trace
    part: Part

    @property
    def name(self) -> str:
        """Name of the trace, with the jobs of the part."""
        return f"{self.trace.name}, {self.part.text()}"


@dataclass(frozen=True)
class DataSets:
    """Traces by purpose."""

    training: Sequence[Trace]
    validation: Sequence[Trace]
    tests: Sequence[Trace]
    says: str
    """Description of the data, in a phrase."""
    sha256: str
    notes: tuple[str, ...] = ()
    """Remarks for the user: which jobs were left out."""
    notes_on_episodes: tuple[str, ...] = ()
    """Remarks on jobs that are as in the user's trace only where policies are compared on `parts`."""
    each: int | None = None
    """Number of test traces of one seed; None for users' traces, which have no seeds."""
    parts: Sequence[TracePart] = ()
    """Parts of users' traces that `tests` are cut from, as policies are compared on them; empty for drawn traces."""
    lacking: str = ""
    """The first trace, where traces were cut and no job is left for training or for validation; empty where there are both."""

    def of_training(self) -> Self:
        """Return these data sets for a training. Raises TraceError if no job is left for it; comparisons need none."""
        if self.lacking:
            raise TraceError(
                "no job is left for training or for validation", mend="give a longer trace", path=self.lacking
            )
        return self

    def some_tests(self, seeds: int | None) -> Sequence[Trace]:
        """Return the test traces of so many seeds, or so many of the users' traces; None: `TESTS` seeds, or all users' traces."""
        return self.tests[:seeds] if self.each is None else self.tests[: (seeds or TESTS) * self.each]


class DrawnTraces(Sequence[Trace]):
    """Traces of W workloads, generated when they are read: trace n is of workload n mod W.

    Invariant: equal workloads, seeds and numbers give equal traces.
    """

    def __init__(self, workloads: Sequence[tuple[str, Workload]], seeds: Sequence[int]) -> None:
        self._workloads = workloads
        self._seeds = seeds

    def __len__(self) -> int:
        return len(self._workloads) * len(self._seeds)

    @overload
    def __getitem__(self, number: int) -> Trace: ...
    @overload
    def __getitem__(self, number: slice) -> list[Trace]: ...
    def __getitem__(self, number: int | slice) -> Trace | list[Trace]:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        if not 0 <= number < len(self):
            raise IndexError(number)
        which, seed = number % len(self._workloads), number // len(self._workloads)
        like, workload = self._workloads[which]
        return generate(like, replace(workload, seed=int(self._seeds[seed])))


def of_setup(setup: TrainingSetup, cluster: Cluster) -> DataSets:
    """Return the data sets of the setup's workloads on that cluster. Raises TraceError."""
    if not setup.workloads:
        raise TraceError("there are no jobs", mend="give --traces")
    workloads = [(each.generator, _workload(each, cluster)) for each in setup.workloads]
    training, validation, tests = (
        DrawnTraces(workloads, seeds) for seeds in (setup.training_seeds, setup.validation_seeds, TEST_SEEDS)
    )
    for number in range(len(workloads)):
        # A workload that cannot be generated for this cluster fails here, not in the worker of an environment.
        training[number]
    content = repr((workloads, list(setup.validation_seeds), _range(setup.training_seeds)))
    says = _says(workloads)
    return DataSets(
        training, validation, tests, says, hashlib.sha256(content.encode()).hexdigest(), each=len(workloads)
    )


def of_files(
    texts: Sequence[str],
    cluster: Cluster,
    window: int,
    *,
    whole: bool = False,
    windows_of_tests: bool = True,
    places: Places | None = None,
    one_by_one: bool = False,
) -> DataSets:
    """Return the data sets of users' traces; with `whole`, all jobs are for tests. Raises TraceError.

    Policies are compared on windows of each trace, or on one part of each without `windows_of_tests`. Jobs that `places` refuses
    are in no episode, and in the parts on which policies are compared. With `one_by_one`, jobs of episodes run from one GPU on, and
    those of the parts from their minimum on.
    """
    compared: list[TracePart] = []
    training: list[Trace] = []
    validation: list[Trace] = []
    tests: list[Trace] = []
    notes: list[str] = []
    notes_on_episodes: list[str] = []
    digest = hashlib.sha256()
    jobs = 0
    for text in texts:
        trace, left_out = read_any(text)
        digest.update(_content(trace))
        trace, too_large = possible(trace, cluster)
        left_out |= {"jobs that can never fit on the cluster": too_large} if too_large else {}
        notes += [f"{text}: left out: {count:,} {why}" for why, count in left_out.items()]
        if len(trace) < FEWEST:
            raise TraceError(
                f"has {len(trace)} jobs to learn from", mend=f"give a trace of at least {FEWEST}", path=text
            )
        jobs += len(trace)
        episodes, remarks = _of_episodes(trace, cluster, places, one_by_one=one_by_one)
        notes_on_episodes += [f"{text}: {remark}" for remark in remarks]
        digest.update("".join(remarks).encode())
        for part, rows in zip((training, validation, tests), _cut(len(trace), whole=whole), strict=True):
            part.extend(windows(episodes.trace.take(rows[episodes.placed[rows]]), window))
        parts = _compared(trace, window if windows_of_tests else len(trace), whole=whole)
        compared += [TracePart(trace, part) for part in parts]
        notes += [] if parts else [f"{text}: policies are not compared on it: {NOTHING_LATER}"]
    digest.update(f"{TRAINING} {VALIDATION} {window} {whole}".encode())
    cut = f"the first {TRAINING:.0%}, the next {VALIDATION:.0%} for validation, the rest for tests"
    says = f"{', '.join(texts)} ({jobs:,} jobs: {'all for tests' if whole else cut})"
    return DataSets(
        training,
        validation,
        tests,
        says,
        digest.hexdigest(),
        tuple(notes),
        tuple(notes_on_episodes),
        parts=tuple(compared),
        lacking="" if whole or (training and validation) else texts[0],
    )


def read_any(text: str) -> tuple[Trace, dict[str, int]]:
    """Read FILE or FORMAT:FILE; return the trace and how many rows were left out, by reason. A file of sacct is recognised by its
    first line.

    Raises TraceError.
    """
    form, colon, rest = text.partition(":")
    if colon and form in FORMATS:
        loaded = load_log(form, [Path(rest)] if rest else [])
        return loaded.trace, dict(loaded.skipped)
    path = Path(text)
    if path.is_file() and first_bytes(path, len(_SACCT)) == _SACCT:
        loaded = load_log("sacct", [path])
        return loaded.trace, dict(loaded.skipped)
    return read_trace(path).from_zero(), {}


def possible(trace: Trace, cluster: Cluster) -> tuple[Trace, int]:
    """Return the jobs that every policy could place on the empty cluster, and the number of others."""
    fits = JobSizes(trace, cluster).always_possible()
    return trace.take(fits), int((~fits).sum())


def windows(trace: Trace, jobs: int) -> list[Trace]:
    """Cut the trace into windows of about so many jobs, each with its first submission at 0."""
    if not len(trace):
        return []
    pieces = np.array_split(np.arange(len(trace)), max(1, round(len(trace) / jobs)))
    return [trace.take(rows).from_zero() for rows in pieces]


def _cut(jobs: int, *, whole: bool) -> list[IntColumn]:
    """Return the rows for training, for validation and for tests."""
    shares = (0.0, 0.0, 0.0, 1.0) if whole else (0.0, TRAINING, TRAINING + VALIDATION, 1.0)
    return [np.arange(begin, end) for begin, end in pairwise(round(jobs * each) for each in shares)]


@dataclass(frozen=True, eq=False, slots=True)
class _Episodes:
    """The jobs of a trace as episodes have them. Invariant: the trace has the rows of the user's."""

    trace: Trace
    placed: BoolColumn
    """True for jobs that the environment can place; the others are in no episode."""


def _of_episodes(
    trace: Trace, cluster: Cluster, places: Places | None, *, one_by_one: bool
) -> tuple[_Episodes, list[str]]:
    """Return the jobs as episodes have them, and a remark on each difference from the user's trace."""
    remarks = []
    sizes = [] if places is None else np.unique(trace.num_gpus).tolist()
    refused = [gpus for gpus in sizes if places is not None and not places(cluster.gpus, gpus)]
    placed: BoolColumn = ~np.isin(trace.num_gpus, refused)
    if refused:
        shown = ", ".join(map(str, refused[:5])) + (", ..." if len(refused) > 5 else "")
        jobs = f"{int((~placed).sum()):,} jobs"
        remarks.append(f"left out of episodes: {jobs} of a number of GPUs that the system cannot place ({shown})")
    if one_by_one and (larger := int((trace.min_gpus > 1).sum())):
        remarks.append(f"{larger:,} jobs that need more than one GPU run from one GPU on in episodes")
        trace = replace(trace, min_gpus=np.ones_like(trace.min_gpus))
    return _Episodes(trace, placed), remarks


def _compared(trace: Trace, window: int, *, whole: bool) -> list[Part]:
    """Return the parts of about so many jobs on which policies are compared; none if no job was submitted after those for training
    and validation.

    Invariant: without `whole`, no job for training or validation is in a part. So jobs of one instant are left out where the cut
    divides them.
    """
    first = round(len(trace) * (WARM_UP if whole else TRAINING + VALIDATION))
    if not whole:
        first = next_instant(trace, first)
    return parts_of(trace, first, round((len(trace) - first) / window)) if first < len(trace) else []


def _workload(jobs: WorkloadSpec, cluster: Cluster) -> Workload:
    texts = {name: _text(value) for name, value in jobs.parameters.items()}
    return from_text(jobs.generator, {**texts, "cluster_gpus": str(cluster.num_gpus)})


def _text(value: object) -> str:
    return "/".join(map(str, value)) if isinstance(value, tuple | list | range) else str(value)


def _says(workloads: Sequence[tuple[str, Workload]]) -> str:
    """Describe the workloads: what they have in common once, then what is particular to each."""
    kinds: dict[str, list[str]] = {}
    for like, workload in workloads:
        own = [mix] if (mix := getattr(workload, "mix", "")) else []
        own += [f"load {workload.load:g}"] if workload.load is not None else []
        kinds.setdefault(f"{like}, {workload.jobs} jobs, {workload.arrivals}", []).append(" at ".join(own))
    return " and ".join(f"{kind} ({'; '.join(own)})" if any(own) else kind for kind, own in kinds.items())


def _range(seeds: Sequence[int]) -> Any:
    return seeds if isinstance(seeds, range) else list(seeds)


def _content(trace: Trace) -> bytes:
    """Return the content of a trace that affects a run, for a digest."""
    columns = (trace.submit_ns, trace.num_gpus, trace.duration_ns, trace.batch_size, trace.preemptible)
    found = b"".join(np.ascontiguousarray(each).tobytes() for each in columns) + "\n".join(trace.model).encode()
    # Digests of traces without these columns are as they were before these counted.
    for name, sizes in (("min_gpus", trace.min_gpus), ("max_gpus", trace.max_gpus)):
        if (sizes != trace.num_gpus).any():
            found += f"\n{name} {sizes.tolist()}".encode()
    for name in _READ:
        if name in trace.extra:
            found += f"\n{name} {list(trace.extra[name])}".encode()
    return found
