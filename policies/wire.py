"""Between the policy's view of the cluster and the messages of protos/headway/v1.

Encoding trusts its input. Decoding trusts nothing: what comes out keeps every invariant that `policies.model` states, or a
WireError says which field is wrong and how.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from policies.api import KNOWN_NEEDS, Decision, Outcome, PolicySpec
from policies.errors import WireError
from policies.model import ClusterState, Jobs, JobState, Nodes, Placement
from protos.headway.v1 import policy_pb2, snapshot_pb2

SCHEMA_VERSION = 1
"""Version of ClusterSnapshot that this code writes and reads."""
MAX_NODE_GPUS = 4096
"""No node has more GPUs; a larger number is a broken message."""
MAX_REASON_CHARS = 200
"""Longest reason in a Decision; longer ones are cut when sent and refused when read."""

_NODE_COLUMNS = ("gpus", "cpus", "memory_mib", "foreign_gpus", "foreign_cpus", "foreign_memory_mib", "rack")
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
_MAY_BE_NAN = frozenset({"start_time_s", "duration_estimate_s", "duration_spread_s"})
_MAY_BE_NEGATIVE = frozenset({"submit_time_s", "start_time_s"})
_RANGES = {"state": (1, 2), "split": (1, 3), "estimate_source": (0, 3)}
_PLACEMENT = ("placement_offset", "placement_node", "placement_gpus", "placement_gpu_mask")


# --- snapshots


def encode_state(state: ClusterState) -> snapshot_pb2.ClusterSnapshot:
    """The snapshot message of a state."""
    message = snapshot_pb2.ClusterSnapshot(schema_version=SCHEMA_VERSION, sequence=state.sequence, time_s=state.time_s)
    nodes = message.nodes
    nodes.name.extend(state.nodes.names)
    nodes.available.extend(state.nodes.available.tolist())
    for name in _NODE_COLUMNS:
        getattr(nodes, name).extend(getattr(state.nodes, name).tolist())
    jobs = message.jobs
    jobs.job_id.extend(state.jobs.ids)
    jobs.users.extend(state.jobs.users)
    jobs.node_set.extend((state.jobs.node_set + 1).tolist())
    for name in (*_JOB_INTEGERS, *_JOB_FLOATS, *_JOB_FLAGS, *_PLACEMENT):
        getattr(jobs, name).extend(getattr(state.jobs, name).tolist())
    for members in state.node_sets:
        message.node_sets.add(members=np.packbits(members, bitorder="little").tobytes())
    return message


def decode_state(message: snapshot_pb2.ClusterSnapshot) -> ClusterState:
    """The state that a snapshot describes. Raises WireError."""
    if message.schema_version != SCHEMA_VERSION:
        _refuse("schema_version", f"is {message.schema_version}; this policy reads version {SCHEMA_VERSION}")
    if not math.isfinite(message.time_s):
        _refuse("time_s", f"is {message.time_s}")
    nodes = _decode_nodes(message.nodes)
    node_sets = _decode_node_sets(message, len(nodes))
    jobs = _decode_jobs(message.jobs, len(nodes), len(node_sets))
    return ClusterState(message.sequence, message.time_s, nodes, jobs, node_sets)


def parse_state(data: bytes) -> ClusterState:
    """The state in a serialized snapshot. Raises WireError."""
    try:
        message = snapshot_pb2.ClusterSnapshot.FromString(data)
    except Exception as error:  # protobuf's DecodeError has a different base in each of its implementations
        raise WireError(f"ClusterSnapshot: not such a message: {error}") from error
    return decode_state(message)


def _decode_nodes(message: snapshot_pb2.Nodes) -> Nodes:
    names = _names("nodes.name", message.name)
    count = len(names)
    columns = {name: _integers(f"nodes.{name}", getattr(message, name), count) for name in _NODE_COLUMNS}
    available = _column("nodes.available", message.available, np.bool_, count)
    _check("nodes.gpus", columns["gpus"] <= MAX_NODE_GPUS, columns["gpus"], f"more than {MAX_NODE_GPUS}")
    return Nodes(names=names, available=available, **columns)


def _decode_node_sets(message: snapshot_pb2.ClusterSnapshot, num_nodes: int) -> npt.NDArray[np.bool_]:
    sets = np.zeros((len(message.node_sets), num_nodes), dtype=np.bool_)
    for row, node_set in enumerate(message.node_sets):
        packed = np.frombuffer(node_set.members, dtype=np.uint8)
        if len(packed) != (num_nodes + 7) // 8:
            _refuse(f"node_sets[{row}].members", f"has {len(packed)} bytes for {num_nodes} nodes")
        bits = np.unpackbits(packed, bitorder="little")
        if bits[num_nodes:].any():
            _refuse(f"node_sets[{row}].members", "has members beyond the last node")
        sets[row] = bits[:num_nodes]
    return sets


def _decode_jobs(message: snapshot_pb2.Jobs, num_nodes: int, num_sets: int) -> Jobs:
    ids = _names("jobs.job_id", message.job_id)
    users = _names("jobs.users", message.users)
    count = len(ids)
    columns: dict[str, npt.NDArray[Any]] = {
        name: _integers(f"jobs.{name}", getattr(message, name), count) for name in _JOB_INTEGERS
    }
    for name in _JOB_FLOATS:
        columns[name] = _floats(name, _column(f"jobs.{name}", getattr(message, name), np.float64, count))
    for name in _JOB_FLAGS:
        columns[name] = _column(f"jobs.{name}", getattr(message, name), np.bool_, count)
    node_set = _integers("jobs.node_set", message.node_set, count) - 1
    _check("jobs.node_set", node_set < num_sets, node_set + 1, f"beyond the {num_sets} node sets")
    _check("jobs.user", columns["user"] < len(users), columns["user"], f"beyond the {len(users)} users")
    for name, (low, high) in _RANGES.items():
        column = columns[name]
        _check(f"jobs.{name}", (column >= low) & (column <= high), column, "not a value of that enum")
    submit = columns["submit_time_s"]
    _check("jobs.submit_time_s", np.diff(submit, prepend=-np.inf) >= 0, submit, "earlier than the row before")
    _check_requests(columns)
    placement = _decode_placements(message, columns["state"], num_nodes)
    return Jobs(ids=ids, users=users, node_set=node_set, **columns, **placement)


def _check_requests(columns: dict[str, npt.NDArray[Any]]) -> None:
    gpus, low, high = columns["num_gpus"], columns["min_nodes"], columns["max_nodes"]
    per_node, fixed = columns["gpus_per_node"], columns["split"] == snapshot_pb2.SPLIT_FIXED
    waits = columns["state"] == snapshot_pb2.JOB_STATE_PENDING
    _check("jobs.num_gpus", gpus >= 1, gpus, "less than 1")
    _check("jobs.min_nodes", low >= 1, low, "less than 1")
    _check("jobs.max_nodes", high >= low, high, "less than min_nodes")
    _check(
        "jobs.gpus_per_node",
        ~fixed | ~waits | (per_node * low == gpus),
        per_node,
        "with SPLIT_FIXED, and min_nodes times that is not num_gpus",
    )


def _decode_placements(
    message: snapshot_pb2.Jobs, state: npt.NDArray[np.int64], num_nodes: int
) -> dict[str, npt.NDArray[Any]]:
    offset = _integers("jobs.placement_offset", message.placement_offset, len(state) + 1)
    node = _integers("jobs.placement_node", message.placement_node, None)
    gpus = _integers("jobs.placement_gpus", message.placement_gpus, len(node))
    mask = _column("jobs.placement_gpu_mask", message.placement_gpu_mask, np.uint64, len(node))
    held = _check_offsets("jobs.placement_offset", offset, len(node))
    _check("jobs.placement_offset", (held > 0) == (state == JobState.RUNNING), held, "entries, for a job in that state")
    _check("jobs.placement_node", node < num_nodes, node, f"beyond the {num_nodes} nodes")
    _check("jobs.placement_gpus", gpus >= 1, gpus, "less than 1")
    _check(
        "jobs.placement_gpu_mask", (mask == 0) | (np.bitwise_count(mask) == gpus), mask, "not of placement_gpus GPUs"
    )
    owner = np.repeat(np.arange(len(state)), held)
    ascending = (np.diff(node) > 0) | (np.diff(owner) > 0)
    _check("jobs.placement_node", np.append(True, ascending)[: len(node)], node, "not above the node before it")
    return {
        "placement_offset": offset,
        "placement_node": node,
        "placement_gpus": gpus,
        "placement_gpu_mask": mask,
    }


# --- decisions


def encode_decision(decision: Decision, sequence: int) -> policy_pb2.Decision:
    """The message of a decision on the snapshot of that sequence number."""
    message = policy_pb2.Decision(sequence=sequence)
    placements = decision.allocation.values()
    nodes: list[int] = []
    gpus: list[int] = []
    offsets = [0]
    for placement in placements:
        nodes.extend(placement.nodes)
        gpus.extend(placement.gpus)
        offsets.append(len(nodes))
    message.job.extend(decision.allocation)
    message.placement_offset.extend(offsets)
    message.placement_node.extend(nodes)
    message.placement_gpus.extend(gpus)
    message.reason_job.extend(decision.reasons)
    message.reason.extend(text[:MAX_REASON_CHARS] for text in decision.reasons.values())
    message.queue.extend(decision.queue)
    return message


def decode_decision(message: policy_pb2.Decision, state: ClusterState) -> Decision:
    """The decision on that state that a message describes. Raises WireError.

    Checked is that it is a decision at all: rows exist, nothing is named twice. Whether the cluster has those GPUs is for
    the caller to check.
    """
    num_jobs = len(state.jobs)
    job = _rows("job", message.job, num_jobs)
    offset = _integers("placement_offset", message.placement_offset, len(job) + 1)
    node = _integers("placement_node", message.placement_node, None)
    gpus = _integers("placement_gpus", message.placement_gpus, len(node))
    held = _check_offsets("placement_offset", offset, len(node))
    _check("placement_offset", held > 0, held, "entries for a job; leave out jobs that hold nothing")
    _check("placement_node", node < len(state.nodes), node, f"beyond the {len(state.nodes)} nodes")
    _check("placement_gpus", gpus >= 1, gpus, "less than 1")
    owner = np.repeat(np.arange(len(job)), held)
    order = np.lexsort((node, owner))
    node, gpus = node[order], gpus[order]
    distinct = (np.diff(node) > 0) | (np.diff(owner) > 0)
    _check("placement_node", np.append(True, distinct)[: len(node)], node, "twice in one job")
    ends, nodes, counts = offset.tolist(), tuple(node.tolist()), tuple(gpus.tolist())
    allocation = {
        row: Placement(nodes[begin:end], counts[begin:end])
        for row, begin, end in zip(job.tolist(), ends, ends[1:], strict=False)
    }
    queue = _rows("queue", message.queue, num_jobs)
    _check("queue", state.jobs.state[queue] == JobState.PENDING, queue, "a job that does not wait")
    return Decision(allocation, _decode_reasons(message, num_jobs), tuple(queue.tolist()))


def parse_decision(data: bytes, state: ClusterState) -> tuple[int, Decision]:
    """Sequence number and decision in a serialized reply. Raises WireError."""
    try:
        message = policy_pb2.Decision.FromString(data)
    except Exception as error:  # as in parse_state
        raise WireError(f"Decision: not such a message: {error}") from error
    return message.sequence, decode_decision(message, state)


def _decode_reasons(message: policy_pb2.Decision, num_jobs: int) -> dict[int, str]:
    rows = _rows("reason_job", message.reason_job, num_jobs)
    if len(message.reason) != len(rows):
        _refuse("reason", f"has {len(message.reason)} entries, not {len(rows)} as reason_job")
    reasons = dict(zip(rows.tolist(), message.reason, strict=True))
    longest = max(map(len, reasons.values()), default=0)
    if longest > MAX_REASON_CHARS:
        _refuse("reason", f"has a text of {longest} characters, more than {MAX_REASON_CHARS}")
    return reasons


# --- what policies are, and how jobs ended


def encode_spec(spec: PolicySpec) -> policy_pb2.PolicyDescription:
    """The message of a policy's spec."""
    return policy_pb2.PolicyDescription(
        name=spec.name,
        version=spec.version,
        source=spec.source,
        min_schema_version=SCHEMA_VERSION,
        max_schema_version=SCHEMA_VERSION,
        preempts=spec.preempts,
        resizes=spec.resizes,
        exact_gpus=spec.exact_gpus,
        round_s=spec.round_s,
        needs=sorted(spec.needs),
    )


