"""The end of a story: everything works, users release what they hold, and every job has to end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from slurm.errors import MiniClusterError
from slurm.minicluster.host.files import ClusterFiles
from slurm.minicluster.host.network import CONTROLLER
from tests.campaign.real.model import Expected, RealPromise
from tests.campaign.real.operations import release, resume
from tests.campaign.real.records import parse_log
from tests.campaign.real.scene import Scene
from tests.campaign.real.world import Answer

_UNCHANGED_S = 150.0
"""A queue in which nothing has changed for so long makes no progress any more. Longer than Slurm lets a requeued job wait."""
_LEFT_TO_SLURM_S = 20.0
"""A queue in which nothing has changed for so long has no job that Headway is about to place."""
_LOOK_EVERY_S = 0.5
_IDLE_S = 60.0
_ASK_EVERY_S = 10.0
_MISCOUNTED = "gres count underflow"
"""slurmctld of 22.05 logs this for a job that it started on a node which had not registered yet. From then on it may count free
GPUs of the node as taken."""
_UNRECORDED = "the DB index is being set"
"""slurmctld of 22.05 refuses every change of a job for which it waits for slurmdbd's index. If it restarts within seconds after the
submission, it may wait for ever."""
_NO_ROOM = frozenset({"Resources", "Priority"})


@dataclass(frozen=True, slots=True)
class Queued:
    """A job of the story as squeue shows it."""

    job_id: str
    state: str
    reason: str
    priority: str
    name: str

    @property
    def held(self) -> bool:
        """True if Slurm holds it."""
        return self.state == "PENDING" and self.priority == "0"


class _Drain:
    """Invariant: nothing is done to a job that its user or an operator would not do, until the queue stands still."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.known: list[str] = []
        self._still_since_s = time.monotonic()
        self._before: object = None
        self._asked_s = time.monotonic()

    def run(self) -> list[str]:
        """Wait until every job has ended. Return the events that the known limits explain."""
        while (queue := self._queue()) is None or queue:
            if queue is not None:
                self._find_unknown(queue)
                self._act(queue)
                self._ask_nodes()
                if self._stands_still(queue):
                    self._give_up(queue)
            time.sleep(_LOOK_EVERY_S)
        return self.known

    def _ask_nodes(self) -> None:
        """Let slurmctld ask its nodes which jobs they run; by itself it does so every few minutes."""
        if self.scene.asks_nodes and time.monotonic() - self._asked_s > _ASK_EVERY_S:
            self._asked_s = time.monotonic()
            self.scene.world.user(None, "scontrol", "reconfigure")

    def _queue(self) -> dict[str, Queued] | None:
        answer, text = self.scene.world.user(
            None, "squeue", "--noheader", "--array", "--all", "--format=%i|%T|%r|%Q|%j", "--states=all"
        )
        if answer is not Answer.DONE:
            return None
        jobs = [Queued(*line.split("|")) for line in text.splitlines()]
        mine = f"story{self.scene.seed}-"
        alive = {"PENDING", "RUNNING", "COMPLETING", "SUSPENDED", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "STOPPED"}
        return {job.job_id: job for job in jobs if job.state in alive and job.name.startswith(mine)}

    def _find_unknown(self, queue: Mapping[str, Queued]) -> None:
        """Jobs of submissions without an answer are cancelled: what their users expect is not known."""
        names = {self.scene.job_name(label) for label in self.scene.unknown}
        ids = {job.job_id.partition("_")[0] for job in queue.values() if job.name in names}
        if ids - {job_id.partition("_")[0] for job_id in self.scene.model.jobs}:
            self.scene.world.user(None, "scancel", *sorted(ids))

    def _act(self, queue: Mapping[str, Queued]) -> None:
        """Do what users and operators do now: users release the jobs that they hold."""
        jobs = [
            (job, self.scene.model.jobs[job_id]) for job_id, job in queue.items() if job_id in self.scene.model.jobs
        ]
        for job, expected in jobs:
            if self._is_left_held(job, expected):
                self.known.append(f"{expected.job_id} was left held after it had ended or was cancelled")
                self._cancel(expected)
            elif "launch failed" in job.reason or "launch_failed" in job.reason:
                self.known.append(f"Slurm held {expected.job_id}: {job.reason}")
                expected.launch_failed_s.append(time.time())
                self.scene.world.user(None, "scontrol", "release", expected.job_id)
            elif job.state == "SUSPENDED":  # slurmctld was away when it was to be resumed
                resume(self.scene, expected.job_id)
            elif job.reason == "BeginTime" and not job.held and self._is_left_to_slurm(expected):
                # Slurm lets a requeued job wait for two minutes
                self.scene.world.user(None, "scontrol", "update", f"jobid={expected.job_id}", "StartTime=now")
            elif job.reason == "DependencyNeverSatisfied" or self._waits_in_vain(expected, queue):
                expected.never = True
                self._cancel(expected)
            elif expected.held and not expected.maybe_cancelled:
                release(self.scene, expected)

    def _is_left_to_slurm(self, expected: Expected) -> bool:
        """Return whether a job that has run is none of Headway's, or was given to Slurm by watchdog or controller."""
        has_run = (self.scene.folder / f"{expected.job_id}.log").exists()
        return has_run and (not expected.spec.managed or self._still_for_s > _LEFT_TO_SLURM_S)

    def _is_left_held(self, job: Queued, expected: Expected) -> bool:
        """Return whether Slurm put the job back into the queue when it had just ended or was just cancelled."""
        if not job.held:
            return False
        log = self.scene.folder / f"{expected.job_id}.log"
        over = log.exists() and any(line.what == "end" for line in parse_log(log.read_text()))
        cancelled_s = expected.cancelled_s
        return over or (cancelled_s is not None and time.time() > cancelled_s + 2.0)

    def _waits_in_vain(self, expected: Expected, queue: Mapping[str, Queued]) -> bool:
        """Return whether a job that it depends on has ended in a way that forbids it to start."""
        for kind, label in expected.spec.after:
            parents = self.scene.model.labels.get(label, ())
            if kind == "afterok" and not any(parent in queue for parent in parents):
                for parent in parents:
                    found = self.scene.model.jobs[parent]
                    if found.never or found.spec.exit_code or found.cancelled_s is not None or found.maybe_cancelled:
                        return True
        return False

    def _cancel(self, expected: Expected) -> None:
        self.scene.world.user(None, "scancel", expected.job_id)
        expected.maybe_cancelled = True

    def _stands_still(self, queue: Mapping[str, Queued]) -> bool:
        """Return whether nothing has changed for long; a job that runs changes its log."""
        now = (sorted((job.job_id, job.state) for job in queue.values()), self._log_size())
        if now != self._before:
            self._before, self._still_since_s = now, time.monotonic()
        return self._still_for_s > _UNCHANGED_S

    @property
    def _still_for_s(self) -> float:
        return time.monotonic() - self._still_since_s

    def _log_size(self) -> int:
        return sum(path.stat().st_size for path in self.scene.folder.glob("*.log"))

    def _give_up(self, queue: Mapping[str, Queued]) -> None:
        log = ClusterFiles(self.scene.folder.parents[1]).log_of(CONTROLLER)
        miscounted = _MISCOUNTED in log.read_text(errors="replace")
        for job in queue.values():
            if miscounted and job.reason in _NO_ROOM:
                self.scene.model.known.append(
                    f"slurmctld has lost count of the GPUs of its nodes, and does not start {job}"
                )
                continue
            # A hold changes nothing of a job that is held, so what is reported below is as it was.
            if job.held and _UNRECORDED in self.scene.world.user(None, "scontrol", "hold", job.job_id)[1]:
                self.scene.model.known.append(f"Slurm lets nobody change {job}: its accounting has no record of it")
                if (expected := self.scene.model.jobs.get(job.job_id)) is not None:
                    expected.maybe_cancelled = True
                continue
            shown = self.scene.world.user(None, "scontrol", "-o", "show", "job", job.job_id)[1]
            why = self.scene.world.headway.headway("why", job.job_id, check=False).stdout
            self.scene.model.broken(RealPromise.NOT_HELD_FOR_EVER, job.job_id, f"{job}\n{shown}\n{why}")
            if (expected := self.scene.model.jobs.get(job.job_id)) is not None:
                expected.maybe_cancelled = True
        self.scene.world.user(None, "scancel", *queue)
        self._still_since_s = time.monotonic()


def drain_story(scene: Scene) -> list[str]:
    """Wait until every job of the story has ended and the nodes are idle. Return the events that the known limits explain."""
    known = _Drain(scene).run()
    with suppress(MiniClusterError):
        scene.world.cluster.wait_idle(_IDLE_S)
        return known
    known.append(f"nodes are not idle: {scene.world.cluster.node_states()}")
    return known
