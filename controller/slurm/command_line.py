"""The command-line client: Slurm 22.05 and later through scontrol and scancel."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import structlog

from controller.errors import SlurmReplyError
from controller.slurm import changes
from controller.slurm.changes import Command, Found, Step, gone
from controller.slurm.client import (
    HOLD_MARK,
    Failure,
    Failures,
    JobKey,
    Phase,
    Pin,
    ResourceRequest,
    SlurmFacts,
    SlurmJob,
    SlurmNode,
    SlurmPartition,
    SlurmReservation,
    SlurmSnapshot,
)
from controller.slurm.incremental import JobTable, RowCache, keep_identity, parse_answer
from controller.slurm.parse import Clockface, JobRecord
from controller.slurm.parse_nodes import parse_node, parse_partition, parse_reservation, steady_node
from controller.slurm.run import CommandRunner, clip
from controller.slurm.scontrol import Scontrol, require_contact, sentence

log = structlog.get_logger(__name__)

_JOB_ID = re.compile(r"\d+(?:_\d+)?")
_SIGNAL = re.compile(r"[A-Z0-9]+")
_VERSION = re.compile(rb"(\d+)\.(\d+)\.(\d+)")
_SETTING = re.compile(r"(\S[^=]*?)\s*= (.*)")
_BULK = ("show job", "show node", "show partition", "show reservation")
_JOBS_READ_AS_FAST_AS_ONE_ALONE = 30
"""Measured: 1.2 ms for a job by its id, 35 us for each when all are read."""
_FEW = 8
_FRESH_S = 1.0
"""A job that was read so recently need not be read again before it is changed: afterwards it is read in any case."""
_ROUNDS = 4


class CommandLineClient:
    """A SlurmClient over a CommandRunner. See controller.slurm.client for what each verb promises.

    A change costs one process: commands for all jobs, then each of the jobs read back; nothing counts as done that the
    reading does not show. Not for use by several tasks at once: parsed objects are kept from one reading to the next.
    """

    def __init__(self, runner: CommandRunner, clock: Clockface, now: Callable[[], float] = time.time) -> None:
        self._runner = runner
        self._scontrol = Scontrol(runner)
        self._clock = clock
        self._now = now
        self._jobs = JobTable(clock)
        self._alone: dict[int, JobRecord] = {}
        self._memory = _Memory()
        self._complaints: set[str] = set()
        self._nodes: RowCache[SlurmNode] = RowCache(b"NodeName=", parse_node, steady_node)
        self._partitions: RowCache[SlurmPartition] = RowCache(b"PartitionName=", parse_partition, bytes)
        self._reservations: RowCache[SlurmReservation] = RowCache(
            b"ReservationName=", lambda text: parse_reservation(text, clock), bytes
        )

    # ---- reading

    async def facts(self) -> SlurmFacts:
        """Version, cluster name and settings."""
        answers = await self._scontrol.ask(["version", "show config"])
        version = _VERSION.search(answers.sections[0])
        settings = {
            match[1]: match[2].strip()
            for line in answers.sections[1].decode("utf-8", "replace").splitlines()
            if (match := _SETTING.fullmatch(line.strip()))
        }
        if version is None or "ClusterName" not in settings:
            raise SlurmReplyError(
                f"scontrol version, show config: not understood ({answers.complaints or 'no error message'}): "
                f"{clip(b''.join(answers.sections))}"
            )
        major, minor, micro = (int(part) for part in version.groups())
        return SlurmFacts((major, minor, micro), settings["ClusterName"], "command-line", settings)

    async def snapshot(self) -> SlurmSnapshot:
        """Read everything: the one bulk query."""
        time_s = self._now()
        answers = await self._scontrol.ask(_BULK)
        if answers.completed.status != 0:
            raise SlurmReplyError(f"scontrol {', '.join(_BULK)}: {answers.complaints or 'failed without a message'}")
        jobs, nodes, partitions, reservations = answers.sections
        return SlurmSnapshot(
            time_s=time_s,
            jobs=await self._take_jobs(jobs),
            nodes=self._nodes.update(nodes),
            partitions=self._partitions.update(partitions),
            reservations=self._reservations.update(reservations),
        )

    async def read(self, keys: Sequence[JobKey]) -> Mapping[JobKey, SlurmJob]:
        """Read these jobs only; those that are gone are left out."""
        return {key: found.job for key, found in (await self._find(keys)).items()}

    async def _take_jobs(self, section: bytes) -> tuple[SlurmJob, ...]:
        """The jobs of `show job`; those on lines in doubt are read again one by one."""
        reading = self._jobs.update(section)
        alone: dict[int, JobRecord] = {}
        if reading.contested:
            for record in await self._ask_for([str(job_id) for job_id in sorted(reading.contested)]):
                if not self._jobs.knows(record.raw_id):
                    alone[record.raw_id] = keep_identity(record, self._alone.get(record.raw_id))
        self._alone = alone
        self._memory.forget()
        self._memory.add(self._jobs.records)
        self._memory.add(alone.values())
        return reading.jobs + tuple(job for record in alone.values() for job in record.jobs)

    async def _find(self, keys: Sequence[JobKey], first: Sequence[Command] = ()) -> dict[JobKey, Found]:
        """Carry out commands, then read these jobs: the identity check of every verb, and its confirmation."""
        if not keys and not first:
            return {}
        for key in keys:
            if not _JOB_ID.fullmatch(key.job_id):
                raise ValueError(f"not a job id: {key.job_id!r}")
        ids = list(dict.fromkeys(key.job_id for key in keys))
        commands = [command.words for command in first]
        if len(ids) > _FEW + len(self._jobs) // _JOBS_READ_AS_FAST_AS_ONE_ALONE:
            answers = await self._scontrol.ask(["show job"], first=commands)
            await self._take_jobs(answers.sections[0])
        else:
            self._memory.add(await self._ask_for(ids, commands))
        found = {key: self._memory.get(key) for key in keys}
        return {key: known for key, known in found.items() if known is not None}

    async def _ask_for(self, ids: Sequence[str], first: Sequence[Sequence[str]] = ()) -> list[JobRecord]:
        """Records of these jobs and, of array tasks, of the others on the same record."""
        answers = await self._scontrol.ask([f"show job {job_id}" for job_id in ids], first=first)
        records: dict[int, JobRecord] = {}
        for job_id, section in zip(ids, answers.sections, strict=True):
            found = parse_answer(section, job_id, self._clock, self._complain)
            records.update((record.raw_id, record) for record in found)
            if not found:
                self._memory.drop(job_id)
        return list(records.values())

    def _complain(self, job_id: str, problem: str) -> None:
        """A job that is not understood is left out; it is said once."""
        if job_id not in self._complaints:
            self._complaints.add(job_id)
            log.warning("slurm_job_not_understood", job=job_id, problem=problem)

    # ---- changing

    async def hold(self, keys: Sequence[JobKey]) -> Failures:
        """Hold pending jobs and put HOLD_MARK into their admin comment (added, never overwritten)."""
        return await self._change(keys, lambda found: changes.hold_step(found, HOLD_MARK))

    async def unmark(self, keys: Sequence[JobKey], mark: str) -> Failures:
        """Take a token of ours out of the admin comment; everything else in it stays."""
        return await self._change(keys, lambda found: changes.unmark_step(found, mark))

    async def mark(self, keys: Sequence[JobKey], mark: str) -> Failures:
        """Add a token of ours to the admin comment; everything else in it stays."""
        return await self._change(keys, lambda found: changes.mark_step(found, mark))

    async def pin(self, pins: Sequence[Pin]) -> Failures:
        """Bind held jobs to nodes, and let them start as soon as they are released (begin time = now)."""
        by_key = {pin.key: pin for pin in pins}
        now_s = self._now()
        return await self._change(list(by_key), lambda found: changes.pin_step(found, by_key[found.job.key], now_s))

    async def unpin(self, originals: Mapping[JobKey, ResourceRequest]) -> Failures:
        """Give held jobs their own request back. See controller.slurm.changes for the little that Slurm cannot forget."""
        return await self._change(list(originals), lambda found: changes.unpin_step(found, originals[found.job.key]))

    async def set_begin_time(self, keys: Sequence[JobKey], begin_time_s: float | None) -> Failures:
        """Not before this time (seconds since the Unix epoch); None = now."""
        now_s = self._now()
        return await self._change(keys, lambda found: changes.begin_step(found.job, begin_time_s, now_s))

    async def release(self, keys: Sequence[JobKey]) -> Failures:
        """Take the hold off: Slurm may start the jobs from now on."""
        return await self._change(keys, changes.release_step)

    async def signal(self, keys: Sequence[JobKey], signal: str) -> Failures:
        """Send a signal to batch shell and tasks."""
        if not _SIGNAL.fullmatch(signal):
            raise ValueError(f"not a signal: {signal!r}")
        failures: dict[JobKey, Failure] = {}
        found = await self._find(keys)
        for key in keys:
            if key not in found:
                failures[key] = gone(key)
            elif (job := found[key].job).phase is not Phase.RUNNING:
                failures[key] = Failure(f"is {job.state}, not running")
            else:
                completed = await self._runner.run("scancel", ["--full", f"--signal={signal}", key.job_id])
                require_contact(completed)
                if completed.status != 0 or completed.stderr:
                    failures[key] = Failure(sentence(completed.stderr) or f"scancel ended with {completed.status}")
        return failures

    async def requeue_hold(self, keys: Sequence[JobKey]) -> Failures:
        """Stop running jobs and put them back into the queue, held and marked. Ended jobs are failures, never restarted.

        The mark comes first, so that no moment exists in which a job is held that nobody knows of. Slurm also requeues jobs
        that have just ended; it shows such a one as pending at once, where a job that was stopped is completing first. One
        that had ended is left held without our mark, for its owner or the operator to decide: to restart it by itself, or to
        cancel it, could each destroy something.
        """
        before = await self._find(keys)
        failures = {
            key: refusal for key in keys if (refusal := changes.requeue_refusal(before.get(key), key)) is not None
        }
        stoppable = [key for key in dict.fromkeys(keys) if key not in failures]
        failures.update(await self.mark(stoppable, HOLD_MARK))
        for key in stoppable:
            if key not in failures:
                failure = await self._requeue_one(before[key].job)
                if failure is not None:
                    failures[key] = failure
        return failures

    async def _requeue_one(self, job: SlurmJob) -> Failure | None:
        """Look, stop and look again within one process, a millisecond apart."""
        job_id = job.key.job_id
        answers = await self._scontrol.ask([f"show job {job_id}", f"requeuehold {job_id}", f"show job {job_id}"])
        before, after = (self._one(answers.sections[number], job_id) for number in (0, 2))
        self._memory.forget()
        if after is None:
            return gone(job.key)
        if before is not None and after.restarts > before.restarts and after.phase is not Phase.PENDING:
            return None if after.held else Failure("was requeued, but is not held")
        await self.unmark([after.key], HOLD_MARK)
        if after.restarts == job.restarts:
            return Failure(answers.complaints or f"is {after.state}, not requeued")
        return Failure(
            f"ended just before it was to be stopped; Slurm put it back into the queue, where it is held: `scancel {job_id}` "
            f"if its work is done, `scontrol release {job_id}` to run it again"
        )

    def _one(self, section: bytes, job_id: str) -> SlurmJob | None:
        records = parse_answer(section, job_id, self._clock)
        return next((job for record in records for job in record.jobs if job.key.job_id == job_id), None)

    async def _change(self, keys: Sequence[JobKey], step: Callable[[Found], Step]) -> Failures:
        """Ask the step what to do for each job, do it, read the jobs, until the step has nothing more to ask for."""
        failures: dict[JobKey, Failure] = {}
        sent: dict[JobKey, Command] = {}
        # What was read a moment ago is good enough to begin with, but only a new reading says that a job is done, or never.
        known = {key: found for key in keys if (found := self._memory.get(key, _FRESH_S)) is not None}
        commands = {key: answer for key, found in known.items() if isinstance(answer := step(found), Command)}
        unsure = [key for key in dict.fromkeys(keys) if key not in commands]
        commands |= self._steps(unsure, await self._find(unsure), step, failures)
        for _ in range(_ROUNDS):
            stuck = [key for key, command in commands.items() if sent.get(key) == command]
            for key in stuck:
                failures |= await self._last_try(key, commands.pop(key), step)
            if not commands:
                return failures
            sent |= commands
            left = list(commands)
            after = await self._find(left, list(commands.values()))
            commands = self._steps(left, _told(after), step, failures)
        return failures | {key: Failure("something else keeps changing the job") for key in commands}

    def _steps(
        self,
        keys: Iterable[JobKey],
        found: Mapping[JobKey, Found],
        step: Callable[[Found], Step],
        failures: dict[JobKey, Failure],
    ) -> dict[JobKey, Command]:
        """Commands for the jobs that need one; failures are added to those given."""
        commands = {}
        for key in keys:
            match step(found[key]) if key in found else gone(key):
                case Failure() as failure:
                    failures[key] = failure
                case Command() as command:
                    commands[key] = command
        return commands

    async def _last_try(self, key: JobKey, command: Command, step: Callable[[Found], Step]) -> dict[JobKey, Failure]:
        """A command that had no effect once more, alone: for its effect, or for what Slurm has to say."""
        complaint = await self._scontrol.complaint(command.words)
        failures: dict[JobKey, Failure] = {}
        if self._steps([key], _told(await self._find([key])), step, failures):
            failures[key] = Failure(complaint or "Slurm accepts the change and does not carry it out")
        return failures


def _told(found: Mapping[JobKey, Found]) -> dict[JobKey, Found]:
    return {key: replace(one, told=True) for key, one in found.items()}


class _Memory:
    """Jobs as they were last read, by id. Invariant: of an id only what was read last."""

    def __init__(self) -> None:
        self._readings: list[tuple[float, Iterable[JobRecord]]] = []
        self._found: dict[str, tuple[float, Found]] = {}

    def forget(self) -> None:
        self._readings.clear()
        self._found.clear()

    def add(self, records: Iterable[JobRecord]) -> None:
        """Remember a reading; its index is made when somebody asks."""
        self._readings.append((time.monotonic(), records))

    def drop(self, job_id: str) -> None:
        """Slurm knows no such job any more."""
        self._index()
        self._found.pop(job_id, None)

    def get(self, key: JobKey, max_age_s: float = math.inf) -> Found | None:
        self._index()
        read_at, found = self._found.get(key.job_id, (0.0, None))
        if found is None or found.job.key != key or time.monotonic() - read_at > max_age_s:
            return None
        return found

    def _index(self) -> None:
        for read_at, records in self._readings:
            for record in records:
                for job in record.jobs:
                    self._found[job.key.job_id] = (read_at, Found(job, record))
        self._readings.clear()