def decode_spec(message: policy_pb2.PolicyDescription) -> PolicySpec:
    """The spec that a message describes. Raises WireError, also when it does not read our snapshots."""
    if not message.name or len(message.name) > 100 or not message.name.isprintable():
        _refuse("name", f"is {message.name[:100]!r}; give the policy a short printable name")
    if not message.min_schema_version <= SCHEMA_VERSION <= message.max_schema_version:
        reads = f"{message.min_schema_version} to {message.max_schema_version}"
        _refuse("min_schema_version", f"the policy reads snapshots of version {reads}, not {SCHEMA_VERSION}")
    if not (math.isfinite(message.round_s) and message.round_s >= 0):
        _refuse("round_s", f"is {message.round_s}; give seconds, 0 or more")
    unknown = sorted(set(message.needs) - KNOWN_NEEDS)
    if unknown:
        _refuse("needs", f"has {', '.join(map(repr, unknown))}; known are {', '.join(sorted(KNOWN_NEEDS))}")
    return PolicySpec(
        name=message.name,
        source=message.source,
        version=message.version,
        preempts=message.preempts,
        resizes=message.resizes,
        exact_gpus=message.exact_gpus,
        round_s=message.round_s,
        needs=frozenset(message.needs),
    )


_OUTCOME_FIELDS = (
    "job_id",
    "user",
    "job_name",
    "submit_time_s",
    "start_time_s",
    "finish_time_s",
    "num_gpus",
    "num_nodes",
    "service_s",
    "final_state",
)


