"""Limits what the reports of one node add to the store, so that an agent that lies cannot fill the disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from controller.profiles.sightings import ProfileRow, Sighting
from controller.profiles.windows import RunKey

PERIOD_S = 600.0
JOBS_OF_A_NODE = 300
"""Jobs of one node, each of which sends a report at every report interval."""
FROM_OUTBOX = 30_000
"""Reports that may have waited in the agent while the controller was away."""
MAX_JOBS = 1_000
"""Jobs within a period that one node reports, and that Slurm has not shown there: those that end before the next snapshot."""
MAX_RESTARTS = 20
"""Restarts of a job within a period that one node reports, besides the one that Slurm shows: processes claim these numbers."""

Claim = tuple[int, int | None]
"""A job, and the restart that its process claims; None: only the job is named."""


@dataclass(slots=True)
class _Taken:
    """Reports of one node within the present period."""

    reports: int = 0
    unknown: set[int] = field(default_factory=set)
    """Jobs that Slurm had not shown there. Bound: `MAX_JOBS`."""
    restarts: dict[int, set[int]] = field(default_factory=dict)
    """Claimed restarts by job. Bound: these jobs and those of Slurm, `MAX_RESTARTS` each."""


@dataclass(frozen=True, slots=True)
class _Counted:
    """Additions of one report to `_Taken`."""

    taken: _Taken
    unknown: frozenset[int]
    restarts: frozenset[tuple[int, int]]

    def take_back(self) -> None:
        self.taken.reports -= 1
        self.taken.unknown -= self.unknown
        for job_id, restart in self.restarts:
            self.taken.restarts[job_id].discard(restart)


class Intake:
    """Invariant: within a period at most `max_reports` reports of a node are stored, about `MAX_JOBS` jobs that Slurm has not shown
    there at most, and about `MAX_RESTARTS` restarts of a job at most. Only reports that are in the store are counted."""

    def __init__(self, report_interval_s: float = 5.0) -> None:
        self.max_reports = int(PERIOD_S / report_interval_s * JOBS_OF_A_NODE) + FROM_OUTBOX
        self._period: int | None = None
        self._of_node: dict[str, _Taken] = {}
        """Bound: the nodes that have reported within the period."""
        self._present: dict[str, set[int]] = {}
        """Jobs that Slurm has shown on each node within a period of its snapshots. Bound: the jobs of Slurm within it."""
        self._before: dict[str, set[int]] = {}
        """Those of the period before, of which reports may still come. Bound: as for `_present`."""
        self._present_period: int | None = None
        self._restarts: Mapping[int, int] = {}
        """Restart of each job that Slurm shows now."""
        self._counted: list[_Counted] = []
        """Reports of the present transaction. Bound: its reports."""
        self._refused: list[str] = []
        """Nodes of reports that the present transaction leaves out. Bound: its reports."""
        self._left_out: Counter[str] = Counter()
        """Reports that were left out since the last `left_out`, by node. Bound: the nodes."""

    def note_present(self, time_s: float, jobs_by_node: Mapping[str, Iterable[int]], runs: Iterable[RunKey]) -> None:
        """Note the jobs that Slurm shows on each node, and their present runs: the limits on jobs do not hold for these."""
        if (period := int(time_s // PERIOD_S)) != self._present_period:
            self._present_period, self._before, self._present = period, self._present, {}
        self._restarts = {run.job_id: run.restart for run in runs}
        for node, jobs in jobs_by_node.items():
            shown = set(jobs)
            self._present.setdefault(node, set()).update(shown)
            if node in self._of_node:
                self._of_node[node].unknown -= shown

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count the reports of one transaction; none of them when it fails, since they will be stored by another one."""
        self._counted, self._refused = [], []
        try:
            yield
        except BaseException:
            for counted in self._counted:
                counted.take_back()
            raise
        else:
            self._left_out.update(self._refused)
        finally:
            self._counted, self._refused = [], []

    def left_out(self) -> Counter[str]:
        """Return how many reports were left out since the last call, by node."""
        found, self._left_out = self._left_out, Counter()
        return found

    def permits(self, node: str, claims: Collection[Claim], time_s: float) -> bool:
        """Count a report about these runs, and return whether it may be stored."""
        self._begin(int(time_s // PERIOD_S))
        taken = self._of_node.setdefault(node, _Taken())
        present = self._present.get(node, set()) | self._before.get(node, set())
        unknown = frozenset(job_id for job_id, _ in claims if job_id not in present and job_id not in taken.unknown)
        restarts = frozenset(
            (job_id, restart)
            for job_id, restart in claims
            if restart is not None
            and restart != self._restarts.get(job_id)
            and restart not in taken.restarts.get(job_id, ())
        )
        if (
            taken.reports >= self.max_reports
            or (unknown and len(taken.unknown) + len(unknown) > MAX_JOBS)
            or any(len(taken.restarts.get(job_id, ())) >= MAX_RESTARTS for job_id, _ in restarts)
        ):
            self._refused.append(node)
            return False
        taken.reports += 1
        taken.unknown |= unknown
        for job_id, restart in restarts:
            taken.restarts.setdefault(job_id, set()).add(restart)
        self._counted.append(_Counted(taken, unknown, restarts))
        return True

    def _begin(self, period: int) -> None:
        """Begin another period, also when the clock was set back."""
        if period != self._period:
            self._period = period
            self._of_node.clear()


def claims_in(profile: ProfileRow | None, found: Sighting | None) -> set[Claim]:
    """Return the run that a report is about, as it claims, or the jobs whose processes it lists."""
    if profile is not None:
        return {(profile.run.job_id, profile.run.restart)}
    if found is None:
        return set()
    if found.sample is None:
        return {(job_id, None) for job_id in found.present}
    return {(found.sample.job_id, found.sample.claimed_restart)}
