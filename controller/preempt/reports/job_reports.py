"""Newest reports of agents about each run of a job, node by node: its ranks there, checkpoints, and steps.

This table has only the present; the measurements of the past are in the store of profiles.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from controller.profiles.windows import NS, RunKey
from protos.headway.v1 import agent_pb2

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
    """Steps done at the checkpoint from which the run began; None: it began without one."""
    saved_step: int | None
    """Steps done at its newest complete checkpoint; None: none yet."""
    stepped_ago_s: float | None
    """Time from the end of its first step to the report, seconds; None: it has not made one."""
    usr1: Usr1 | None = None
    """None: the agent does not know."""
    steps: int | None = None
    """Optimizer steps of its slowest rank there since the run began; None: none has made one."""

    @property
    def steps_done(self) -> int:
        """Optimizer steps of all runs together, those before the checkpoint from which it began included."""
        return (self.restored_step or 0) + (self.steps or 0)


class ReportTable:
    """Invariant: for each run and node only the newest report is kept, and none for runs and nodes that are gone."""

    def __init__(self) -> None:
        self.watching: set[str] = set()
        """Nodes whose agents have reported the effect of signals on a run: they report it for every run."""
        self._runs: dict[RunKey, dict[str, NodeReport]] = {}

    def take(self, node: str, report: agent_pb2.AgentReport) -> tuple[RunKey, NodeReport] | None:
        """Record a report. Returns its run and the facts about it; None when it is not about a run."""
        match report.WhichOneof("kind"):
            case "job":
                run, found = _run(report.job.job), _node_report(report.job)
                self._runs.setdefault(run, {})[node] = found
                if found.usr1 is not None:
                    self.watching.add(node)
                return run, found
            case "ended":
                run = _run(report.ended.job)
                nodes = self._runs.get(run, {})
                nodes.pop(node, None)
                if not nodes:
                    self._runs.pop(run, None)
                return None
            case _:
                return None

    def of(self, run: RunKey) -> Mapping[str, NodeReport]:
        """Return the reports about a run, by node."""
        return self._runs.get(run, _NO_REPORTS)

    def keep(self, job_ids: Collection[int], nodes: Collection[str]) -> None:
        """Keep only runs of these jobs (Slurm's own numbers), and facts about the agents of these nodes."""
        self.watching.intersection_update(nodes)
        for run in [run for run in self._runs if run.job_id not in job_ids]:
            del self._runs[run]


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
    )