def encode_outcome(outcome: Outcome) -> policy_pb2.Outcome:
    """The message of an outcome."""
    return policy_pb2.Outcome(**{name: getattr(outcome, name) for name in _OUTCOME_FIELDS})


def decode_outcome(message: policy_pb2.Outcome) -> Outcome:
    """The outcome that a message describes. Raises WireError."""
    if not message.job_id:
        _refuse("job_id", "is empty")
    for name in ("submit_time_s", "start_time_s", "finish_time_s", "service_s"):
        if not math.isfinite(getattr(message, name)):
            _refuse(name, f"is {getattr(message, name)}")
    return Outcome(**{name: getattr(message, name) for name in _OUTCOME_FIELDS})


# --- columns


def _refuse(field: str, problem: str) -> NoReturn:
    raise WireError(f"{field}: {problem}")


def _column(field: str, values: Sequence[Any], dtype: type[Any], count: int | None) -> npt.NDArray[Any]:
    if count is not None and len(values) != count:
        _refuse(field, f"has {len(values)} entries, not {count}")
    return np.fromiter(values, dtype=dtype, count=len(values))


def _integers(field: str, values: Sequence[int], count: int | None) -> npt.NDArray[np.int64]:
    try:
        return _column(field, values, np.int64, count)
    except OverflowError:
        _refuse(field, "has a number of 2^63 or more")


