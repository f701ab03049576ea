"""Conversion of cluster states to snapshot messages, and back; and the digest that names a state in records."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from policies.errors import WireError
from policies.model import ClusterState, Jobs, JobState, Nodes
from policies.wire.columns import (
    RawSnapshot,
    check,
    distinct_names,
    entries_per_row,
    read_column,
    refuse,
    write_column,
)
from policies.wire.gpus import read_gpus, write_gpus
from policies.wire.profiles import profile_columns, read_profiles, write_profiles
from policies.wire.training import read_qos, read_servers, read_slurm_order, read_training, training_columns
from protos.headway.v1 import snapshot_pb2

SCHEMA_VERSION = 1
"""Version of ClusterSnapshot that this code writes and reads."""
MAX_NODE_GPUS = 4096
"""No node has more GPUs; a larger number is a broken message."""

_NODE_SPEEDS = ("nic_gbyte_s", "uplink_gbyte_s", "pcie_gbyte_s", "gpu_speed")
_NODE_COLUMNS = (
    "gpus",
    "cpus",
    "memory_mib",
    "available",
    "foreign_gpus",
    "foreign_cpus",
    "foreign_memory_mib",
    "rack",
)
_JOB_INTEGERS = ("state", "num_gpus", "split", "min_nodes", "max_nodes", "gpus_per_node", "estimate_source", "user")
_JOB_FLOATS = (
    "submit_time_s",
    "start_time_s",
    "cpus_per_gpu",
    "memory_mib_per_gpu",
    "service_s",
    "attained_gpu_s",
    "duration_estimate_s",
    "duration_spread_s",
)
_JOB_FLAGS = ("preemptible", "exclusive")
_JOB_SIZES = ("min_gpus", "max_gpus")
_JOB_MEASURED = ("contention_sensitivity", "contention_confidence", "throughput_steps_per_s")
_PLACEMENT = ("placement_offset", "placement_node", "placement_gpus", "placement_gpu_mask")
_MAY_BE_NAN = frozenset({"start_time_s", "duration_estimate_s", "duration_spread_s"})
_MAY_BE_NEGATIVE = frozenset({"submit_time_s", "start_time_s"})
_REQUESTS = frozenset({"cpus_per_gpu", "memory_mib_per_gpu"})
_LEAST_REQUEST, _MOST = 1e-6, 1e18
"""Smaller requests and larger numbers belong to broken messages; sums and quotients of them would overflow."""
_ENUMS = {"state": (1, 2), "split": (1, 3), "estimate_source": (0, 3)}


def serialize_state(state: ClusterState) -> bytes:
    """Return the serialized ClusterSnapshot of a state."""
    message = RawSnapshot(schema_version=SCHEMA_VERSION, sequence=state.sequence, time_s=state.time_s)
    nodes, jobs = message.nodes, message.jobs
    nodes.name.extend(state.nodes.names)
    for name in _NODE_COLUMNS:
        write_column(nodes, "nodes", name, getattr(state.nodes, name))
    for name in _NODE_SPEEDS:
        if getattr(state.nodes, name) is not None:
            write_column(nodes, "nodes", name, getattr(state.nodes, name))
    write_gpus(message, state)
    jobs.job_id.extend(state.jobs.ids)
    jobs.users.extend(map(_readable, state.jobs.users))
    write_column(jobs, "jobs", "node_set", state.jobs.node_set + 1)
    for name in (*_JOB_INTEGERS, *_JOB_FLOATS, *_JOB_FLAGS, *_PLACEMENT):
        write_column(jobs, "jobs", name, getattr(state.jobs, name))
    for name, column in (_sizes(state.jobs) | _measured(state.jobs) | training_columns(state.jobs)).items():
        write_column(jobs, "jobs", name, column)
    if state.jobs.qos is not None and state.jobs.qos_names is not None:
        write_column(jobs, "jobs", "qos", state.jobs.qos + 1)
        jobs.qos_names.extend(map(_readable, state.jobs.qos_names))
    for members in state.node_sets:
        message.node_sets.add(members=np.packbits(members, bitorder="little").tobytes())
    if state.profiles is not None:
        write_profiles(message.profiles, state.profiles)
    data: bytes = message.SerializeToString()
    return data


def _readable(text: str) -> str:
    """Return a text with U+FFFD for bytes that were no UTF-8, which the format cannot carry: users' names may have any encoding."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def encode_state(state: ClusterState) -> snapshot_pb2.ClusterSnapshot:
    """Return the snapshot of a state as an ordinary message. `serialize_state` is much faster where bytes suffice."""
    return snapshot_pb2.ClusterSnapshot.FromString(serialize_state(state))


def decode_state(message: snapshot_pb2.ClusterSnapshot) -> ClusterState:
    """Return the state that an ordinary message describes. Raises WireError."""
    return _decode(RawSnapshot.FromString(message.SerializeToString()))


