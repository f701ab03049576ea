"""The demonstration without a real Slurm: the same controller and policy server, with an emulated cluster.

Jobs train nothing here, but each step takes as long as on a real cluster: computation, and the reduction of gradients over NICs,
which jobs on the same nodes share max-min fairly. So a job on two nodes where one is sufficient takes longer, and so do the jobs
with which it shares a NIC.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from controller.base.clock import VirtualClock
from controller.slurm.embedded import (
    ClusterDescription,
    EmbeddedSlurm,
    JobDescription,
    NodeDescription,
    PartitionDescription,
)
from simulator.slowdown.links.ring import sent_bytes
from simulator.slowdown.profiles.files import load_profiles
from slurm.demo.display.history import History, RunResult
from slurm.demo.display.reading import view_of
from slurm.demo.display.view import ClusterView, JobView, NodeView, Stage
from slurm.demo.run.driver import World
from slurm.demo.run.services import Headway
from slurm.demo.workload import GPUS_PER_NODE, NODES, Training
from slurm.minicluster.spec import parse_rate

if TYPE_CHECKING:
    from protos.headway.v1 import admin_pb2

PARTITION = "dl"
LEAD_S = 6.0
"""Seconds from the start of the emulated cluster to its first job; the controller must be up by then."""
PROFILES = Path(__file__).with_name("profiles.toml")
RATE = "200mbit"
"""Default bandwidth of a NIC."""
_LOOK_EVERY_S = 0.5
_MOST_LOOKS = 4000
_LIMIT_S_PER_MIN = 30.0
"""Seconds of emulated time limit for each minute of the real one: run times are shorter, too."""


def emulated_mix(mix: Sequence[Training]) -> tuple[Training, ...]:
    """Return the mix for the emulation: GPUs per node (or in total, where the job names only these), and single tasks of arrays."""
    return tuple(
        replace(training, name=name, array=0, request=_request(training))
        for training in mix
        for name in training.labels
    )


def _request(training: Training) -> tuple[str, ...]:
    if _most_nodes(training) is not None:
        return training.request
    return f"-N{training.nodes}", f"--gpus-per-node={training.gpus // training.nodes}"


def _most_nodes(training: Training) -> int | None:
    """Return the most nodes of a job with --gpus, one for each task; None when the job names its nodes."""
    if not any(option.startswith("--gpus=") for option in training.request):
        return None
    return next(int(option.removeprefix("-n")) for option in training.request if option.startswith("-n"))


def describe(mix: Sequence[Training], lead_s: float, rate: str = RATE) -> ClusterDescription:
    """Return the cluster with its jobs, the first of them at `lead_s`. Raises SpecError for an invalid rate."""
    nic_gbs = parse_rate(rate) / 8e9
    return ClusterDescription(
        name="demo",
        nodes=(NodeDescription(names=f"n[1-{NODES}]", gpus=GPUS_PER_NODE),),
        partitions=(PartitionDescription(name=PARTITION),),
        slowdown=("max-min",),
        profiles=PROFILES,
        network={"nic_gbs": nic_gbs},
        jobs=tuple(
            JobDescription(
                at_s=lead_s + training.submit_at_s,
                duration_s=_alone_s(training, nic_gbs),
                gpus=training.gpus // training.nodes,
                nodes=training.nodes,
                max_nodes=_most_nodes(training),
                name=training.name,
                model=training.size,
                time_limit_s=training.time_limit_min * _LIMIT_S_PER_MIN,
            )
            for training in mix
        ),
    )


def _alone_s(training: Training, nic_gbs: float) -> float:
    """Return the time of all steps, alone on the smallest number of nodes with enough GPUs: speed 1 for `max-min`."""
    profile = load_profiles(PROFILES).of(training.size)
    nodes = -(-training.gpus // GPUS_PER_NODE)
    return training.steps * profile.step_s(sent_bytes(profile, nodes) / (nic_gbs * 1e9))


def write_description(path: Path, description: ClusterDescription) -> None:
    """Write the TOML file for the setting `embedded_cluster`."""
    top = description.model_dump(mode="json", include={"name", "slowdown", "profiles"})
    lines = _pairs(top)
    for heading, tables in (
        ("[[nodes]]", [node.model_dump(include={"names", "gpus"}) for node in description.nodes]),
        ("[[partitions]]", [partition.model_dump(include={"name"}) for partition in description.partitions]),
        ("[network]", [description.network]),
        ("[[jobs]]", [job.model_dump(exclude_none=True, exclude_defaults=True) for job in description.jobs]),
    ):
        for table in tables:
            lines += [heading, *_pairs(table)]
    path.write_text("\n".join(lines) + "\n")


def _pairs(table: Mapping[str, object]) -> list[str]:
    """Return TOML lines; TOML and JSON write strings, numbers and lists of them alike."""
    return [f"{key} = {json.dumps(value)}" for key, value in table.items()]


class EmulatedWorld(World):
    """The emulated cluster inside the process of the controller, viewed through the Admin service. It submits its jobs itself."""

    def __init__(self, headway: Headway, scheduler: str, mix: Sequence[Training]) -> None:
        self.scheduler = scheduler
        self.rate_mbps = None
        self._headway = headway
        self._mix = mix
        self._jobs: dict[str, JobView] = {}

    def submit(self, training: Training) -> None:
        """Do nothing: the emulated cluster submits its jobs itself."""

    def look(self) -> ClusterView:
        """Return a view of the controller's queue; jobs that have left it have ended."""
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
        """Return the reason that the policy gave."""
        return self._headway.reason(job.job_id)

    def end_of_log(self, label: str) -> str:
        """Return a fixed text: emulated jobs have no logs."""
        del label
        return "emulated jobs leave no log"

    def step_ms(self) -> Mapping[str, float]:
        """Return mean step times, from the run times of the jobs, which consist of steps only."""
        return step_ms(self._mix, self._jobs)

    def _ended(self, job: JobView) -> JobView:
        facts = self._headway.admin.why(job.job_id).facts
        end_s, state = facts.get("end_time_s"), facts.get("slurm_state", "")
        if end_s is None:  # the controller has not seen the end yet
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
    """Return pairs of node and GPUs for a text such as n1:8,n2:4."""
    pairs = (part.rpartition(":") for part in text.split(",") if part)
    return tuple((node, int(count)) for node, _, count in pairs)


