"""The cluster on which policies resize jobs, and its preemptions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from slurm.experiments.elastic.mix import WIDTH, ElasticJob
from slurm.experiments.turns.live_cluster import LiveCluster, booted


@dataclass(frozen=True, slots=True)
class Ended:
    """One job that has ended. Times are in seconds since the Unix epoch."""

    name: str
    submit_s: float
    begin_s: float
    """First step of its first run."""
    end_s: float
    gpus: tuple[int, ...]
    """GPUs of each run."""
    first_steps: tuple[int, ...] = ()
    """First step of each run."""
    job_id: str = ""

    @property
    def jct_s(self) -> float:
        """From submission to end."""
        return self.end_s - self.submit_s


@dataclass(frozen=True, slots=True)
class Stops:
    """Preemptions in a time span."""

    count: int
    resumed: int
    """Those after which the job trained again."""
    called_off: int
    adjusting_s: float
    """Time from the save of all ranks to the first step of the next run, added up over jobs, waiting included."""
    restarting_s: float
    """The part of it from the start of the next run."""
    saved_steps: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Step of the save of each preemption after which the job was started again, by job id."""
    why: tuple[str, ...] = ()
    """The policy's reason of each preemption."""


@dataclass
class ElasticCluster(LiveCluster):
    """A cluster for jobs that can have several sizes."""

    _submitted_s: dict[str, float] = field(default_factory=dict)

    def start(self, job: ElasticJob, name: str) -> None:
        """Submit a job in the size that it asks for."""
        options = (
            f"--job-name={job.kind} --gpus={job.gpus} --ntasks=1 --time=60",
            f"--comment=headway=min-gpus:1+max-gpus:{job.most_gpus}+steps:{job.steps}+epochs:{job.epochs}",
        )
        self._submitted_s[name] = time.time()
        self.submit(name, options, f"{job.steps} {job.layers} {WIDTH} {job.compute_s} divided")

    def ended(self, name: str) -> Ended:
        """Return the facts about a job that has trained to its end."""
        runs = self.runs_of(name)
        end_s = (self.folder / f"{name}.runs").stat().st_mtime
        gpus = tuple(int(gpus) for _, gpus, _ in runs)
        first = tuple(int(step) for step, _, _ in runs)
        return Ended(name, self._submitted_s[name], float(runs[0][2]), end_s, gpus, first, self.id_of(name))

    def stops(self, since_s: float) -> Stops:
        """Return the preemptions since then."""
        query = "SELECT raw_id, step, saved_s, started_s, resumed_s, stage, why FROM preemption WHERE asked_s >= ? ORDER BY number"
        rows = self.journal(query, since_s)
        whole = [times for _, _, *times, _, _ in rows if all(times)]
        saved: dict[str, tuple[int, ...]] = {}
        for job, step, _, started, *_ in rows:
            if step is not None and started:
                saved[str(job)] = (*saved.get(str(job), ()), step)
        return Stops(
            count=len(rows),
            resumed=len(whole),
            called_off=sum(stage == "called off" for *_, stage, _ in rows),
            adjusting_s=sum(resumed - saved for saved, _, resumed in whole),
            restarting_s=sum(resumed - started for _, started, resumed in whole),
            saved_steps=saved,
            why=tuple(why for *_, why in rows),
        )


@contextmanager
def elastic_cluster(nodes: int, gpus: int, stops: int, report: Callable[[str], None]) -> Iterator[ElasticCluster]:
    """Boot a cluster with agents, and a controller that lets policies stop and resize jobs, each at most `stops` times an hour.
    Remove everything at the end."""
    settings = {
        "preemption": "automatic",
        "preemption_min_run_s": 5.0,
        "preemption_cooldown_s": 0.0,
        "preemption_budget_per_hour": 10_000,
        "preemption_moves_per_hour": stops,
    }
    with booted("elastic", report, settings, nodes=nodes, gpus=gpus) as parts:
        yield ElasticCluster(*parts)
