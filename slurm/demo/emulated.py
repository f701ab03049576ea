"""The demonstration without a real Slurm: the same controller and policy server, beside an emulated cluster.

Jobs only pass the time here: they train nothing and share no links, so this shows decisions, not contention.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from controller.clock import VirtualClock
from controller.slurm.embedded import (
    ClusterDescription,
    EmbeddedSlurm,
    JobDescription,
    NodeDescription,
    PartitionDescription,
)
from slurm.demo.driver import World
from slurm.demo.history import History, RunResult
from slurm.demo.mix import GPUS_PER_NODE, NODES, Size, Training
from slurm.demo.reading import view_of
from slurm.demo.services import Headway
from slurm.demo.view import ClusterView, JobView, NodeView, Stage

if TYPE_CHECKING:
    from protos.headway.v1 import admin_pb2

PARTITION = "dl"
LEAD_S = 6.0
"""The first job comes so long after the emulated cluster's start: the controller must be there by then."""
_DURATIONS_S: dict[Size, float] = {"small": 5.0, "medium": 6.0, "large": 8.0}
_LOOK_EVERY_S = 0.5
_MOST_LOOKS = 4000
_LIMIT_S_PER_MIN = 30.0
"""Time limits shrink as run times do."""


def emulated_mix(mix: Sequence[Training]) -> tuple[Training, ...]:
    """The mix in the emulation's terms: GPUs per node, and tasks of arrays one by one."""
    return tuple(
        replace(
            training,
            name=name,
            array=0,
            request=(f"-N{training.nodes}", f"--gpus-per-node={training.gpus // training.nodes}"),
        )
        for training in mix
        for name in training.labels
    )


def describe(mix: Sequence[Training], lead_s: float) -> ClusterDescription:
    """The cluster with its jobs, the first of which comes after `lead_s`."""
    return ClusterDescription(
        name="demo",
        nodes=(NodeDescription(names=f"n[1-{NODES}]", gpus=GPUS_PER_NODE),),
        partitions=(PartitionDescription(name=PARTITION),),
        jobs=tuple(
            JobDescription(
                at_s=lead_s + training.submit_at_s,
                duration_s=_DURATIONS_S[training.size],
                gpus=training.gpus // training.nodes,
                nodes=training.nodes,
                name=training.name,
                time_limit_s=training.time_limit_min * _LIMIT_S_PER_MIN,
            )
            for training in mix
        ),
    )


def write_description(path: Path, description: ClusterDescription) -> None:
    """As the TOML file that `embedded_cluster` names."""
    lines = [f'name = "{description.name}"']
    for node in description.nodes:
        lines += ["[[nodes]]", f'names = "{node.names}"', f"gpus = {node.gpus}"]
    for partition in description.partitions:
        lines += ["[[partitions]]", f'name = "{partition.name}"']
    for job in description.jobs:
        lines += ["[[jobs]]", f'name = "{job.name}"', f"at_s = {job.at_s}", f"duration_s = {job.duration_s}"]
        lines += [f"gpus = {job.gpus}", f"nodes = {job.nodes}", f"time_limit_s = {job.time_limit_s}"]
    path.write_text("\n".join(lines) + "\n")


class EmulatedWorld(World):
    """The emulated cluster inside the controller's process, seen through the Admin service. Its jobs submit themselves."""

    def __init__(self, headway: Headway, scheduler: str) -> None:
        self.scheduler = scheduler
        self.rate_mbps = None
        self._headway = headway
        self._jobs: dict[str, JobView] = {}

    def submit(self, training: Training) -> None:
        """Nothing to do: the emulated cluster knows when."""

    def look(self) -> ClusterView:
        """The controller's queue; jobs that have left it have ended."""
        self._headway.require_alive()
        now_s = time.time()
        entries = self._headway.admin.queue().entries
        queued = {entry.name: _queued(entry) for entry in entries}
        for label, job in self._jobs.items():
            if label not in queued and not job.stage.ended:
                self._jobs[label] = self._ended(job)
        self._jobs |= queued
        return ClusterView(now_s, dict(self._jobs), _nodes(queued.values()))

    def reason(self, job: JobView) -> str:
        """The policy's reason."""
        return self._headway.reason(job.job_id)

    def last_words(self, label: str) -> str:
        """Nobody says anything here."""
        del label
        return "emulated jobs leave no log"

    def step_ms(self) -> Mapping[str, float]:
        """Nobody trains here."""
        return {}

    def _ended(self, job: JobView) -> JobView:
        facts = self._headway.admin.why(job.job_id).facts
        end_s, state = facts.get("end_time_s"), facts.get("slurm_state", "")
        if end_s is None:  # between two looks of the controller
            return job
        return replace(job, stage=Stage.DONE if state == "COMPLETED" else Stage.FAILED, end_s=float(end_s), state=state)


def _queued(entry: admin_pb2.QueueEntry) -> JobView:
    runs = entry.state == "running"
    return JobView(
        label=entry.name,
        job_id=entry.job_id,
        stage=Stage.RUNNING if runs else Stage.WAITING,
        gpus=_parse_placement(entry.placement) if runs else (),
        submit_s=entry.submit_time_s,
        start_s=entry.submit_time_s + entry.wait_s if runs else None,
        why="" if runs else entry.why,
    )


def _parse_placement(text: str) -> tuple[tuple[str, int], ...]:
    """Node → GPUs of a text such as n1:8,n2:4."""
    pairs = (part.rpartition(":") for part in text.split(",") if part)
    return tuple((node, int(count)) for node, _, count in pairs)


def _nodes(jobs: Iterable[JobView]) -> tuple[NodeView, ...]:
    """Which GPUs exactly is not told here: each job takes the lowest that are left."""
    owners: dict[str, list[str]] = {f"n{number}": [] for number in range(1, NODES + 1)}
    for job in jobs:
        for node, count in job.gpus:
            owners[node] += [job.label] * count
    return tuple(NodeView(node, tuple((held + [""] * GPUS_PER_NODE)[:GPUS_PER_NODE])) for node, held in owners.items())


def slurm_alone(mix: Sequence[Training]) -> RunResult:
    """The same jobs on the same emulated cluster without Headway: Slurm's own pass and backfill, on a virtual clock."""
    clock = VirtualClock()
    slurm = EmbeddedSlurm(describe(mix, lead_s=0.0), clock)
    ours = {str(number): training.name for number, training in enumerate(_by_arrival(mix), start=1)}
    history = History(mix)

    async def run() -> None:
        for _ in range(_MOST_LOOKS):
            await clock.advance(_LOOK_EVERY_S)
            history.update(view_of(await slurm.client.snapshot(), ours, {}))
            if history.all_ended:
                return

    asyncio.run(run())
    return history.result("Slurm's backfill", {})


def _by_arrival(mix: Sequence[Training]) -> list[Training]:
    """In the order in which slurmctld numbers them."""
    return sorted(mix, key=lambda training: training.submit_at_s)
