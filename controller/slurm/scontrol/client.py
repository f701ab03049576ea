"""The command-line client: Slurm 22.05 and later through scontrol and scancel."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

import structlog

from controller.base.errors import SlurmReplyError
from controller.base.text import clip
from controller.slurm.client import SlurmFacts
from controller.slurm.model.cluster import SlurmNode, SlurmPartition, SlurmReservation, SlurmSnapshot
from controller.slurm.model.job import JobKey, SlurmJob
from controller.slurm.model.shares import Association, Shares
from controller.slurm.records import JobRecord, largest_node
from controller.slurm.scontrol.clockface import Clockface
from controller.slurm.scontrol.doubt import JobsInDoubt
from controller.slurm.scontrol.incremental import JobReading, JobTable, parse_answer
from controller.slurm.scontrol.parse_nodes import (
    name_if_registered,
    parse_node,
    parse_partition,
    parse_reservation,
    ticking_in_node,
)
from controller.slurm.scontrol.parse_shares import (
    SHOW_QOS,
    SSHARE,
    parse_associations,
    parse_fair_shares,
    parse_qos,
    show_associations,
)
from controller.slurm.scontrol.rows import RowCache, nothing_ticks
from controller.slurm.scontrol.run import CommandRunner
from controller.slurm.scontrol.scontrol import Scontrol, joined, require_contact, sentence
from controller.slurm.updates.changes import Command
from controller.slurm.updates.found import Found
from controller.slurm.updates.verbs import Requeue, Verbs

log = structlog.get_logger(__name__)

_JOB_ID = re.compile(r"\d+(?:_\d+)?")
_VERSION = re.compile(rb"(?<![0-9])([0-9]{1,4})\.([0-9]{1,4})\.([0-9]{1,4})")
_SHOW_NODE = "show node"
_BULK = ("show job", _SHOW_NODE, "show partition", "show reservation")
_MOST_ALONE = 1000
"""Maximum number of queries by id in one process. They take about a millisecond each; for more, reading all jobs (35 us each,
measured) is cheaper, and is within the one bulk query a second that slurmctld is to get."""
_MOST_IN_DOUBT = 300
"""Maximum number of jobs that one snapshot reads by id because a line break in a user's text put them in doubt; by default."""
_MOST_COMPLAINTS = 1000
_TASKS_FOR_THE_ARRAY = 2
"""Number of tasks from which on their whole array is queried. slurmctld sends all of it for every task, and scontrol prints the
common record of several waiting tasks for each of them with this one task only (22.05), so that the others would seem gone."""


