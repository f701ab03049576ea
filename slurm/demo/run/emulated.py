"""The demonstration without a real Slurm: the same controller and policy server, beside an emulated cluster.

Jobs train nothing here, but each step takes as long as it would: computing, and reducing its gradients over NICs that jobs
on the same nodes share max-min fairly. So a job that lies on two nodes where one would do takes longer, and so does
whoever shares a NIC with it.
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
"""The first job comes so long after the emulated cluster's start: the controller must be there by then."""
PROFILES = Path(__file__).with_name("profiles.toml")
RATE = "200mbit"
"""Bandwidth of a NIC, unless another is asked for."""
_LOOK_EVERY_S = 0.5
_MOST_LOOKS = 4000
_LIMIT_S_PER_MIN = 30.0
"""Time limits shrink as run times do."""


def emulated_mix(mix: Sequence[Training]) -> tuple[Training, ...]:
    """The mix in the emulation's terms: GPUs per node, or in all where the job says no more, and tasks of arrays one by one."""
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
    """Over how many nodes a job may spread that asks for its GPUs in all (--gpus): one for each task; None: it says itself."""
    if not any(option.startswith("--gpus=") for option in training.request):
        return None
    return next(int(option.removeprefix("-n")) for option in training.request if option.startswith("-n"))


def describe(mix: Sequence[Training], lead_s: float, rate: str = RATE) -> ClusterDescription:
    """The cluster with its jobs, the first of which comes after `lead_s`. Raises SpecError for what is no rate."""
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
    """How long its steps take alone on the fewest nodes that have room for its GPUs: what speed 1 means for `max-min`."""
    profile = load_profiles(PROFILES).of(training.size)
    nodes = -(-training.gpus // GPUS_PER_NODE)
    return training.steps * profile.step_s(sent_bytes(profile, nodes) / (nic_gbs * 1e9))


def write_description(path: Path, description: ClusterDescription) -> None:
    """As the TOML file that `embedded_cluster` names."""
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
    """TOML and JSON write strings, numbers and lists of them alike."""
    return [f"{key} = {json.dumps(value)}" for key, value in table.items()]


class EmulatedWorld(World):
    """The emulated cluster inside the controller's process, seen through the Admin service. Its jobs submit themselves."""

    def __init__(self, headway: Headway, scheduler: str, mix: Sequence[Training]) -> None:
        self.scheduler = scheduler
        self.rate_mbps = None
        self._headway = headway
        self._mix = mix
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
        """From the jobs' run times: they do nothing but steps."""
        return step_ms(self._mix, self._jobs)

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


def step_ms(mix: Sequence[Training], jobs: Mapping[str, JobView]) -> dict[str, float]:
    """Mean time of a step of every job that is done, by label."""
    steps = {label: training.steps for training in mix for label in training.labels}
    return {
        label: 1000 * (job.end_s - job.start_s) / steps[label]
        for label, job in jobs.items()
        if job.stage is Stage.DONE and job.start_s is not None and job.end_s is not None
    }


def slurm_alone(mix: Sequence[Training], rate: str = RATE) -> RunResult:
    """The same jobs on the same emulated cluster without Headway: Slurm's own pass and backfill, on a virtual clock."""
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
    """In the order in which slurmctld numbers them."""
    return sorted(mix, key=lambda training: training.submit_at_s)
