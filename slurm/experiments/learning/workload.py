"""The workload of the experiment: elastic jobs of one mix, on the cluster and in the history that is there beforehand."""

from __future__ import annotations

import math
import random
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

from policies.learned.dl2.learning.record import JobRecord
from slurm.experiments.errors import ExperimentError

FILE = Path(__file__).with_name("workload.toml")
EPOCHS = (10, 100)
STEP_S = 0.5
"""Time of a step on one GPU."""
REDUCE_S = 0.03
"""Time that each further GPU adds to a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The entries of the file; `workload.toml` says what they are."""

    jobs: int
    seed: int
    gap_s: float
    shortest_s: float
    longest_s: float
    history_jobs: int
    history_seed: int
    slot_s: float
    learn_rounds: int
    nodes: int
    gpus: int

    @classmethod
    def read(cls, path: Path) -> Workload:
        """Read a file. Raises ExperimentError for one with other entries or types."""
        try:
            values = tomllib.loads(path.read_text())
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise ExperimentError(f"{path}: {error}") from error
        kinds = {each.name: float if each.type == "float" else int for each in fields(cls)}
        if values.keys() != kinds.keys() or any(type(values[name]) is not kind for name, kind in kinds.items()):
            raise ExperimentError(f"{path}: give exactly these numbers: {', '.join(kinds)}; times with a decimal point")
        return cls(**values)


@dataclass(frozen=True, slots=True)
class LearningJob:
    """One job, which takes from 1 to `most_gpus` GPUs and asks for `gpus`."""

    name: str
    gpus: int
    most_gpus: int
    steps: int
    epochs: int
    submit_s: float
    """Seconds after the run's start."""


def step_s(gpus: int) -> float:
    """Return the time of a step on so many GPUs, seconds; the batch over all GPUs is always the same."""
    return STEP_S / gpus + REDUCE_S * (gpus - 1)


def arrivals(jobs: int, seed: int, workload: Workload) -> tuple[LearningJob, ...]:
    """Return a number of jobs; the same seed always gives the same.

    Durations at the requested size are log-uniform, gaps exponential.
    """
    draw = random.Random(seed)  # noqa: S311 - a workload
    made, submit_s = [], 0.0
    for number in range(1, jobs + 1):
        gpus = draw.choice((1, 2, 4))
        seconds = math.exp(draw.uniform(math.log(workload.shortest_s), math.log(workload.longest_s)))
        steps = max(10, round(seconds / step_s(gpus)))
        epochs = round(math.exp(draw.uniform(*map(math.log, EPOCHS))))
        most = workload.nodes * workload.gpus
        made.append(LearningJob(f"job{number:03}", gpus, most, steps, epochs, round(submit_s, 2)))
        submit_s += draw.expovariate(1.0 / workload.gap_s)
    return tuple(made)


def history(workload: Workload, end_s: float) -> Iterator[JobRecord]:
    """Yield records of jobs that ran in their requested sizes, first come, first served; the last one ended at that Unix time."""
    jobs = arrivals(workload.history_jobs, workload.history_seed, workload)
    free_s = [0.0] * (workload.nodes * workload.gpus)
    spans = []
    for job in jobs:
        free_s.sort()
        begin_s = max(job.submit_s, free_s[job.gpus - 1])
        spans.append((begin_s, begin_s + job.steps * step_s(job.gpus)))
        free_s[: job.gpus] = [spans[-1][1]] * job.gpus
    moved_s = end_s - max(finish_s for _, finish_s in spans)
    for job, (begin_s, finish_s) in zip(jobs, spans, strict=True):
        yield JobRecord(
            job_id=f"before-{job.name}",
            submit_time_s=job.submit_s + moved_s,
            finish_time_s=finish_s + moved_s,
            num_gpus=job.gpus,
            min_gpus=1,
            max_gpus=job.most_gpus,
            model="",
            batch_size=-1,
            epochs=float(job.epochs),
            service_s=finish_s - begin_s,
            sizes=((job.gpus, finish_s - begin_s),),
            final_state="COMPLETED",
        )
