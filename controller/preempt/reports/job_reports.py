"""Newest reports of agents about each run of a job, node by node: its ranks there, checkpoints, and steps.

This table has only the present; the measurements of the past are in the store of profiles.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from controller.profiles.windows import NS, RunKey
from protos.headway.v1 import agent_pb2

_RUNS = 2
"""Runs of one job about which the reports of one node are kept: the present one, and the next, which Slurm may not show yet."""
_JOBS = 1000
"""Jobs about which the reports of one node are kept. A node has fewer; `keep` is not called while slurmctld does not answer."""
_NO_REPORTS: Mapping[str, NodeReport] = {}


@dataclass(frozen=True, slots=True)
class Usr1:
    """Effect that SIGUSR1, sent by Slurm, would have on the run's processes on one node."""

    caught: int
    """Number of processes that it reaches and that catch it."""
    fatal: int
    """Number of processes that Slurm started and that it would end."""


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One run on one node, as its agent last reported it."""

    ranks: tuple[int, ...]
    """Ranks that train there, ascending."""
    world_size: int | None
    saving: tuple[int, ...]
    """Ranks that save on request, ascending."""
    restored_step: int | None
    """Steps done at the checkpoint from which its present program began; None: it began without one."""
    saved_step: int | None
    """Steps done at its newest complete checkpoint; None: none yet."""
    stepped_ago_s: float | None
    """Time from the end of its first step to the report, seconds; None: it has not made one."""
    usr1: Usr1 | None = None
    """None: the agent does not know."""
    steps: int | None = None
    """Optimizer steps that its slowest rank there has made in this run; None: none has made one."""
    done: int | None = None
    """Steps that the training has done, as the agent counts; None: not known, or an older agent."""

    @property
    def steps_done(self) -> int:
        """Optimizer steps of all runs together, those before the checkpoint from which it began included.

        What a crash has lost is left out, except with an older agent, which does not see it.
        """
        return self.done if self.done is not None else (self.restored_step or 0) + (self.steps or 0)


class ReportTable:
    """Invariant: for each run and node only the newest report is kept, of each node at most `_JOBS` jobs, of each job at most
    `_RUNS` runs on a node, and none for jobs and nodes that are gone. So one agent, whatever it reports, can replace only its own
    reports."""

    def __init__(self) -> None:
        self.watching: set[str] = set()
        """Nodes whose agents have reported the effect of signals on a run: they report it for every run.
        Bound: the nodes, since `keep`."""
        self._runs: dict[RunKey, dict[str, NodeReport]] = {}
        """Newest report of each node about each run. Bound: `_RUNS` runs of `_JOBS` jobs of each node since `keep`."""
        self._restarts: dict[str, dict[int, list[int]]] = {}
        """Node → job → restarts with a report from that node; the newest reports last. Bound: `_JOBS` of each node since `keep`."""

    def take(self, node: str, report: agent_pb2.AgentReport) -> tuple[RunKey, NodeReport] | None:
        """Record a report. Returns its run and the facts about it; None when it is not about a run."""
        match report.WhichOneof("kind"):
            case "job":
                run, found = _run(report.job.job), _node_report(report.job)
                self._runs.setdefault(run, {})[node] = found
                self._forget_older(run, node)
                if found.usr1 is not None:
                    self.watching.add(node)
                return run, found
            case "ended":
                run = _run(report.ended.job)
                self._forget(run, node)
                jobs = self._restarts.get(node, {})
                restarts = jobs.get(run.job_id, [])
                if run.restart in restarts:
                    restarts.remove(run.restart)
                if not restarts:
                    jobs.pop(run.job_id, None)
                if not jobs:
                    self._restarts.pop(node, None)
                return None
            case _:
                return None

    def of(self, run: RunKey) -> Mapping[str, NodeReport]:
        """Return the reports about a run, by node."""
        return self._runs.get(run, _NO_REPORTS)

    def keep(self, job_ids: Collection[int], nodes: Collection[str]) -> None:
        """Keep only reports of these nodes about these jobs (Slurm's own numbers)."""
        self.watching.intersection_update(nodes)
        for node, jobs in list(self._restarts.items()):
            for job_id in list(jobs):
                if job_id not in job_ids or node not in nodes:
                    self._forget_job(job_id, node)
            if not jobs:
                del self._restarts[node]

    def _forget_older(self, run: RunKey, node: str) -> None:
        """Note that the node has reported about the run, and forget its reports about all but its newest runs and jobs."""
        jobs = self._restarts.setdefault(node, {})
        restarts = jobs.pop(run.job_id, [])
        jobs[run.job_id] = restarts
        if run.restart in restarts:
            restarts.remove(run.restart)
        restarts.append(run.restart)
        while len(restarts) > _RUNS:
            self._forget(RunKey(run.job_id, restarts.pop(0)), node)
        while len(jobs) > _JOBS:
            self._forget_job(next(iter(jobs)), node)

    def _forget_job(self, job_id: int, node: str) -> None:
        for restart in self._restarts[node].pop(job_id):
            self._forget(RunKey(job_id, restart), node)

    def _forget(self, run: RunKey, node: str) -> None:
        nodes = self._runs.get(run, {})
        nodes.pop(node, None)
        if not nodes:
            self._runs.pop(run, None)


def newest_step(reports: Mapping[str, NodeReport]) -> int | None:
    """Return the steps done at the newest checkpoint that all nodes have; None: a node has none."""
    known = [node.saved_step if node.saved_step is not None else node.restored_step for node in reports.values()]
    steps = [step for step in known if step is not None]
    return min(steps) if steps and len(steps) == len(known) else None


def _run(job: agent_pb2.JobName) -> RunKey:
    return RunKey(job.job_id, job.restart)


def _node_report(job: agent_pb2.JobReport) -> NodeReport:
    checkpoint = job.checkpoint
    stepped_ago_s: float | None = None
    if job.HasField("first_step_ns"):
        stepped_ago_s = max(job.monotonic_ns - job.first_step_ns, 0) * NS
    elif job.HasField("steps") and job.steps > 0:
        stepped_ago_s = 0.0
    return NodeReport(
        ranks=tuple(job.ranks),
        world_size=job.world_size if job.HasField("world_size") else None,
        saving=tuple(checkpoint.ranks),
        restored_step=checkpoint.restored_step if checkpoint.HasField("restored_step") else None,
        saved_step=checkpoint.saved_step if checkpoint.HasField("saved_step") else None,
        stepped_ago_s=stepped_ago_s,
        usr1=Usr1(job.usr1.caught, job.usr1.fatal) if job.HasField("usr1") else None,
        steps=job.steps if job.HasField("steps") else None,
        done=job.steps_done if job.HasField("steps_done") else None,
    )
