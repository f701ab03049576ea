"""Conversion between the policy's view of the cluster and the messages of protos/headway/v1.

Encoding trusts its input. Decoding trusts nothing: what comes out keeps every invariant that `policies.model` states, or a
WireError says which field is wrong and how. Snapshots are in `policies.wire.state`; their functions are here as well.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from google.protobuf.message import DecodeError

from policies.api import KNOWN_NEEDS, Decision, Outcome, PolicySpec
from policies.decision_check import decision_problem
from policies.documents import printable
from policies.errors import WireError
from policies.model import ClusterState, IntColumn, JobState, Placement
from policies.wire.columns import check, distinct_rows, entries_per_row, integers, refuse
from policies.wire.gpus import read_masks, write_masks
from policies.wire.learning import decode_learning, encode_learning
from policies.wire.state import (
    SCHEMA_VERSION,
    decode_state,
    encode_state,
    parse_state,
    serialize_state,
    state_digest,
)
from policies.wire.training import check_servers
from protos.headway.v1 import policy_pb2

__all__ = [
    "MAX_REASON_CHARS",
    "SCHEMA_VERSION",
    "decode_decision",
    "decode_outcome",
    "decode_spec",
    "decode_state",
    "encode_decision",
    "encode_outcome",
    "encode_spec",
    "encode_state",
    "parse_decision",
    "parse_state",
    "serialize_state",
    "state_digest",
]

MAX_REASON_CHARS = 200
"""Longest reason in a Decision; longer ones are cut when sent and refused when read."""
_MAX_SOURCE_CHARS = 500
_MAX_VERSION_CHARS = 100
_MAX_ORDER_CHARS = 300
"""Longest source and version of a policy; longer ones are cut when read."""


# --- decisions


def encode_decision(decision: Decision, sequence: int) -> policy_pb2.Decision:
    """Return the message of a decision on the snapshot of that sequence number."""
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
    if any(placement.servers for placement in placements):
        _encode_servers(message, list(placements))
    write_masks(message, list(placements))
    message.reason_job.extend(decision.reasons)
    message.reason.extend(text[:MAX_REASON_CHARS] for text in decision.reasons.values())
    message.queue.extend(decision.queue)
    message.guard = decision.guard[:MAX_REASON_CHARS]
    message.outside = decision.outside[:MAX_REASON_CHARS]
    return message


def _encode_servers(message: policy_pb2.Decision, placements: list[Placement]) -> None:
    message.server_offset.append(0)
    for placement in placements:
        message.server_node.extend(placement.server_nodes)
        message.server_count.extend(placement.servers)
        message.server_offset.append(len(message.server_node))


def decode_decision(message: policy_pb2.Decision, state: ClusterState) -> Decision:
    """Return the decision on that state that a message describes. Raises WireError.

    This checks that it is a decision at all: rows exist, nothing is named twice. The caller must check that the cluster has those
    GPUs.
    """
    num_jobs = len(state.jobs)
    job = distinct_rows("job", message.job, num_jobs)
    # A decision that places nothing may leave its lone offset out: that is the meaning of an empty message.
    offset = integers("placement_offset", message.placement_offset or [0], len(job) + 1)
    node = integers("placement_node", message.placement_node, None)
    gpus = integers("placement_gpus", message.placement_gpus, len(node))
    entries = entries_per_row("placement_offset", offset, len(node))
    check("placement_offset", entries > 0, entries, "entries for a job; leave out jobs that occupy nothing")
    check("placement_node", node < len(state.nodes), node, f"beyond the {len(state.nodes)} nodes")
    check("placement_gpus", gpus >= 1, gpus, "less than 1")
    owner = np.repeat(np.arange(len(job)), entries)
    order = np.lexsort((node, owner))
    node, gpus = node[order], gpus[order]
    distinct = (np.diff(node) > 0) | (np.diff(owner) > 0)
    check("placement_node", np.append(True, distinct)[: len(node)], node, "twice in one job")
    ends, nodes, counts = offset.tolist(), tuple(node.tolist()), tuple(gpus.tolist())
    allocation = {
        row: Placement(nodes[begin:end], counts[begin:end])
        for row, begin, end in zip(job.tolist(), ends, ends[1:], strict=False)
    }
    masks = read_masks(message, order.tolist(), node.tolist(), gpus.tolist(), state)
    for row, begin, end in zip(job.tolist(), ends, ends[1:], strict=False) if masks else ():
        if any(masks[begin:end]):
            allocation[row] = replace(allocation[row], gpu_masks=tuple(masks[begin:end]))
    _add_servers(message, job, allocation, len(state.nodes))
    for name, text in (("guard", message.guard), ("outside", message.outside)):
        if len(text) > MAX_REASON_CHARS:
            refuse(name, f"has {len(text)} characters, more than {MAX_REASON_CHARS}")
    reasons = _decode_reasons(message, num_jobs)
    # Texts go into logs and to terminals.
    guard, outside = printable(message.guard), printable(message.outside)
    decision = Decision(allocation, reasons, tuple(message.queue), guard, outside)
    if problem := decision_problem(decision, state.jobs.state == JobState.PENDING, state.jobs.ids):
        raise WireError(problem)
    return decision


def _add_servers(
    message: policy_pb2.Decision, job: IntColumn, allocation: dict[int, Placement], num_nodes: int
) -> None:
    """Add the parameter servers of the message, if it has any, to the placements of these jobs. Raises WireError."""
    if not (message.server_offset or message.server_node or message.server_count):
        return
    offset = integers("server_offset", message.server_offset, len(job) + 1)
    node = integers("server_node", message.server_node, None)
    count = integers("server_count", message.server_count, len(node))
    check_servers("server", node, count, entries_per_row("server_offset", offset, len(node)), num_nodes)
    ends, nodes, counts = offset.tolist(), tuple(node.tolist()), tuple(count.tolist())
    for row, begin, end in zip(job.tolist(), ends, ends[1:], strict=False):
        allocation[row] = replace(allocation[row], server_nodes=nodes[begin:end], servers=counts[begin:end])


def parse_decision(data: bytes, state: ClusterState) -> tuple[int, Decision]:
    """Return sequence number and decision in a serialized reply. Raises WireError."""
    try:
        message = policy_pb2.Decision.FromString(data)
    except DecodeError as error:
        raise WireError(f"Decision: {len(data)} bytes that cannot be decoded as one") from error
    return message.sequence, decode_decision(message, state)


def _decode_reasons(message: policy_pb2.Decision, num_jobs: int) -> dict[int, str]:
    rows = distinct_rows("reason_job", message.reason_job, num_jobs)
    if len(message.reason) != len(rows):
        refuse("reason", f"has {len(message.reason)} entries, not {len(rows)} as reason_job")
    texts = list(message.reason)
    if not "".join(texts).isprintable():
        texts = list(map(printable, texts))
    reasons = dict(zip(rows.tolist(), texts, strict=True))
    longest = max(map(len, texts), default=0)
    if longest > MAX_REASON_CHARS:
        refuse("reason", f"has a text of {longest} characters, more than {MAX_REASON_CHARS}")
    return reasons


# --- what policies are, and how jobs ended


def encode_spec(spec: PolicySpec) -> policy_pb2.PolicyDescription:
    """Return the message of a policy's spec."""
    message = policy_pb2.PolicyDescription(
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
        considers=spec.considers,
        ordered_by=spec.ordered_by,
    )
    if spec.learning is not None:
        message.learning.CopyFrom(encode_learning(spec.learning))
    return message


