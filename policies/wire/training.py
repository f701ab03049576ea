"""Columns of training, parameter servers, Slurm's order and QOS in snapshots: each group is there as a whole, or left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from policies.model import IntColumn, Jobs, JobState
from policies.wire.columns import check, entries_per_row, read_column

_TRAINING = ("epochs", "progress")
_SERVERS = ("num_servers", "server_offset", "server_node", "server_count")
_SLURM_ORDER = ("slurm_priority", "partition_tier")
_MOST_EPOCHS = 1e9
_MOST_SERVERS = 1_000_000
"""No job trains longer or has more servers; larger numbers belong to broken messages."""

Columns = dict[str, npt.NDArray[Any]]


def training_columns(jobs: Jobs) -> Columns:
    """Return the columns of these groups, where there are some."""
    columns = {name: getattr(jobs, name) for name in (*_TRAINING, *_SERVERS, *_SLURM_ORDER)}
    return {name: column for name, column in columns.items() if column is not None}


def read_training(message: Any, num_jobs: int) -> Columns:
    """Return epochs and progress; empty where the message has neither. Raises WireError."""
    if not any(getattr(message, name) for name in _TRAINING):
        return {}
    epochs, progress = (read_column(message, "jobs", name, num_jobs) for name in _TRAINING)
    fine = np.isnan(epochs) | ((epochs > 0) & (epochs <= _MOST_EPOCHS))
    check("jobs.epochs", fine, epochs, f"not above 0 and at most {_MOST_EPOCHS:g}; send NaN where it is not known")
    fine = np.isnan(progress) | ((progress >= 0) & (progress <= 1))
    check("jobs.progress", fine, progress, "not a share from 0 to 1; send NaN where it is not known")
    return dict(zip(_TRAINING, (epochs, progress), strict=True))


def read_slurm_order(message: Any, num_jobs: int) -> Columns:
    """Return priorities and tiers; empty where the message has neither. Raises WireError."""
    if not any(getattr(message, name) for name in _SLURM_ORDER):
        return {}
    priority, tier = (read_column(message, "jobs", name, num_jobs) for name in _SLURM_ORDER)
    check("jobs.slurm_priority", ~np.isinf(priority), priority, "infinite; send NaN where it is not known")
    return dict(zip(_SLURM_ORDER, (priority, tier), strict=True))


def read_qos(message: Any, num_jobs: int) -> tuple[IntColumn | None, tuple[str, ...] | None]:
    """Return the QOS of jobs and the table of their names; None for both where the message has neither. Raises WireError."""
    if not message.qos and not message.qos_names:
        return None, None
    names = tuple(message.qos_names)
    row = read_column(message, "jobs", "qos", num_jobs) - 1
    check("jobs.qos", row < len(names), row + 1, f"beyond the {len(names)} names of QOS")
    return row, names


def read_servers(message: Any, state: npt.NDArray[np.int64], num_nodes: int) -> Columns:
    """Return the parameter servers; empty where the message has none. `state` is that of each job. Raises WireError."""
    if not any(getattr(message, name) for name in _SERVERS):
        return {}
    requested = read_column(message, "jobs", "num_servers", len(state))
    check("jobs.num_servers", requested <= _MOST_SERVERS, requested, f"more than {_MOST_SERVERS}")
    offset = read_column(message, "jobs", "server_offset", len(state) + 1)
    node = read_column(message, "jobs", "server_node", None)
    count = read_column(message, "jobs", "server_count", len(node))
    entries = entries_per_row("jobs.server_offset", offset, len(node))
    fine = (entries == 0) | ((state == JobState.RUNNING) & (requested > 0))
    check("jobs.server_offset", fine, entries, "entries of a job that waits, or of one whose num_servers is 0")
    check_servers("jobs.server", node, count, entries, num_nodes)
    return dict(zip(_SERVERS, (requested, offset, node, count), strict=True))


def check_servers(
    field: str,
    node: npt.NDArray[np.int64],
    count: npt.NDArray[np.int64],
    entries: npt.NDArray[np.int64],
    num_nodes: int,
) -> None:
    """Check nodes and numbers of servers, of which each job has so many entries. Raises WireError."""
    check(f"{field}_node", node < num_nodes, node, f"beyond the {num_nodes} nodes")
    check(
        f"{field}_count", (count >= 1) & (count <= _MOST_SERVERS), count, f"less than 1, or more than {_MOST_SERVERS}"
    )
    owner = np.repeat(np.arange(len(entries)), entries)
    ascending = np.append(True, (np.diff(node) > 0) | (np.diff(owner) > 0))[: len(node)]
    check(f"{field}_node", ascending, node, "not above the node before it")
