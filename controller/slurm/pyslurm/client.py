"""The pyslurm client: reads through pyslurm, and makes changes through it, or by command line where pyslurm cannot."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from controller.slurm.client import SlurmFacts
from controller.slurm.model.cluster import SlurmSnapshot
from controller.slurm.model.job import JobKey, SlurmJob
from controller.slurm.model.shares import Shares
from controller.slurm.pyslurm.calls import Changes, Cluster, Order
from controller.slurm.pyslurm.process import Worker
from controller.slurm.records import JobRecord, largest_node
from controller.slurm.scontrol.client import CommandLineClient
from controller.slurm.scontrol.incremental import keep_identity
from controller.slurm.updates.changes import Command
from controller.slurm.updates.found import Found
from controller.slurm.updates.verbs import Requeue, Verbs


class PySlurmClient(Verbs):
    """A SlurmClient over a Worker.

    pyslurm cannot change a number of nodes, cannot clear a field, and knows a task of an array only once Slurm has split it
    off: such commands go through the command-line client that it is given.
    """

    def __init__(self, worker: Worker, command_line: CommandLineClient, now: Callable[[], float] = time.time) -> None:
        super().__init__(now)
        self._worker = worker
        self._command_line = command_line
        self._records: dict[int, JobRecord] = {}
        """Records of the last reading by number. Bound: the jobs of one reading."""
        self._cluster = Cluster((), (), ())
        self._in_step = False
        """True while `_records` and `_cluster` have the worker's last answer about changes, so that the next may build on it."""

    async def close(self) -> None:
        """End the child process, and the thread that talks to it."""
        self._worker.close()

    async def facts(self) -> SlurmFacts:
        """Return version, cluster name and settings, by command line: pyslurm passes on few settings, and no PrivateData."""
        return replace(await self._command_line.facts(), client="pyslurm")

    async def topology(self) -> str:
        """Return what `scontrol show topology` prints: pyslurm has no call for it."""
        return await self._command_line.topology()

    async def shares(self, *, associations: bool = False) -> Shares:
        """Return the fair shares of users and the priorities of QOS, by command line: pyslurm has no call for shares."""
        return await self._command_line.shares(associations=associations)

    async def unregistered(self, nodes: Sequence[str]) -> frozenset[str]:
        """Return those of these nodes that have not registered with slurmctld since it started."""
        return await self._command_line.unregistered(nodes)

    async def snapshot(self) -> SlurmSnapshot:
        """Read the whole cluster."""
        time_s = self._now()
        await self._read_all()
        seen = tuple(self._without_false_bound(job) for record in self._records.values() for job in record.jobs)
        self._indexed.take(self._cluster.nodes, seen)
        return SlurmSnapshot(
            time_s=time_s,
            jobs=seen,
            nodes=self._cluster.nodes,
            partitions=self._cluster.partitions,
            reservations=self._cluster.reservations,
        )

    async def _read_all(self) -> None:
        whole, self._in_step = not self._in_step, False
        changes: Changes = await self._worker.call("changes", whole)
        new = {record.raw_id: keep_identity(record, self._records.get(record.raw_id)) for record in changes.records}
        self._records = {raw_id: new.get(raw_id) or self._records[raw_id] for raw_id in changes.raw_ids}
        self._cluster = changes.cluster or self._cluster
        self._in_step = True
        self._largest = largest_node(self._cluster.nodes)
        self._memory.forget()
        self._memory.add(self._records.values())

    async def _find(self, keys: Sequence[JobKey], first: Sequence[Command] = ()) -> dict[JobKey, Found]:
        if not keys and not first:
            return {}
        if first:
            await self.carry_out(first)
        if self._reads_all(keys):
            await self._read_all()  # an array may have been split: ids are new
        else:
            for key in keys:
                self._memory.drop(key.job_id)
            self._memory.add(await self._worker.call("read", [int(key.job_id) for key in keys]))
        found = {key: self._memory.get(key) for key in keys}
        return {key: known for key, known in found.items() if known is not None}

    def _reads_all(self, keys: Sequence[JobKey]) -> bool:
        return not all(key.job_id.isdecimal() for key in keys)

    async def carry_out(self, commands: Sequence[Command]) -> bool:
        """Run commands. Returns True when Slurm has confirmed every one; otherwise their effect must be read."""
        orders = {command: order for command in commands if (order := self._order(command)) is not None}
        others = [Command(command.then) if command in orders else command for command in commands]
        others = [command for command in others if command.words]
        complaints = await self._worker.call("carry_out", list(orders.values())) if orders else {}
        confirmed = await self._command_line.carry_out(others) if others else True
        return confirmed and not complaints

    def _order(self, command: Command) -> Order | None:
        """Return the command in pyslurm's form; None when pyslurm has none for it."""
        verb, target, *words = command.words
        job_id = target.removeprefix("JobId=")
        known = self._memory.latest(job_id)
        if known is None or len(known.record.jobs) != 1:
            return None
        raw_id = known.record.raw_id
        if verb == "release":
            return Order(raw_id, release=True)
        if verb != "update":
            return None  # uhold: pyslurm holds as an administrator only
        changes = [_change(*word.partition("=")[::2], now_s=self._now()) for word in words]
        translated = tuple(change for change in changes if change is not None)
        return Order(raw_id, changes=translated) if len(translated) == len(words) else None

    async def complaint(self, command: Command) -> str:
        """Run one command alone. Returns Slurm's message about it, if any."""
        order = self._order(command)
        if order is None:
            return await self._command_line.complaint(command)
        complaints: dict[int, str] = await self._worker.call("carry_out", [order])
        then = await self._command_line.complaint(Command(command.then)) if command.then else ""
        return complaints.get(order.raw_id, "") or then

    async def send_signal(self, job: SlurmJob, signal: str) -> str | None:
        """Send a signal by command line: pyslurm can report an earlier call's error as the signal's."""
        return await self._command_line.send_signal(job, signal)

    async def requeue(self, job: SlurmJob) -> Requeue:
        """Requeue the job and hold it, reading it right before and right after."""
        before, after, complaint = await self._worker.call("requeue", self._raw_id(job))
        return Requeue(_only(before), _only(after), complaint)

    def _raw_id(self, job: SlurmJob) -> int:
        known = self._memory.latest(job.key.job_id)
        assert known is not None, "the verbs have just read it"
        return known.record.raw_id


def _change(key: str, value: str, *, now_s: float) -> tuple[str, object] | None:
    """Return one word of `scontrol update` as an attribute of JobSubmitDescription.

    Nothing can be cleared, and no change of nodes can be refused for a job that runs: these go by command line.
    """
    match key:
        case "Priority":
            return "priority", int(value)
        case "AdminComment" if value:
            return "admin_comment", value
        case "StartTime" if value == "now":
            return "begin_time", int(now_s)
        case "StartTime":
            return "begin_time", int(value.removeprefix("uts"))
    return None


def _only(record: JobRecord | None) -> SlurmJob | None:
    return record.jobs[0] if record is not None else None
