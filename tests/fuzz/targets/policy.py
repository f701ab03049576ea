"""Messages between the controller and a policy server, which may be any program."""

from __future__ import annotations

from pathlib import Path

from google.protobuf.message import DecodeError

from policies.api import Decision, Outcome, PolicySpec, load_policy
from policies.errors import WireError
from policies.model import ClusterState, Placement
from policies.wire import messages
from protos.headway.v1 import policy_pb2
from tests.fuzz.target import BrokenPromiseError, Target
from tests.unit.policies.states.cluster import Job, Node, cluster
from tests.unit.policies.wire.test_messages import elastic, sample

_STATE = cluster([Node()] * 4, [Job(gpus=8, occupied={0: 8}), Job(gpus=4), Job(gpus=16), Job(gpus=2)], sequence=5)
_OUTCOME = Outcome("7", "ada", "train", 1.0, 2.0, 3.0, 4, 1, 1.0, "COMPLETED")
_POLICY = load_policy("fifo-skip")


def states() -> list[bytes]:
    """Return snapshots of clusters."""
    measured = cluster([Node()] * 2, [Job(gpus=2, measured=(0.5, 0.9, 3.0)), Job(gpus=4)])
    return [messages.serialize_state(state) for state in (_STATE, sample(), elastic(), measured)]


def read_state(data: bytes, _folder: Path) -> object:
    """Parse a snapshot, name it, and decide on it: an accepted snapshot does not make a policy fail."""
    state = messages.parse_state(data)
    messages.state_digest(state)
    if messages.state_digest(messages.parse_state(messages.serialize_state(state))) != messages.state_digest(state):
        raise BrokenPromiseError("a snapshot that is written differently from how it was read")
    return _POLICY.decide(state) if _is_small(state) else state


def _is_small(state: ClusterState) -> bool:
    return len(state.jobs) <= 100 and len(state.nodes) <= 100


def decisions() -> list[bytes]:
    """Return decisions on `_STATE`."""
    whole = Decision(
        {0: Placement((0,), (8,)), 1: Placement((1,), (4,)), 2: Placement((2, 3), (8, 8))}, {3: "waits"}, (1, 2, 3)
    )
    return [
        messages.encode_decision(one, 5).SerializeToString()
        for one in (whole, Decision({}, {}, ()), Decision({}, {1: "x"}, (1,)))
    ]


def read_decision(data: bytes, _folder: Path) -> object:
    """Parse a decision."""
    return messages.parse_decision(data, _STATE)


def descriptions() -> list[bytes]:
    """Return descriptions of policies, and outcomes of jobs."""
    spec = PolicySpec(name="script", source="tests", preempts=True, round_s=5.0, needs=frozenset({"profile"}))
    return [messages.encode_spec(spec).SerializeToString(), messages.encode_outcome(_OUTCOME).SerializeToString()]


def read_description(data: bytes, _folder: Path) -> object:
    """Parse a message as a description and as an outcome."""
    try:
        spec, outcome = policy_pb2.PolicyDescription.FromString(data), policy_pb2.Outcome.FromString(data)
    except DecodeError as error:
        raise WireError("no such message") from error
    try:
        return messages.decode_spec(spec)
    except WireError:
        return messages.decode_outcome(outcome)


POLICY = (
    Target(
        "policy-states", "snapshots, read by a policy server", "protobuf", states, read_state, (WireError,), cost=10
    ),
    Target(
        "policy-decisions", "decisions of a policy server", "protobuf", decisions, read_decision, (WireError,), cost=2
    ),
    Target(
        "policy-descriptions",
        "descriptions of policies, and outcomes",
        "protobuf",
        descriptions,
        read_description,
        (WireError,),
    ),
)