def _nodes(jobs: Iterable[JobView]) -> tuple[NodeView, ...]:
    """Return the nodes with their jobs. The queue does not give GPU indices: each job gets the lowest free ones."""
    owners: dict[str, list[str]] = {f"n{number}": [] for number in range(1, NODES + 1)}
    for job in jobs:
        for node, count in job.gpus:
            owners[node] += [job.label] * count
    return tuple(
        NodeView(node, tuple((labels + [""] * GPUS_PER_NODE)[:GPUS_PER_NODE])) for node, labels in owners.items()
    )


def step_ms(mix: Sequence[Training], jobs: Mapping[str, JobView]) -> dict[str, float]:
    """Return the mean step time of each completed job, by label."""
    steps = {label: training.steps for training in mix for label in training.labels}
    return {
        label: 1000 * (job.end_s - job.start_s) / steps[label]
        for label, job in jobs.items()
        if job.stage is Stage.DONE and job.start_s is not None and job.end_s is not None
    }


def slurm_alone(mix: Sequence[Training], rate: str = RATE) -> RunResult:
    """Run the same jobs on the same emulated cluster with Slurm's own scheduler and backfill, on a virtual clock."""
    clock = VirtualClock()
    slurm = EmbeddedSlurm(describe(mix, 0.0, rate), clock)
    ours = {str(number): training.name for number, training in enumerate(_by_arrival(mix), start=1)}
    history = History(mix)

    async def run() -> None:
        for _ in range(_MOST_LOOKS):
            await clock.advance(_LOOK_EVERY_S)
            history.update(view_of(await slurm.client.snapshot(), ours, {}))
            if history.all_ended:
                return

    asyncio.run(run())
    return history.result("Slurm's backfill", step_ms(mix, history.jobs))


def _by_arrival(mix: Sequence[Training]) -> list[Training]:
    """Return the jobs in the order in which slurmctld numbers them."""
    return sorted(mix, key=lambda training: training.submit_at_s)
