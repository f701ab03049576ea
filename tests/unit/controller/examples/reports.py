"""Reports of made-up agents, for tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count

from controller.profiles.sightings import Arrival
from protos.headway.v1 import agent_pb2

SIGNATURE = "ab" * 32
NS = 1_000_000_000


@dataclass(frozen=True)
class Training:
    """A job that steps at a steady rate on some nodes from `start_s` to `end_s`."""

    job_id: int
    nodes: tuple[str, ...]
    steps_per_s: float
    start_s: float = 0.0
    end_s: float = 1e9
    restart: int = 0
    uid: int = 1000
    script: str = "train.py"
    signature: str = SIGNATURE
    gpus: int | None = 1
    """On each node."""
    ranks: int = 1
    world_size: int | None = None
    batch_size: int | None = None
    first_seen_s: float | None = None
    """Time at which the agent first saw the job; None: not reported."""

    def report(self, node: str, at_s: float) -> agent_pb2.AgentReport:
        """Return the report of that node's agent at that time; steps end exactly when they are due."""
        at = self.nodes.index(node)
        steps = int((at_s - self.start_s) * self.steps_per_s)
        job = agent_pb2.JobReport(
            job=agent_pb2.JobName(job_id=self.job_id, uid=self.uid, restart=self.restart),
            script=self.script,
            ranks=range(at * self.ranks, (at + 1) * self.ranks),
            world_size=self.ranks * len(self.nodes) if self.world_size is None else self.world_size,
            model=self._model(),
            monotonic_ns=int(at_s * NS),
            first_seen_ns=0 if self.first_seen_s is None else int(self.first_seen_s * NS),
        )
        if steps:
            job.steps = steps
            job.last_step_ns = int((self.start_s + steps / self.steps_per_s) * NS)
        if self.gpus is not None:
            job.gpus.CopyFrom(agent_pb2.GpuSet(index=range(self.gpus)))
            job.idle_gpus.CopyFrom(agent_pb2.GpuSet())
        return agent_pb2.AgentReport(time_s=at_s, job=job)

    def _model(self) -> agent_pb2.JobModel:
        return agent_pb2.JobModel(signature=self.signature, param_bytes=4_000_000, batch_size=self.batch_size)

    def profile(
        self,
        at_s: float,
        step: Mapping[str, float],
        kinds: Mapping[str, float],
        links: Mapping[str, float] | None = None,
    ) -> agent_pb2.AgentReport:
        """A profile; `step` has the times, `kinds` bytes by kind, `links` those of them that load the links between nodes."""
        links = {} if links is None else links
        return agent_pb2.AgentReport(
            time_s=at_s,
            profile=agent_pb2.JobProfile(
                job=agent_pb2.JobName(job_id=self.job_id, uid=self.uid, restart=self.restart),
                script=self.script,
                model=self._model(),
                steps=20,
                kinds=[
                    agent_pb2.CollectiveUse(kind=kind, count=1, bytes=size, link_bytes=links.get(kind))
                    for kind, size in kinds.items()
                ],
                **step,
            ),
        )


class Agents:
    """Numbers reports as agents do."""

    def __init__(self, run_id: str = "a" * 32) -> None:
        self.run_id = run_id
        self._numbers: dict[str, Iterator[int]] = {}

    def arrival(self, node: str, report: agent_pb2.AgentReport, late_s: float = 0.0) -> Arrival:
        report.number = next(self._numbers.setdefault(node, count(1)))
        return Arrival(node, self.run_id, report, report.time_s + late_s)

    def watch(
        self, jobs: Iterable[Training], start_s: float, end_s: float, every_s: float = 5.0, late_s: float = 0.0
    ) -> list[Arrival]:
        """Return all agents' reports of that time range."""
        found, at_s = [], start_s
        while at_s < end_s:
            for job in jobs:
                if job.start_s <= at_s < job.end_s:
                    found += [self.arrival(node, job.report(node, at_s), late_s) for node in job.nodes]
            at_s += every_s
        return found