def parse_state(data: bytes) -> ClusterState:
    """Return the state in a serialized ClusterSnapshot. Raises WireError."""
    try:
        try:
            return _decode(RawSnapshot.FromString(data))
        except WireError:
            # Writers may leave repeated numbers unpacked, or pack them in pieces. This is valid, though generated code never
            # does so. Converted to the common form such a message reads like any other; a really wrong one stays wrong.
            return decode_state(snapshot_pb2.ClusterSnapshot.FromString(data))
    except DecodeError as error:
        raise WireError(f"ClusterSnapshot: {len(data)} bytes that cannot be decoded as one") from error


def state_digest(state: ClusterState) -> str:
    """Return the SHA-256, in hex, of everything in the state but its sequence number; equal on all machines."""
    digest = hashlib.sha256()
    digest.update(np.float64(state.time_s).astype("<f8").tobytes())
    profiles = [] if state.profiles is None else profile_columns(state.profiles)
    for table in (vars(state.nodes).items(), vars(state.jobs).items(), profiles):
        for name, value in table:
            if value is None:  # a column that this state does not have
                continue
            digest.update(f"\n{name} {len(value)}\n".encode())
            if isinstance(value, np.ndarray):
                digest.update(_canonical(value))
            else:
                digest.update(_readable("\0".join(value)).encode())
    digest.update(f"\nnode_sets {len(state.node_sets)}\n".encode())
    digest.update(np.packbits(state.node_sets).tobytes())
    if state.gpu_layouts:
        digest.update(f"\ngpu_layouts {state.gpu_layouts}\n".encode())
    return digest.hexdigest()


def _canonical(column: npt.NDArray[Any]) -> bytes:
    if column.dtype.kind == "f":
        return (np.where(np.isnan(column), np.nan, column) + 0.0).astype("<f8").tobytes()  # one NaN, and no -0
    return column.astype("<u8" if column.dtype.kind == "u" else "<i8").tobytes()


def _decode(message: Any) -> ClusterState:
    if message.schema_version != SCHEMA_VERSION:
        refuse("schema_version", f"is {message.schema_version}; this policy reads version {SCHEMA_VERSION}")
    if not math.isfinite(message.time_s):
        refuse("time_s", f"is {message.time_s}")
    nodes, layouts = read_gpus(message, _decode_nodes(message.nodes))
    node_sets = _decode_node_sets(message, len(nodes))
    jobs = _decode_jobs(message.jobs, len(nodes), len(node_sets))
    profiles = read_profiles(message.profiles, len(jobs)) if message.HasField("profiles") else None
    return ClusterState(message.sequence, message.time_s, nodes, jobs, node_sets, profiles, layouts)


def _decode_nodes(message: Any) -> Nodes:
    names = distinct_names("nodes.name", message.name)
    columns = {name: read_column(message, "nodes", name, len(names)) for name in _NODE_COLUMNS}
    columns["available"] = _flags("nodes.available", columns["available"])
    check("nodes.gpus", columns["gpus"] <= MAX_NODE_GPUS, columns["gpus"], f"more than {MAX_NODE_GPUS}")
    for name in _NODE_SPEEDS:
        if getattr(message, name):
            speed = columns[name] = read_column(message, "nodes", name, len(names))
            check(f"nodes.{name}", ~(speed <= 0) & ~np.isinf(speed), speed, "not a finite number above 0")
    return Nodes(names=names, **columns)


def _decode_node_sets(message: Any, num_nodes: int) -> npt.NDArray[np.bool_]:
    sets = np.zeros((len(message.node_sets), num_nodes), dtype=np.bool_)
    for row, node_set in enumerate(message.node_sets):
        packed = np.frombuffer(node_set.members, dtype=np.uint8)
        if len(packed) != (num_nodes + 7) // 8:
            refuse(f"node_sets[{row}].members", f"has {len(packed)} bytes for {num_nodes} nodes")
        bits = np.unpackbits(packed, bitorder="little")
        if bits[num_nodes:].any():
            refuse(f"node_sets[{row}].members", "has members beyond the last node")
        sets[row] = bits[:num_nodes]
    return sets


def _decode_jobs(message: Any, num_nodes: int, num_sets: int) -> Jobs:
    ids = distinct_names("jobs.job_id", message.job_id)
    users = tuple(message.users)
    columns = {
        name: read_column(message, "jobs", name, len(ids)) for name in (*_JOB_INTEGERS, *_JOB_FLOATS, *_JOB_FLAGS)
    }
    for name in _JOB_FLOATS:
        _check_float(name, columns[name])
    for name in _JOB_FLAGS:
        columns[name] = _flags(f"jobs.{name}", columns[name])
    for name, (low, high) in _ENUMS.items():
        column = columns[name]
        check(f"jobs.{name}", (column >= low) & (column <= high), column, "not a value of that enum")
    submit, user = columns["submit_time_s"], columns["user"]
    check("jobs.submit_time_s", np.diff(submit, prepend=-np.inf) >= 0, submit, "earlier than the row before")
    check("jobs.user", user < len(users), user, f"beyond the {len(users)} users")
    node_set = read_column(message, "jobs", "node_set", len(ids)) - 1
    check("jobs.node_set", node_set < num_sets, node_set + 1, f"beyond the {num_sets} node sets")
    _check_requests(columns)
    columns |= _decode_sizes(message, columns["num_gpus"])
    columns |= _decode_measured(message, len(ids))
    columns |= read_training(message, len(ids))
    columns |= read_slurm_order(message, len(ids))
    columns |= read_servers(message, columns["state"], num_nodes)
    placement = _decode_placements(message, columns["state"], num_nodes)
    qos, names = read_qos(message, len(ids))
    return Jobs(ids=ids, users=users, node_set=node_set, qos=qos, qos_names=names, **columns, **placement)


