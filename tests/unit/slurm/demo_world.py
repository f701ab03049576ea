"""A cluster out of nothing for tests of the demonstration: jobs that start and end when the test says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.slurm.model.cluster import SlurmNode, SlurmSnapshot
from controller.slurm.model.job import NodeShare, Phase, SlurmJob
from slurm.demo.display.screen import Frame
from slurm.demo.display.view import ClusterView, JobView, NodeView, Stage
from slurm.demo.run.driver import World
from slurm.demo.workload import Training
from tests.unit.controller.examples.build import job

EPOCH_S = 1_800_000_000.0


def training(name: str = "bert", *, submit_at_s: float = 0.0, array: int = 0) -> Training:
    """One script of two nodes with four GPUs each."""
    return Training(
        name=name,
        size="medium",
        request=("-N2", "--gres=gpu:4"),
        nodes=2,
        gpus=8,
        steps=10,
        time_limit_min=4,
        submit_at_s=submit_at_s,
        array=array,
    )


class FakeTimer:
    """Time that passes only in sleep."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def now(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += max(seconds, 0.01)


class FakeWorld(World):
    """Jobs wait `wait_s` and run `run_s`, on two nodes each."""

    def __init__(
        self, timer: FakeTimer, *, wait_s: float = 2.0, run_s: float = 5.0, verdict: str = "COMPLETED"
    ) -> None:
        self.scheduler = "the fake"
        self.rate_mbps = None
        self.submitted: dict[str, float] = {}
        self._timer = timer
        self._wait_s = wait_s
        self._run_s = run_s
        self._verdict = verdict

    def submit(self, training: Training) -> None:
        self.submitted |= dict.fromkeys(training.labels, self._timer.now_s)

    def look(self) -> ClusterView:
        jobs = {label: self._job(label, at_s) for label, at_s in self.submitted.items()}
        return ClusterView(EPOCH_S + self._timer.now_s, jobs, (NodeView("n1", ("",) * 8),))

    def reason(self, job: JobView) -> str:
        return f"best fit for {job.label}"

    def end_of_log(self, label: str) -> str:
        return f"{label} said nothing"

    def step_ms(self) -> Mapping[str, float]:
        return dict.fromkeys(self.submitted, 100.0)

    def _job(self, label: str, submitted_s: float) -> JobView:
        age_s = self._timer.now_s - submitted_s
        started, ended = age_s >= self._wait_s, age_s >= self._wait_s + self._run_s
        stage = Stage.WAITING
        if started:
            stage = Stage.RUNNING
        if ended:
            stage = Stage.DONE if self._verdict == "COMPLETED" else Stage.FAILED
        begun_s = EPOCH_S + submitted_s
        return JobView(
            label=label,
            job_id="1",
            stage=stage,
            gpus=(("n1", 4), ("n2", 4)) if started and not ended else (),
            submit_s=begun_s,
            start_s=begun_s + self._wait_s if started else None,
            end_s=begun_s + self._wait_s + self._run_s if ended else None,
            why="" if started else "Resources",
            state=self._verdict if ended else stage.name,
        )


@dataclass
class FakeScreen:
    """Keeps what it is shown."""

    lines: list[str] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    closed: bool = False

    def say(self, text: str) -> None:
        self.lines.append(text)

    def show(self, frame: Frame) -> None:
        self.frames.append(frame)

    def close(self) -> None:
        self.closed = True


def slurm_job(
    job_id: str,
    name: str = "bert",
    phase: Phase = Phase.RUNNING,
    *,
    shares: tuple[NodeShare, ...] = (),
    state: str | None = None,
    reason: str = "None",
    start_s: float | None = EPOCH_S + 2,
    end_s: float | None = None,
) -> SlurmJob:
    """A job as the Slurm client returns it."""
    return job(
        job_id,
        submit=int(EPOCH_S),
        name=name,
        phase=phase,
        state=state or phase.name,
        reason=reason,
        allocated=shares,
        start_time_s=start_s,
        end_time_s=end_s,
        array_job_id=int(job_id.partition("_")[0]) if "_" in job_id else None,
    )


def share(node: str, gpus: int, gpu_mask: int = 0) -> NodeShare:
    """Share of a node that a job holds."""
    return NodeShare(node, gpus, gpu_mask, cpus=1, memory_mib=1000)


def snapshot(*jobs: SlurmJob) -> SlurmSnapshot:
    """Two nodes of eight GPUs, and these jobs."""
    nodes = tuple(
        SlurmNode(name, "IDLE", True, 8, "", 64, 256_000, frozenset(), frozenset({"dl"}), "") for name in ("n1", "n2")
    )
    return SlurmSnapshot(EPOCH_S + 10, jobs, nodes, (), ())
