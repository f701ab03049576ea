"""The jobs of one episode as columns. A task is a worker or a parameter server of a job.

The tasks of a job have T columns: its workers come first, then its servers; columns behind them are no task. The duration of a
trace is the time of all computing alone, on the requested workers (section VI-A: the ideal time, which the paper calculates from
profiled runs), so a job has duration / computing time of a step steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simulator.errors import SettingError
from simulator.papers.marl.options import MarlOptions
from simulator.traces.trace import NS_PER_S, Trace

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
_SCHEDULER = "scheduler-"
_ROUNDED_S = 0.001


@dataclass(frozen=True, eq=False)
class Jobs:
    """Columns with an entry for each job, in order of arrival."""

    trace: Trace
    submit_s: Floats
    arrival: Ints
    """Interval at whose begin the job can first be placed."""
    scheduler: Ints
    """Scheduler that receives it."""
    model: Ints
    """Index of its model in `models`."""
    models: tuple[str, ...]
    """Names of the models that occur, in order of their names."""
    workers: Ints
    servers: Ints
    compute_s: Floats
    """Seconds of computing of a step alone."""
    gradients_gb: Floats
    """GB of gradients that a worker pushes, and pulls, in a step."""
    steps: Floats
    """Steps that the job trains."""
    is_task: Flags
    """(jobs, T)"""
    is_worker: Flags
    """(jobs, T)"""
    gpus: Ints
    """GPUs that each task requests (jobs, T)."""
    cores: Floats
    """Cores that each task requests and uses (jobs, T)."""
    pcie: Floats
    """Share of its group's PCIe that each task uses alone (jobs, T)."""

    def __len__(self) -> int:
        return len(self.arrival)

    @property
    def tasks(self) -> Ints:
        """Number of tasks of each job."""
        return self.workers + self.servers


def jobs_of(trace: Trace, options: MarlOptions, schedulers: int) -> Jobs:
    """Return the jobs of a trace.

    Jobs whose virtual cluster is no `scheduler-NUMBER` come to the schedulers in turn; without a column `num_ps` a job has as many
    servers as workers. Raises SettingError for jobs without servers.
    """
    workers = trace.num_gpus.astype(np.int64)
    servers = _servers(trace, workers)
    columns = np.arange(int((workers + servers).max(initial=1)))
    is_worker = columns < workers[:, None]
    is_task = columns < (workers + servers)[:, None]
    profiles = [options.profiles.of(model) for model in trace.model]
    cores = np.array([each.cpu for each in profiles])[:, None]
    pcie = np.array([each.pcie for each in profiles])[:, None]
    compute_s = np.array([each.step_s(0.0) for each in profiles])
    submit_s = trace.submit_ns / NS_PER_S
    models = tuple(sorted(set(trace.model)))
    return Jobs(
        trace=trace,
        submit_s=submit_s,
        # Generated times are whole milliseconds.
        arrival=np.ceil((submit_s - _ROUNDED_S) / options.interval_s).astype(np.int64),
        scheduler=_schedulers(trace, schedulers),
        model=np.array([models.index(model) for model in trace.model]),
        models=models,
        workers=workers,
        servers=servers,
        compute_s=compute_s,
        gradients_gb=np.array([each.bytes for each in profiles]) / 1e9,
        steps=trace.duration_ns / NS_PER_S / compute_s,
        is_task=is_task,
        is_worker=is_worker,
        gpus=is_worker.astype(np.int64),
        cores=np.where(is_worker, cores, np.where(is_task, options.server_cores, 0.0)),
        pcie=np.where(is_worker, pcie, 0.0),
    )


def _servers(trace: Trace, workers: Ints) -> Ints:
    texts = trace.extra.get("num_ps")
    if texts is None:
        return workers.copy()
    for text in texts:
        if not (text.isdecimal() and int(text) >= 1):
            raise SettingError(f"{trace.name}: the column num_ps has {text!r}; give whole numbers from 1 on")
    return np.array([int(text) for text in texts], dtype=np.int64)


def _schedulers(trace: Trace, schedulers: int) -> Ints:
    found = np.arange(len(trace.vc)) % schedulers
    for row, name in enumerate(trace.vc):
        number = name.removeprefix(_SCHEDULER)
        if name.startswith(_SCHEDULER) and number.isdecimal():
            found[row] = int(number) % schedulers
    return found