def _sizes(jobs: Jobs) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of elastic jobs, where there are some."""
    if jobs.min_gpus is None or jobs.max_gpus is None:
        return {}
    return dict(zip(_JOB_SIZES, jobs.sizes, strict=True))


def _decode_sizes(message: Any, num_gpus: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[Any]]:
    if not any(getattr(message, name) for name in _JOB_SIZES):
        return {}
    low, high = (read_column(message, "jobs", name, len(num_gpus)) for name in _JOB_SIZES)
    check("jobs.min_gpus", (low >= 1) & (low <= num_gpus), low, "less than 1, or more than num_gpus")
    check("jobs.max_gpus", high >= num_gpus, high, "less than num_gpus")
    return dict(zip(_JOB_SIZES, (low, high), strict=True))


def _measured(jobs: Jobs) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of measurements, where there are some."""
    columns = {name: getattr(jobs, name) for name in _JOB_MEASURED}
    return {name: column for name, column in columns.items() if column is not None}


def _decode_measured(message: Any, num_jobs: int) -> dict[str, npt.NDArray[Any]]:
    if not any(getattr(message, name) for name in _JOB_MEASURED):
        return {}
    columns = {name: read_column(message, "jobs", name, num_jobs) for name in _JOB_MEASURED}
    slower, sure, steps_per_s = columns.values()
    check("jobs.contention_sensitivity", ~(slower <= 0) & ~np.isinf(slower), slower, "not a finite number above 0")
    check("jobs.contention_confidence", (sure >= 0) & (sure <= 1), sure, "not a share from 0 to 1")
    fine = ~(steps_per_s < 0) & ~np.isinf(steps_per_s)
    check("jobs.throughput_steps_per_s", fine, steps_per_s, "not a finite number, 0 or more")
    return columns


def _flags(field: str, column: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    check(field, column <= 1, column, "neither true nor false")
    return column.astype(np.bool_)


def _check_float(name: str, values: npt.NDArray[np.float64]) -> None:
    fine = ~np.isinf(values) if name in _MAY_BE_NAN else np.isfinite(values)
    check(f"jobs.{name}", fine, values, "not a finite number")
    if name not in _MAY_BE_NEGATIVE:
        check(f"jobs.{name}", ~(values < 0), values, "negative")
    check(f"jobs.{name}", ~(np.abs(values) > _MOST), values, f"larger than {_MOST:g}")
    if name in _REQUESTS:
        check(
            f"jobs.{name}",
            (values == 0) | (values >= _LEAST_REQUEST),
            values,
            f"neither 0 nor at least {_LEAST_REQUEST:g}",
        )


def _check_requests(columns: dict[str, npt.NDArray[Any]]) -> None:
    gpus, low, high, per_node = (columns[name] for name in ("num_gpus", "min_nodes", "max_nodes", "gpus_per_node"))
    check("jobs.num_gpus", gpus >= 1, gpus, "less than 1")
    check("jobs.min_nodes", low >= 1, low, "less than 1")
    check("jobs.max_nodes", high >= low, high, "less than min_nodes")
    fixed = (columns["split"] == snapshot_pb2.SPLIT_FIXED) & (columns["state"] == JobState.PENDING)
    problem = "with SPLIT_FIXED, and min_nodes times that is not num_gpus"
    check("jobs.gpus_per_node", ~fixed | (per_node * low == gpus), per_node, problem)


def _decode_placements(message: Any, state: npt.NDArray[np.int64], num_nodes: int) -> dict[str, npt.NDArray[Any]]:
    offset = read_column(message, "jobs", "placement_offset", len(state) + 1)
    node = read_column(message, "jobs", "placement_node", None)
    gpus = read_column(message, "jobs", "placement_gpus", len(node))
    mask = read_column(message, "jobs", "placement_gpu_mask", len(node))
    counts = entries_per_row("jobs.placement_offset", offset, len(node))
    consistent = (counts > 0) == (state == JobState.RUNNING)
    check(
        "jobs.placement_offset",
        consistent,
        counts,
        "entries of a job that waits, or of one that runs and must have some",
    )
    check("jobs.placement_node", node < num_nodes, node, f"beyond the {num_nodes} nodes")
    check("jobs.placement_gpus", gpus >= 1, gpus, "less than 1")
    owner = np.repeat(np.arange(len(state)), counts)
    ascending = np.append(True, (np.diff(node) > 0) | (np.diff(owner) > 0))[: len(node)]
    check("jobs.placement_node", ascending, node, "not above the node before it")
    return {
        "placement_offset": offset,
        "placement_node": node,
        "placement_gpus": gpus,
        "placement_gpu_mask": mask,
    }
