"""The emulated cluster with the commands of its users and operators, and with faults for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import structlog

from controller.base.clock import Clock, RealClock
from controller.base.errors import SlurmError, SlurmUnavailableError
from controller.base.lease import Lease
from controller.slurm.embedded.client import EmbeddedClient
from controller.slurm.embedded.ctld import commands
from controller.slurm.embedded.ctld.job import HELD_BY_ADMIN, HELD_BY_USER, Job, Submission, sbatch_request
from controller.slurm.embedded.ctld.plugin import SubmitPlugin, Wake, wake_none
from controller.slurm.embedded.ctld.records import Reservation
from controller.slurm.embedded.ctld.slurmctld import Accounting, Slurmctld
from controller.slurm.embedded.description import ClusterDescription, JobDescription
from controller.slurm.embedded.faults import Faults
from controller.slurm.embedded.view import key_of
from controller.slurm.model.cluster import SlurmReservation
from controller.slurm.model.job import JobKey, Phase
from controller.slurm.user_holds import HoldFolder

log = structlog.get_logger(__name__)


class EmbeddedSlurm:
    """One emulated cluster. Headway gets `client`; users, operators and faults act through the other methods.

    Without a lease there is no job_submit plugin: stock Slurm, which schedules by itself. `wake` is called with the lines that the
    plugin and the hooks would write into the wake pipe; without `run`, only when a method of this object is called. Raises
    ConfigurationError for a description whose slowdown cannot be modelled.
    """

    def __init__(
        self,
        description: ClusterDescription | None = None,
        clock: Clock | None = None,
        *,
        lease: Callable[[], Lease | None] | None = None,
        wake: Wake = wake_none,
        holds: HoldFolder | None = None,
        accounting: Accounting | None = None,
        client_clock: Clock | None = None,
    ) -> None:
        self.clock = clock or RealClock()
        self.faults = Faults()
        self._ctld = Slurmctld(description or ClusterDescription(), self.clock, wake, accounting)
        self._plugin = SubmitPlugin(lease, wake, holds) if lease is not None else None
        self._runner: asyncio.Task[None] | None = None
        self.client = EmbeddedClient(self._ctld, self.clock, self.faults, (client_clock or self.clock).now)
        for job in self._ctld.description.jobs:
            self._ctld.after(job.at_s, partial(self._submit_described, job))

    async def run(self) -> None:
        """Keep up with the clock for ever, so that the cluster wakes its listener at each event."""
        await self._ctld.keep_up()

    def start(self) -> None:
        """Start `run` in a task of its own, which ends with the event loop. When it fails, that is logged: the cluster then keeps
        up with the clock only when it is called."""
        if self._runner is None or self._runner.done():
            self._runner = asyncio.create_task(self.run(), name="embedded-slurm")
            self._runner.add_done_callback(_log_failure)

    # -- users --------------------------------------------------------------------------------------------------------

    def submit(self, submission: Submission) -> JobKey:
        """Submit as sbatch does; return the key of the job, or of the first task or component."""
        return self.submit_all(submission)[0]

    def submit_all(self, submission: Submission) -> list[JobKey]:
        """Submit as sbatch does; return the keys of all tasks or components. Raises SlurmError while slurmctld restarts."""
        self._ctld.catch_up()
        self._must_be_up()
        return [key_of(job) for job in commands.submit(self._ctld, submission, self._plugin)]

    def user_hold(self, job_id: str) -> None:
        """Hold the job as its user does (scontrol hold). Raises SlurmError."""
        job = self._live(job_id)
        if self._plugin is not None:
            _check(self._plugin.on_user_hold(job, self._ctld.now_s))
        if job.phase is Phase.ENDED or not job.held:  # otherwise nothing changes, and the reason stays as it is
            _check(commands.hold(job, HELD_BY_USER))

    def user_release(self, job_id: str) -> None:
        """Release the job as its user does (scontrol release). Raises SlurmError when Slurm or the plugin refuses."""
        job = self._live(job_id)
        if self._plugin is not None:
            effect = self._plugin.on_user_release(job, self._ctld.now_s)
            _check(effect.refusal)
            if effect.swallowed:
                return
            if effect.begin_time_s is not None:
                _check(commands.update(self._ctld, job, {"StartTime": str(effect.begin_time_s)}))
        if job.hold_reason == HELD_BY_ADMIN:
            _check(commands.NOT_PERMITTED)
        _check(commands.release(self._ctld, job))

    def cancel(self, job_id: str) -> None:
        """Cancel the job (scancel). Raises SlurmError."""
        _check(commands.cancel(self._ctld, self._live(job_id)))

    def catch_up(self) -> None:
        """Process everything that is due by now, such as jobs that end: time may have passed in which no task ran."""
        self._ctld.catch_up()

    # -- operators ----------------------------------------------------------------------------------------------------

    def job(self, job_id: str) -> Job:
        """Return slurmctld's own record, with values that no client sees. Raises SlurmError."""
        self._ctld.catch_up()
        try:
            return self._ctld.jobs[job_id]
        except KeyError:
            raise SlurmError(f"{commands.INVALID_ID}: {job_id}") from None

    def admin_hold(self, job_id: str) -> None:
        """Hold the job as root does (scontrol hold); its user may not release it. Raises SlurmError."""
        _check(commands.hold(self._live(job_id)))

    def admin_release(self, job_id: str) -> None:
        """Release the job as root does (scontrol release). Raises SlurmError."""
        _check(commands.release(self._ctld, self._live(job_id)))

    def requeue(self, job_id: str, *, held: bool = False) -> None:
        """Requeue the job as root does (scontrol requeue or requeuehold). Raises SlurmError."""
        _check(commands.requeue(self._ctld, self._live(job_id), held))

    def suspend(self, job_id: str) -> None:
        """Suspend the job as root does (scontrol suspend). Raises SlurmError."""
        job = self._live(job_id)
        _check("" if job.phase is Phase.RUNNING else "Job is not running")
        self._ctld.suspend(job)

    def resume(self, job_id: str) -> None:
        """Resume the job as root does (scontrol resume). Raises SlurmError."""
        job = self._live(job_id)
        _check("" if job.phase is Phase.SUSPENDED else "Job is not suspended")
        self._ctld.resume(job)

    def update(self, job_id: str, **changes: str) -> None:
        """Change the job as root does (scontrol update). Raises SlurmError; part of the changes may have been made."""
        _check(commands.update(self._ctld, self._live(job_id), changes))

    def node_drain(self, name: str, reason: str = "drained by a test") -> None:
        """Drain the node (state=drain): running jobs go on, no new ones start."""
        self._ctld.catch_up()
        node = self._ctld.nodes[name]
        node.drain, node.reason = True, reason
        self._ctld.kick()

    def node_down(self, name: str, reason: str = "Not responding", *, crashed: bool = True) -> None:
        """Take the node down: it stops answering, or an operator sets state=down. Its jobs are requeued, not held."""
        self._ctld.catch_up()
        self._ctld.fail_node(self._ctld.nodes[name], "DOWN*" if crashed else "DOWN", reason)

    def node_sleep(self, name: str, boot_s: float) -> None:
        """Power the node down, as power saving does with idle nodes. The next job there boots it; infinite: in vain."""
        self._ctld.catch_up()
        node = self._ctld.nodes[name]
        _check("node is in use" if node.shares else "")
        node.power, node.boot_s = "POWERED_DOWN", boot_s

    def node_resume(self, name: str) -> None:
        """Set the node to up and no longer drained (state=resume)."""
        self._ctld.catch_up()
        node = self._ctld.nodes[name]
        node.down, node.drain, node.reason = "", False, ""
        self._ctld.kick()

    def reserve(
        self, name: str, nodes: tuple[str, ...], start_time_s: float, end_time_s: float, *, maintenance: bool = False
    ) -> None:
        """Create a reservation (scontrol create reservation)."""
        self._ctld.catch_up()
        reservation = SlurmReservation(name, frozenset(nodes), start_time_s, end_time_s)
        self._ctld.reservations[name] = Reservation(reservation, maintenance)
        self._ctld.kick_at(start_time_s)
        self._ctld.kick_at(end_time_s)

    def unreserve(self, name: str) -> None:
        """Delete a reservation (scontrol delete reservation)."""
        self._ctld.catch_up()
        del self._ctld.reservations[name]
        self._ctld.kick()

    def expire_reservation(self, name: str) -> None:
        """Let the end of a reservation come now: Slurm deletes it, and holds the pending jobs that are for it."""
        self._ctld.catch_up()
        for job in self._ctld.jobs.values():
            if job.phase is Phase.PENDING and job.submission.reservation == name:
                commands.lose_reservation(job)
        self.unreserve(name)

    def set_partition(self, name: str, *, up: bool) -> None:
        """Set a partition up or down (scontrol update partition)."""
        self._ctld.catch_up()
        self._ctld.partitions[name].up = up
        self._ctld.kick()

    # -- accidents ----------------------------------------------------------------------------------------------------

    def crash_slurmctld(self, lose_newest: int = 0, away_s: float | None = None) -> list[JobKey]:
        """Kill slurmctld and restart it: the newest jobs are lost, and their ids are issued again. Returns the lost jobs."""
        self._ctld.catch_up()
        return self._ctld.crash(lose_newest, away_s)

    def _submit_described(self, job: JobDescription) -> None:
        request = sbatch_request(gpus_per_node=job.gpus, nodes=job.nodes)
        if job.max_nodes is not None:
            request = sbatch_request(gpus=job.gpus * job.nodes, nodes=(job.nodes, job.max_nodes))
        submission = Submission(
            request=request,
            duration_s=job.duration_s,
            user=job.user,
            name=job.name,
            partition=job.partition,
            time_limit_s=job.time_limit_s,
            model=job.model,
            batch_size=job.batch_size,
        )
        commands.submit(self._ctld, submission, self._plugin)

    def _live(self, job_id: str) -> Job:
        job = self.job(job_id)
        self._must_be_up()
        return job

    def _must_be_up(self) -> None:
        if self._ctld.down_until_s > self._ctld.now_s:
            raise SlurmUnavailableError("the embedded slurmctld is being restarted")


def _log_failure(runner: asyncio.Task[None]) -> None:
    """Log the error by which the task of `run` has ended. The end of the event loop cancels it, which is no error."""
    if not runner.cancelled() and (error := runner.exception()) is not None:
        log.error("embedded_slurm_failed", exc_info=error)


def _check(error: str | None) -> None:
    if error:
        raise SlurmError(error)