def decode_spec(message: policy_pb2.PolicyDescription) -> PolicySpec:
    """Return the spec that a message describes. Raises WireError, also when the policy does not read our snapshots."""
    if not message.name or len(message.name) > 100 or not message.name.isprintable():
        refuse("name", f"is {message.name[:100]!r}; give the policy a short printable name")
    if not message.min_schema_version <= SCHEMA_VERSION <= message.max_schema_version:
        reads = f"{message.min_schema_version} to {message.max_schema_version}"
        refuse("min_schema_version", f"the policy reads snapshots of version {reads}, not {SCHEMA_VERSION}")
    if not (math.isfinite(message.round_s) and message.round_s >= 0):
        refuse("round_s", f"is {message.round_s}; give seconds, 0 or more")
    unknown = sorted(set(message.needs) - KNOWN_NEEDS)
    if unknown:
        refuse("needs", f"has {', '.join(map(repr, unknown))}; known are {', '.join(sorted(KNOWN_NEEDS))}")
    return PolicySpec(
        name=message.name,
        source=printable(message.source[:_MAX_SOURCE_CHARS]),
        version=printable(message.version[:_MAX_VERSION_CHARS]),
        preempts=message.preempts,
        resizes=message.resizes,
        exact_gpus=message.exact_gpus,
        round_s=message.round_s,
        needs=frozenset(message.needs),
        considers=message.considers,
        ordered_by=printable(message.ordered_by[:_MAX_ORDER_CHARS]),
        learning=decode_learning(message.learning) if message.HasField("learning") else None,
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
    """Return the message of an outcome."""
    return policy_pb2.Outcome(**{name: getattr(outcome, name) for name in _OUTCOME_FIELDS})


def decode_outcome(message: policy_pb2.Outcome) -> Outcome:
    """Return the outcome that a message describes. Raises WireError."""
    if not message.job_id:
        refuse("job_id", "is empty")
    for name in ("submit_time_s", "start_time_s", "finish_time_s", "service_s"):
        if not math.isfinite(getattr(message, name)):
            refuse(name, f"is {getattr(message, name)}")
    return Outcome(**{name: getattr(message, name) for name in _OUTCOME_FIELDS})