def _floats(name: str, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    fine = np.isfinite(values)
    if name in _MAY_BE_NAN:
        fine |= np.isnan(values)
    _check(f"jobs.{name}", fine, values, "not a finite number")
    if name not in _MAY_BE_NEGATIVE:
        _check(f"jobs.{name}", ~(values < 0), values, "negative")
    return values


def _names(field: str, values: Sequence[str]) -> tuple[str, ...]:
    names = tuple(values)
    if not all(names):
        _refuse(field, f"entry {names.index('')} is empty")
    if len(set(names)) != len(names):
        _refuse(field, "has the same name twice")
    return names


def _rows(field: str, values: Sequence[int], count: int) -> npt.NDArray[np.int64]:
    """Rows of a table of `count` rows, each at most once."""
    rows = _integers(field, values, None)
    _check(field, rows < count, rows, f"beyond the {count} jobs")
    if len(rows) and np.bincount(rows).max() > 1:
        _refuse(field, f"names row {int(np.bincount(rows).argmax())} twice")
    return rows


def _check_offsets(field: str, offset: npt.NDArray[np.int64], end: int) -> npt.NDArray[np.int64]:
    """Entries per row, of offsets that must rise from 0 to `end`."""
    if offset[0] != 0 or offset[-1] != end:
        _refuse(field, f"goes from {offset[0]} to {offset[-1]}, not from 0 to {end}")
    held = np.diff(offset)
    _check(field, held >= 0, offset[1:], "less than the entry before it")
    return held


def _check(field: str, fine: npt.NDArray[np.bool_], values: npt.NDArray[Any], problem: str) -> None:
    if not fine.all():
        row = int(fine.argmin())
        _refuse(f"{field}[{row}]", f"is {values[row]}: {problem}")