class CommandLineClient(Verbs):
    """A SlurmClient over a CommandRunner. See controller.slurm.client for what each verb guarantees.

    A change costs one process, which runs the commands for all jobs and reads each of these jobs back. Parsed objects are kept from
    one reading to the next.
    """

    def __init__(
        self,
        runner: CommandRunner,
        clock: Clockface,
        now: Callable[[], float] = time.time,
        bulk: CommandRunner | None = None,
        most_in_doubt: int = _MOST_IN_DOUBT,
    ) -> None:
        """`bulk`: runs the queries about all jobs, if not `runner`; it may leave out jobs, which then seem to be gone.
        `most_in_doubt`: jobs that one snapshot reads by id, at most, because a line break in a user's text put them in doubt."""
        super().__init__(now)
        self._runner = runner
        self._scontrol = Scontrol(runner)
        self._bulk = self._scontrol if bulk is None else Scontrol(bulk)
        self._clock = clock
        self._jobs = JobTable(clock)
        self._in_doubt = JobsInDoubt(most_in_doubt)
        self._complaints: set[str] = set()
        """Jobs about which a complaint was logged. Bound: `_MOST_COMPLAINTS`."""
        self._nodes: RowCache[SlurmNode] = RowCache(b"NodeName=", parse_node, ticking_in_node)
        self._partitions: RowCache[SlurmPartition] = RowCache(b"PartitionName=", parse_partition, nothing_ticks)
        self._reservations: RowCache[SlurmReservation] = RowCache(
            b"ReservationName=", lambda text: parse_reservation(text, clock), nothing_ticks
        )

    # ---- reading

    async def close(self) -> None:
        """Do nothing: every process ends with its call."""

    async def facts(self) -> SlurmFacts:
        """Return version, cluster name and settings."""
        answers = await self._scontrol.query(["version", "show config"])
        version = _VERSION.search(answers.sections[0])
        lines = answers.sections[1].decode("utf-8", "replace").splitlines()
        pairs = (line.strip().partition("=")[::2] for line in lines)
        settings = {key.strip(): value.strip() for key, value in pairs if key.strip() and value.startswith(" ")}
        if version is None or "ClusterName" not in settings:
            raise SlurmReplyError(
                f"scontrol version, show config: not understood ({answers.complaints or 'no error message'}): "
                f"{clip(b''.join(answers.sections))}"
            )
        major, minor, micro = (int(part) for part in version.groups())
        return SlurmFacts((major, minor, micro), settings["ClusterName"], "command-line", settings)

    async def topology(self) -> str:
        """Return what `scontrol show topology` prints; empty when Slurm has no topology (22.05 calls that an error)."""
        answers = await self._scontrol.query(["show topology"])
        return answers.sections[0].decode("utf-8", "replace")

    async def shares(self, *, associations: bool = False) -> Shares:
        """Return the fair shares of users, and priorities and preemption of QOS. Raises SlurmError.

        `associations`: also the priorities of the associations of this cluster.
        """
        shares = await self._runner.run("sshare", SSHARE)
        if shares.status != 0:
            raise SlurmReplyError(f"sshare: {sentence(shares.stderr) or 'failed without a message'}")
        qos = await self._accounting("show qos", SHOW_QOS)
        priorities: dict[Association, int] = {}
        if associations:
            words = show_associations((await self.facts()).cluster_name)
            priorities = parse_associations(await self._accounting("show associations", words))
        return Shares(parse_fair_shares(shares.stdout.decode("utf-8", "backslashreplace")), *parse_qos(qos), priorities)

    async def _accounting(self, what: str, words: Sequence[str]) -> str:
        """Return what sacctmgr prints. Raises SlurmError."""
        done = await self._runner.run("sacctmgr", words)
        if done.status != 0:
            raise SlurmReplyError(f"sacctmgr {what}: {sentence(done.stderr) or 'failed without a message'}")
        return done.stdout.decode("utf-8", "backslashreplace")

    async def node_lines(self) -> list[str]:
        """Return what `scontrol show node` prints, one line for each node. Raises SlurmError."""
        answers = await self._scontrol.query([_SHOW_NODE])
        if answers.completed.status != 0:
            raise SlurmReplyError(f"scontrol {_SHOW_NODE}: {answers.complaints or 'failed without a message'}")
        # A line that begins otherwise continues a text in Reason= or Comment=.
        lines = answers.sections[0].decode("utf-8", "replace").split("\n")
        return list(filter(_is_node, lines))

    async def unregistered(self, nodes: Sequence[str]) -> frozenset[str]:
        """Return those of these nodes that have not registered with slurmctld since it started, or that it does not know."""
        if not nodes:
            return frozenset()
        answers = await self._scontrol.query([f"{_SHOW_NODE} {piece}" for piece in joined(nodes)])
        lines = b"".join(answers.sections).decode("utf-8", "replace").split("\n")
        return frozenset(nodes).difference(map(name_if_registered, filter(_is_node, lines)))

    async def snapshot(self) -> SlurmSnapshot:
        """Read everything: the one bulk query."""
        time_s = self._now()
        answers = await self._bulk.query(_BULK)
        if answers.completed.status != 0:
            raise SlurmReplyError(f"scontrol {', '.join(_BULK)}: {answers.complaints or 'failed without a message'}")
        jobs, nodes, partitions, reservations = answers.sections
        table = self._nodes.update(nodes)
        self._largest = largest_node(table)
        seen = tuple([self._without_false_bound(job) for job in await self._take_jobs(jobs)])
        self._indexed.take(table, seen)
        return SlurmSnapshot(
            time_s=time_s,
            jobs=seen,
            nodes=table,
            partitions=self._partitions.update(partitions),
            reservations=self._reservations.update(reservations),
            unread=self._in_doubt.unread,
            left_out=answers.completed.left_out,
        )

    async def _take_jobs(self, section: bytes) -> tuple[SlurmJob, ...]:
        """Return the jobs of `show job`; jobs on doubtful lines are read again one by one."""
        reading = self._jobs.update(section)
        await self._resolve(reading)
        self._memory.forget()
        self._memory.add(self._jobs.records)
        self._memory.add(self._in_doubt.fresh)  # no old ones: the verbs rely on what was read within the last second
        return self._in_doubt.with_others(reading.jobs)

    async def _resolve(self, reading: JobReading) -> None:
        """Read jobs on doubtful lines one by one, as far as the budget goes."""
        turn = self._in_doubt.turn(reading)
        found: dict[int, JobRecord] = {}
        for begin in range(0, len(turn), _MOST_ALONE):
            ids = [str(raw_id) for raw_id in turn[begin : begin + _MOST_ALONE]]
            found.update((record.raw_id, record) for record in await self._read_records(ids))
        self._in_doubt.take(reading, turn, found)

    async def _find(self, keys: Sequence[JobKey], first: Sequence[Command] = ()) -> dict[JobKey, Found]:
        """Run commands, then read these jobs: the identity check of every verb, and its confirmation."""
        if not keys and not first:
            return {}
        for key in keys:
            if not _JOB_ID.fullmatch(key.job_id):
                raise ValueError(f"not a job id: {key.job_id!r}")
        ids = list(dict.fromkeys(key.job_id for key in keys))
        commands = [words for command in first for words in command.lines]
        if self._reads_all(keys):
            answers = await self._bulk.query(["show job"], first=commands)
            await self._take_jobs(answers.sections[0])
        else:
            records = await self._read_records(ids, commands)
            self._memory.add(records)
            self._in_doubt.note(records)
        found = {key: self._memory.get(key) for key in keys}
        return {key: known for key, known in found.items() if known is not None}

    def _reads_all(self, keys: Sequence[JobKey]) -> bool:
        return len(self._queries(list(dict.fromkeys(key.job_id for key in keys)))) > _MOST_ALONE

    def _queries(self, ids: Sequence[str]) -> dict[str, list[str]]:
        """Return the queries, with the ids that each covers. A task with a record of its own is queried by that record's
        number."""
        own = {job_id: raw_id for job_id in ids if (raw_id := self._own_number(job_id)) is not None}
        return {raw_id: [job_id] for job_id, raw_id in own.items()} | _queries_of([i for i in ids if i not in own])

    def _own_number(self, job_id: str) -> str | None:
        """Return the number of the task's own record. A query by it returns this record; one by the task's id, the whole
        array."""
        array_id, _, task = job_id.partition("_")
        known = self._memory.latest(job_id) if task else None
        alone = known is not None and len(known.record.jobs) == 1 and str(known.record.raw_id) != array_id
        return str(known.record.raw_id) if known is not None and alone else None

    async def _read_records(self, ids: Sequence[str], first: Sequence[Sequence[str]] = ()) -> list[JobRecord]:
        """Return the records of these jobs and, for array tasks, of the other tasks on the same record."""
        queries = self._queries(ids)
        answers = await self._scontrol.query([f"show job {query}" for query in queries], first=first)
        records: dict[int, JobRecord] = {}
        unanswered: list[str] = []
        for (query, wanted), section in zip(queries.items(), answers.sections, strict=True):
            found = parse_answer(section, query, self._clock, self._complain)
            records.update((record.raw_id, record) for record in found)
            there = {job.key.job_id for record in found for job in record.jobs}
            for job_id in wanted:
                if job_id not in there:
                    self._memory.drop(job_id)
                    if query not in {job_id, job_id.partition("_")[0]}:
                        unanswered.append(job_id)
        found_again = await self._read_records(unanswered) if unanswered else []
        return [*records.values(), *found_again]

    def _complain(self, job_id: str, problem: str) -> None:
        """Log a job that cannot be parsed, once; it is left out."""
        if job_id not in self._complaints:
            if len(self._complaints) >= _MOST_COMPLAINTS:
                self._complaints.clear()
            self._complaints.add(job_id)
            log.warning("slurm_job_not_understood", job=job_id, problem=problem)

    # ---- building blocks of the verbs

    async def carry_out(self, commands: Sequence[Command]) -> bool:
        """Run commands. Returns True when Slurm has confirmed every one; otherwise their effect must be read."""
        answers = await self._scontrol.query([], first=[words for command in commands for words in command.lines])
        return answers.completed.status == 0 and not answers.completed.stderr

    async def complaint(self, command: Command) -> str:
        """Run one command alone. Returns Slurm's message about it, if any."""
        complaints = [await self._scontrol.complaint(words) for words in command.lines]
        return "; ".join(filter(None, complaints))

    async def send_signal(self, job: SlurmJob, signal: str) -> str | None:
        """Send a signal to all processes of the job. Returns Slurm's objection, if any."""
        completed = await self._runner.run("scancel", ["--full", f"--signal={signal}", job.key.job_id])
        require_contact(completed)
        if completed.status == 0 and not completed.stderr:
            return None
        return sentence(completed.stderr) or f"scancel ended with {completed.status}"

    async def requeue(self, job: SlurmJob) -> Requeue:
        """Read the job, stop it and read it again, within one process and a millisecond apart."""
        job_id = job.key.job_id
        answers = await self._scontrol.query([f"show job {job_id}", f"requeuehold {job_id}", f"show job {job_id}"])
        before, _, after = (self._one(section, job_id) for section in answers.sections)
        return Requeue(before, after, answers.complaints)

    def _one(self, section: bytes, job_id: str) -> SlurmJob | None:
        records = parse_answer(section, job_id, self._clock)
        return next((job for record in records for job in record.jobs if job.key.job_id == job_id), None)


def _queries_of(ids: Sequence[str]) -> dict[str, list[str]]:
    """Return the queries, with the ids that each covers: single jobs by their ids, many tasks of an array by the array."""
    arrays: dict[str, list[str]] = {}
    for job_id in ids:
        arrays.setdefault(job_id.partition("_")[0], []).append(job_id)
    queries: dict[str, list[str]] = {}
    for array_id, tasks in arrays.items():
        if len(tasks) >= _TASKS_FOR_THE_ARRAY:
            queries[array_id] = tasks
        else:
            queries |= {task: [task] for task in tasks}
    return queries


def _is_node(line: str) -> bool:
    return line.startswith("NodeName=")
