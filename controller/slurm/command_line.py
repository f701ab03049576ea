"""The command-line client: Slurm 22.05 and later through scontrol and scancel.

One scontrol process reads its commands from standard input and carries out a whole batch. Only job ids, node names, counts
and our own marks ever go that way; texts that hold anything else go in argv, where nothing can break out of them.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from controller.errors import SlurmReplyError, SlurmUnavailableError
from controller.slurm import changes
from controller.slurm.changes import Found, Step, Update, gone, sentence
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
from controller.slurm.incremental import JobTable, RowCache, parse_answer
from controller.slurm.parse import Clockface, JobRecord
from controller.slurm.parse_nodes import parse_node, parse_partition, parse_reservation, steady_node
from controller.slurm.run import CommandRunner, Completed, clip

log = structlog.get_logger(__name__)

_JOB_ID = re.compile(r"\d+(?:_\d+)?")
_PLAIN_WORD = re.compile(r"[\w.,:/=@+\-]*", re.ASCII)
_SIGNAL = re.compile(r"[A-Z0-9]+")
_VERSION = re.compile(rb"(\d+)\.(\d+)\.(\d+)")
_SETTING = re.compile(r"(\S[^=]*?)\s*= (.*)")
_AWAY = re.compile(
    r"unable to contact slurm controller|connection (?:refused|timed out|failure)|socket timed out|zero bytes|"
    r"controller not responding|unable to establish|communication connection|unable to process configuration|"
    r"could not establish a configuration source|protocol authentication error|invalid (?:authentication|auth) credential|"
    r"munge encode failed|backup controller|in standby",
    re.IGNORECASE,
)
_MOST_READ_ALONE = 300
_LONGEST_LINE = 3500
_ROUNDS = 4
_BULK = ("show job", "show node", "show partition", "show reservation")


@dataclass(frozen=True, slots=True)
class _Answers:
    """What scontrol said to each of several commands."""

    sections: tuple[bytes, ...]
    completed: Completed


class CommandLineClient:
    """A SlurmClient over a CommandRunner. See controller.slurm.client for what each verb promises.

    Not for use by several tasks at once: the parsed objects are kept from one reading to the next.
    """

    def __init__(self, runner: CommandRunner, clock: Clockface, now: Callable[[], float] = time.time) -> None:
        self._runner = runner
        self._clock = clock
        self._now = now
        self._separator = f"end{secrets.token_hex(8)}"
        self._jobs = JobTable(clock)
        self._nodes: RowCache[SlurmNode] = RowCache(b"NodeName=", parse_node, steady_node)
        self._partitions: RowCache[SlurmPartition] = RowCache(b"PartitionName=", parse_partition, bytes)
        self._reservations: RowCache[SlurmReservation] = RowCache(
            b"ReservationName=", lambda text: parse_reservation(text, clock), bytes
        )

    # ---- reading

    async def facts(self) -> SlurmFacts:
        """Version, cluster name and settings."""
        answers = await self._ask(["version", "show config"])
        self._require_success(answers)
        version = _VERSION.search(answers.sections[0])
        settings = {
            match[1]: match[2].strip()
            for line in answers.sections[1].decode("utf-8", "replace").splitlines()
            if (match := _SETTING.fullmatch(line.strip()))
        }
        if version is None or "ClusterName" not in settings:
            raise SlurmReplyError(f"scontrol version, show config: not understood: {clip(b''.join(answers.sections))}")
        major, minor, micro = (int(part) for part in version.groups())
        return SlurmFacts((major, minor, micro), settings["ClusterName"], "command-line", settings)

    async def snapshot(self) -> SlurmSnapshot:
        """Read everything: the one bulk query."""
        time_s = self._now()
        answers = await self._ask(_BULK)
        self._require_success(answers)
        jobs, nodes, partitions, reservations = answers.sections
        return SlurmSnapshot(
            time_s=time_s,
            jobs=await self._read_jobs(jobs),
            nodes=self._nodes.update(nodes),
            partitions=self._partitions.update(partitions),
            reservations=self._reservations.update(reservations),
        )

    async def read(self, keys: Sequence[JobKey]) -> Mapping[JobKey, SlurmJob]:
        """Read these jobs only; those that are gone are left out."""
        return {key: found.job for key, found in (await self._find(keys)).items()}

    async def _read_jobs(self, section: bytes) -> tuple[SlurmJob, ...]:
        reading = self._jobs.update(section)
        if not reading.contested:
            return reading.jobs
        ids = [str(job_id) for job_id in sorted(reading.contested)]
        records = await self._read_alone(ids)
        known = {job.key.job_id for job in reading.jobs}
        return reading.jobs + tuple(job for record in records for job in record.jobs if job.key.job_id not in known)

    async def _find(self, keys: Iterable[JobKey]) -> dict[JobKey, Found]:
        """Jobs as they are now, by key: the identity check of every verb."""
        wanted = set(keys)
        if not wanted:
            return {}
        for key in wanted:
            if not _JOB_ID.fullmatch(key.job_id):
                raise ValueError(f"not a job id: {key.job_id!r}")
        records = await self._read_alone(sorted({key.job_id for key in wanted}))
        return {job.key: Found(job, record) for record in records for job in record.jobs if job.key in wanted}

    async def _read_alone(self, ids: Sequence[str]) -> list[JobRecord]:
        """Records of these jobs and, of array tasks, of the array's."""
        records: dict[int, JobRecord] = {}
        for begin in range(0, len(ids), _MOST_READ_ALONE):
            part = ids[begin : begin + _MOST_READ_ALONE]
            answers = await self._ask([f"show job {job_id}" for job_id in part])
            self._require_contact(answers.completed)
            for job_id, section in zip(part, answers.sections, strict=True):
                for record in parse_answer(section, job_id, self._clock):
                    records[record.raw_id] = record
        return list(records.values())

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
        """Give held jobs their own request back."""
        return await self._change(list(originals), lambda found: changes.unpin_step(found, originals[found.job.key]))

    async def set_begin_time(self, keys: Sequence[JobKey], begin_time_s: float | None) -> Failures:
        """Not before this time (seconds since the Unix epoch); None = now."""
        now_s = self._now()
        return await self._change(keys, lambda found: changes.begin_step(found.job, begin_time_s, now_s))

    async def release(self, keys: Sequence[JobKey]) -> Failures:
        """Take the hold off: Slurm may start the jobs from now on."""
        before = await self._find(keys)
        failures = {key: gone(key) for key in keys if key not in before}
        held = [key for key, found in before.items() if found.job.held and found.job.phase is Phase.PENDING]
        await self._tell([f"release {ids}" for ids in _joined(key.job_id for key in held)])
        after = await self._find(held)
        for key in held:
            if key in after and after[key].job.held and after[key].job.phase is Phase.PENDING:
                failures[key] = await self._alone(["release", key.job_id], "is still held")
        return failures

    async def signal(self, keys: Sequence[JobKey], signal: str) -> Failures:
        """Send a signal to batch shell and tasks."""
        if not _SIGNAL.fullmatch(signal):
            raise ValueError(f"not a signal: {signal!r}")
        before = await self._find(keys)
        failures = {key: gone(key) for key in keys if key not in before}
        running = []
        for key, found in before.items():
            if found.job.phase is Phase.RUNNING:
                running.append(key)
            else:
                failures[key] = Failure(f"is {found.job.state}, not running")
        for key in running:
            completed = await self._runner.run("scancel", ["--full", f"--signal={signal}", key.job_id])
            self._require_contact(completed)
            if completed.status != 0 or completed.stderr:
                failures[key] = Failure(clip(sentence(completed.stderr.splitlines())))
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
        stoppable = [key for key in keys if key not in failures]
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
        answers = await self._ask([f"show job {job_id}", f"requeuehold {job_id}", f"show job {job_id}"])
        self._require_contact(answers.completed)
        before = self._one(answers.sections[0], job_id)
        after = self._one(answers.sections[2], job_id)
        if after is None:
            return gone(job.key)
        restarted = after.restarts > job.restarts
        if not restarted:
            await self.unmark([after.key], HOLD_MARK)
            return Failure(clip(sentence(answers.completed.stderr.splitlines())) or f"is {after.state}, not requeued")
        if after.phase is Phase.PENDING or before is None or before.phase is Phase.ENDED:
            await self.unmark([after.key], HOLD_MARK)
            return Failure(
                f"ended just before it was to be stopped; Slurm put it back into the queue, where it is held: `scancel "
                f"{job_id}` if its work is done, `scontrol release {job_id}` to run it again"
            )
        return None if after.held else Failure("was requeued, but is not held")

    def _one(self, section: bytes, job_id: str) -> SlurmJob | None:
        records = parse_answer(section, job_id, self._clock)
        return next((job for record in records for job in record.jobs if job.key.job_id == job_id), None)

    async def _change(self, keys: Sequence[JobKey], step: Callable[[Found], Step]) -> Failures:
        """Read, send what the step asks for, read again, until the step has nothing more to ask for."""
        failures: dict[JobKey, Failure] = {}
        sent: dict[JobKey, Update] = {}
        left = list(dict.fromkeys(keys))
        for _ in range(_ROUNDS):
            found = await self._find(left)
            updates: dict[JobKey, Update] = {}
            for key in left:
                match step(found[key]) if key in found else gone(key):
                    case Failure() as failure:
                        failures[key] = failure
                    case Update() as update if sent.get(key) == update:
                        failures[key] = await self._alone(_update_words(key, update), "Slurm did not change the job")
                    case Update() as update:
                        updates[key] = update
            if not updates:
                return failures
            await self._send(updates)
            sent.update(updates)
            left = list(updates)
        return failures | {key: Failure("Slurm keeps changing the job back") for key in left}

    async def _send(self, updates: Mapping[JobKey, Update]) -> None:
        """Carry out updates: those of plain words through one process, the others each in its own."""
        lines = []
        for key, update in updates.items():
            words = _update_words(key, update)
            line = " ".join(words)
            if len(line) <= _LONGEST_LINE and all(_PLAIN_WORD.fullmatch(word) for word in words):
                lines.append(line)
            else:
                self._require_contact(await self._runner.run("scontrol", words))
        await self._tell(lines)

    async def _tell(self, lines: Sequence[str]) -> None:
        """Commands whose effect is read back afterwards."""
        if lines:
            text = "".join(f"{line}\n" for line in lines)
            self._require_contact(await self._runner.run("scontrol", ["-o"], text.encode()))

    async def _alone(self, words: Sequence[str], otherwise: str) -> Failure:
        """Repeat a command that had no effect, for what Slurm has to say about it."""
        completed = await self._runner.run("scontrol", words)
        self._require_contact(completed)
        return Failure(clip(sentence(completed.stderr.splitlines())) or otherwise)

    # ---- talking to scontrol

    async def _ask(self, commands: Sequence[str]) -> _Answers:
        """One process, several questions. An unguessable line after each answer tells where it ends."""
        text = "".join(f"{command}\nshow hostnames {self._separator}\n" for command in commands)
        completed = await self._runner.run("scontrol", ["-o", "-d", "-a"], text.encode())
        parts = completed.stdout.split(f"\n{self._separator}\n".encode())
        if len(parts) != len(commands) + 1:
            self._require_contact(completed)
            raise SlurmReplyError(
                f"scontrol answered {len(parts) - 1} of {len(commands)} questions (status {completed.status}, "
                f"{clip(completed.stderr) or 'no error message'}): {clip(completed.stdout)}"
            )
        return _Answers(tuple(map(_without_echo, parts[:-1])), completed)

    def _require_success(self, answers: _Answers) -> None:
        completed = answers.completed
        self._require_contact(completed)
        if completed.status != 0:
            raise SlurmReplyError(f"scontrol failed: {clip(completed.stderr) or f'status {completed.status}'}")

    def _require_contact(self, completed: Completed) -> None:
        if completed.stderr and _AWAY.search(completed.stderr):
            raise SlurmUnavailableError(
                f"{completed.argv[0]}: {clip(completed.stderr)}; is slurmctld running, and does slurm_conf name its "
                "configuration? `scontrol ping` tells"
            )


_ECHO = b"scontrol: "


def _without_echo(section: bytes) -> bytes:
    """The answer without scontrol's prompt and its echo of our own commands: the first line, and the last."""
    first, _, rest = section.partition(b"\n")
    body, newline, last = rest.rpartition(b"\n")
    if not newline:
        body, last = b"", rest
    keep_first = b"" if first.startswith(_ECHO) or not first else first + b"\n"
    return keep_first + (body if last.startswith(_ECHO) else rest)


def _update_words(key: JobKey, update: Update) -> list[str]:
    return ["update", f"JobId={key.job_id}", *update.words]


def _joined(ids: Iterable[str]) -> list[str]:
    """Comma-separated, in pieces that fit on a line."""
    pieces: list[str] = []
    for job_id in ids:
        if pieces and len(pieces[-1]) + len(job_id) < _LONGEST_LINE - 20:
            pieces[-1] += f",{job_id}"
        else:
            pieces.append(job_id)
    return pieces
