"""The jobs of a `ClusterState` as MARL's agents know them.

A worker has one GPU. The paper's jobs have parameter servers, and Headway's train by all-reduce unless the state says otherwise. In
a ring of W workers every worker sends and receives what it would exchange with W servers, one of which is beside each worker. So a
job without servers is shown as one with W servers, which are where its workers are, and need no decision.

The cores of a worker: what its job requests for a GPU (of a job without servers, 2 of these are the server's); where it requests
none, what was measured; else those of the paper, 6. A server has 2, as in the training.

The model of a job is one of the eight of the training: the one of its name, else the one with the most similar time and bytes of a
step, measured or typical ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from policies.learned.marl.edges import Amounts
from policies.learned.marl.graphs import MOST_CORES, MOST_GPUS, MOST_TASKS, TYPES, Floats, Layout
from policies.learned.marl.serving.cluster_graphs import PCIE_GBS
from policies.learned.marl.serving.schedulers import Ints
from policies.model import ClusterState
from policies.speeds.job_profiles import StepModels
from policies.state.pair_ratios import key_of

MODELS = ("resnet-50", "vgg-16", "resnext-110", "inception-bn", "seq2seq", "cnn-text-classification", "dssm", "wlm")
"""The models of the training, in the order of their inputs."""
STEPS = ((0.449, 102.2e6), (0.535, 553.4e6), (0.226, 6.92e6), (0.815, 42.1e6), (0.075, 36.5e6), (0.585, 24.0e6), (0.567, 6.0e6),
         (0.154, 19.2e6))  # fmt: skip
"""Seconds of computing and bytes of gradients of a step of each."""
WORKER_CORES, SERVER_CORES = 6.0, 2.0
_LEAST_CORES = 1.0


@dataclass(frozen=True, eq=False)
class JobColumns:
    """One entry per job in every column."""

    kind: Ints
    """Number of its model in MODELS."""
    workers: Ints
    servers: Ints
    """Parameter servers that are placed by decisions of their own."""
    is_ring: npt.NDArray[np.bool_]
    """True for a job whose servers are beside its workers."""
    cores: Amounts
    """Cores of a worker; in a ring, with those of the server beside it."""
    pcie: Amounts
    """Share of its group's PCIe that a worker uses alone."""
    features: Floats
    """Features of the job in an observation (jobs, `Layout.of_job`)."""


def job_columns(state: ClusterState, layout: Layout) -> JobColumns:
    """Return the columns of a state's jobs."""
    jobs = state.jobs
    models = StepModels(state)
    steps = [models.of(row) for row in range(len(jobs))]
    compute_s, gradients = np.array([[each.compute_s, each.bytes] for each in steps], dtype=np.float64).reshape(-1, 2).T
    servers = np.zeros(len(jobs), dtype=np.int64) if jobs.num_servers is None else jobs.num_servers
    is_ring = servers == 0
    measured = _measured(state, "cpu_cores")
    alone = np.where(np.isnan(measured), WORKER_CORES, measured) + np.where(is_ring, SERVER_CORES, 0.0)
    cores = np.where(jobs.cpus_per_gpu > 0, jobs.cpus_per_gpu, alone)
    pcie = np.minimum(1.0, 2 * gradients / np.maximum(compute_s, 1e-9) / (PCIE_GBS * 1e9))
    measured = _measured(state, "pcie_gbyte_s") / PCIE_GBS
    kind = _kinds(state, compute_s, gradients)
    shown = np.maximum(np.where(is_ring, cores - SERVER_CORES, cores), _LEAST_CORES)
    features = np.zeros((len(jobs), layout.of_job), dtype=np.float32)
    features[np.arange(len(jobs)), kind] = 1.0
    features[:, TYPES] = np.minimum(jobs.num_gpus / MOST_TASKS, 1.0)
    features[:, TYPES + 1] = 1.0 / MOST_GPUS
    features[:, TYPES + 2] = np.minimum(shown / MOST_CORES, 1.0)
    features[:, TYPES + 3] = np.minimum(np.where(is_ring, jobs.num_gpus, servers) / MOST_TASKS, 1.0)
    features[:, TYPES + 5] = SERVER_CORES / MOST_CORES
    return JobColumns(
        kind, jobs.num_gpus, servers, is_ring, cores, np.where(np.isnan(measured), pcie, measured), features
    )


def _measured(state: ClusterState, column: str) -> Amounts:
    """Return what was measured of each job's model; NaN where nothing was."""
    if state.profiles is None:
        return np.full(len(state.jobs), np.nan)
    found: Amounts = state.profiles.per_job(getattr(state.profiles, column))
    return found


def _kinds(state: ClusterState, compute_s: Amounts, gradients: Amounts) -> Ints:
    seconds, sizes = np.log(np.array(STEPS)).T
    away = (np.log(np.maximum(compute_s, 1e-9))[:, None] - seconds) ** 2
    away += (np.log(np.maximum(gradients, 1.0))[:, None] - sizes) ** 2
    found: Ints = away.argmin(1)
    if state.profiles is not None:
        known = {key_of(name): place for place, name in enumerate(MODELS)}
        named = np.array([*(known.get(key_of(model), -1) for model in state.profiles.models), -1])[
            state.profiles.of_job
        ]
        found = np.where(named >= 0, named, found)
    return found
