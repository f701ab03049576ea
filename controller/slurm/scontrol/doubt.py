"""Jobs that a line break in a user's text put in doubt: which of them are read by their ids, and what is known of the others."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping
from itertools import chain

from controller.slurm.model.job import SlurmJob
from controller.slurm.records import JobRecord
from controller.slurm.scontrol.incremental import JobReading, keep_identity


class JobsInDoubt:
    """Jobs in doubt as of the last reading.

    Invariant: a job that was known keeps its last record until it is read, or until a reading has neither it nor a doubt about it.
    However many jobs users put in doubt, a snapshot reads at most `most` of them, and none while nothing changes.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._alone: dict[int, JobRecord | None] = {}
        """Records that were read by their ids, those that were read longest ago first. None: Slurm has no such job. Bound: the ids
        in doubt in the last reading."""
        self._former: dict[int, JobRecord] = {}
        """Records from before the doubt, of jobs that have not been read since. Bound: the ids in doubt in the last reading."""
        self._doubtful = b""
        self.unread: frozenset[int] = frozenset()
        """Ids in doubt that were to be read and were not, because there are too many: their records are old, or missing."""

    @property
    def records(self) -> list[JobRecord]:
        """All records of jobs in doubt, old ones too, those that were read longest ago first."""
        return list(self._former.values()) + [record for record in self._alone.values() if record is not None]

    @property
    def fresh(self) -> list[JobRecord]:
        """The records that are as new as the last reading."""
        return [record for record in self.records if record.raw_id not in self.unread]

    def with_others(self, jobs: tuple[SlurmJob, ...]) -> tuple[SlurmJob, ...]:
        """Return jobs beyond doubt and those in doubt. Of a task that has got a record of its own, the old one is left out."""
        found = [*jobs, *(job for record in self.fresh for job in record.jobs)]
        old = [record for record in self.records if record.raw_id in self.unread]
        if old:
            newest = {job.key.job_id: job for record in old for job in record.jobs}
            found += [newest[job_id] for job_id in newest.keys() - {job.key.job_id for job in found}]
        return tuple(found)

    def turn(self, reading: JobReading) -> list[int]:
        """Return the ids to read now.

        First come known jobs that have not been read since the doubt, then ids beside a true submit time, then those that a text
        may have made up, then jobs whose records are oldest. Each of these has a quarter of the turn in any case, and chance picks
        among ids that were not known: so no user can choose jobs that are never read.
        """
        contested = reading.contested
        unseen = contested - self._alone.keys()
        # At once, because the queries may fail, and the next reading does not know what was known before this one.
        self._former |= {number: record for number, record in reading.former.items() if number in unseen}
        if not unseen and reading.doubtful == self._doubtful:
            return []
        if len(contested) <= self._most:
            return [*sorted(unseen), *(number for number in self._alone if number in contested)]
        waiting = [number for number in self._former if number in unseen]
        # Also those that Slurm did not have before: a text may name ids that Slurm has yet to give.
        new = unseen.union(n for n in reading.likely if self._alone.get(n) is None).difference(waiting)
        read = [number for number in self._alone if number in contested]
        again = [number for number in read if self._alone[number] is not None]
        groups = [waiting, _shuffled(new & reading.likely), _shuffled(new - reading.likely), again]
        first = [number for group in groups for number in group[: self._most // len(groups)]]
        return list(dict.fromkeys(chain(first, *groups, read)))[: self._most]

    def take(self, reading: JobReading, turn: Collection[int], found: Mapping[int, JobRecord]) -> None:
        """Take the answers to the queries for these ids."""
        contested = reading.contested
        known = {number: record for number, record in self._alone.items() if number in contested}
        former = {number: record for number, record in self._former.items() if number in contested}
        for number in turn:
            before = known.pop(number, None) or former.pop(number, None)
            record = found.get(number)
            known[number] = None if record is None else keep_identity(record, before)
        self._alone, self._former = known, former
        complete = len(turn) == len(contested)
        if turn:
            self._doubtful = reading.doubtful if complete else b""
        # An id that Slurm did not have is none of them. A job that gets it later is in the queue, or is found in its turn.
        left = contested.difference(turn) if turn else ()
        self.unread = frozenset(number for number in left if number not in known or known[number] is not None)

    def note(self, records: Iterable[JobRecord]) -> None:
        """Take records that were read between two readings, to make a change or to confirm it."""
        noted = {
            record.raw_id: record for record in records if record.raw_id in self._alone or record.raw_id in self._former
        }
        for number, record in noted.items():
            before = self._alone.pop(number, None) or self._former.pop(number, None)
            self._alone[number] = keep_identity(record, before)
        self.unread = self.unread.difference(noted)


def _shuffled(numbers: Collection[int]) -> list[int]:
    return random.sample(sorted(numbers), len(numbers))
