"""Training and parameter servers on the wire: they come back the same, older programs work without, invalid ones are refused."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from policies.api import Decision
from policies.errors import WireError
from policies.model import ClusterState, Placement
from policies.wire import messages as wire
from protos.headway.v1 import policy_pb2, snapshot_pb2
from tests.unit.policies.states.cluster import Job, Node, cluster
from tests.unit.policies.wire.test_messages import assert_same

NEW = {
    "Jobs": {
        "epochs",
        "progress",
        "num_servers",
        "server_offset",
        "server_node",
        "server_count",
        "slurm_priority",
        "partition_tier",
        "qos",
        "qos_names",
    },
    "Decision": {"server_offset", "server_node", "server_count"},
}
"""Fields that older programs do not know, by message."""


def state() -> ClusterState:
    """A job with servers runs, an all-reduce job runs, and a job of which nothing is known waits."""
    jobs = [
        Job(gpus=4, occupied={0: 2, 1: 2}, training=(20.0, 0.25), servers=3, served_by={1: 1, 2: 2}),
        Job(gpus=2, occupied={0: 2}, training=(5.0, 0.0)),
        Job(gpus=2),
    ]
    seen = cluster([Node(), Node(), Node()], jobs)
    order = {"slurm_priority": np.array([np.nan, np.nan, 17.5]), "partition_tier": np.array([1, 1, 40_000])}
    qos = {"qos": np.array([1, -1, 0]), "qos_names": ("normal", "high")}
    return dataclasses.replace(seen, jobs=dataclasses.replace(seen.jobs, **order, **qos))


def older(module: Any, name: str) -> type[Any]:
    """Return the message class as a program generated before the new fields has it."""
    pool, package = descriptor_pool.DescriptorPool(), "headway.v1"
    for each in (snapshot_pb2, module):
        file = descriptor_pb2.FileDescriptorProto()
        each.DESCRIPTOR.CopyToProto(file)
        for message in file.message_type:
            kept = [field for field in message.field if field.name not in NEW.get(message.name, ())]
            del message.field[:]
            message.field.extend(kept)
        pool.Add(file)
    found: type[Any] = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
    return found


def without(state: ClusterState) -> ClusterState:
    return dataclasses.replace(state, jobs=dataclasses.replace(state.jobs, **dict.fromkeys(NEW["Jobs"])))


def test_states_come_back_the_same() -> None:
    assert_same(wire.parse_state(wire.serialize_state(state())), state())
    assert_same(wire.decode_state(wire.encode_state(state())), state())
    jobs = wire.parse_state(wire.serialize_state(state())).jobs
    assert jobs.placement(0) == Placement((0, 1), (2, 2), (1, 2), (1, 2))
    assert jobs.placement(1) == Placement((0,), (2,))
    assert wire.state_digest(state()) != wire.state_digest(without(state()))


def test_older_programs_read_all_other_fields() -> None:
    old = older(snapshot_pb2, "ClusterSnapshot").FromString(wire.serialize_state(state()))
    assert list(old.jobs.job_id) == ["100", "101", "102"]
    old.DiscardUnknownFields()
    assert_same(wire.parse_state(old.SerializeToString()), without(state()))


def test_each_job_has_its_qos() -> None:
    message = wire.encode_state(state())
    assert (list(message.jobs.qos), list(message.jobs.qos_names)) == ([2, 0, 1], ["normal", "high"])
    jobs = wire.parse_state(message.SerializeToString()).jobs
    assert list(map(jobs.qos_of, range(3))) == ["high", "", "normal"]
    assert list(map(without(state()).jobs.qos_of, range(3))) == ["", "", ""]


def test_a_stopped_job_leaves_its_servers() -> None:
    jobs = state().jobs.stopped(0)
    assert jobs.placement(0) is None
    assert jobs.placement(1) == state().jobs.placement(1)
    stopped = dataclasses.replace(state(), jobs=jobs)
    assert_same(wire.parse_state(wire.serialize_state(stopped)), stopped)
    assert jobs.server_offset is not None and jobs.server_offset.tolist() == [0, 0, 0, 0]


def test_decisions_come_back_the_same() -> None:
    decision = Decision({0: Placement((0,), (4,), (1, 2), (2, 1)), 2: Placement((1,), (2,))})
    message = wire.encode_decision(decision, 1)
    assert wire.decode_decision(message, state()) == decision
    old = older(policy_pb2, "Decision").FromString(message.SerializeToString())
    old.DiscardUnknownFields()
    workers = {0: Placement((0,), (4,)), 2: Placement((1,), (2,))}
    assert wire.parse_decision(old.SerializeToString(), state()) == (1, Decision(workers))
    # A decision without servers is, to the byte, what it was before.
    plain = wire.encode_decision(Decision(workers), 1)
    assert not (plain.server_offset or plain.server_node or plain.server_count)


@pytest.mark.parametrize(
    ("field", "damage"),
    [
        ("jobs.epochs", lambda jobs: jobs.epochs.__setitem__(0, 0.0)),
        ("jobs.epochs", lambda jobs: jobs.epochs.__setitem__(0, math.inf)),
        ("jobs.epochs", lambda jobs: jobs.ClearField("epochs")),
        ("jobs.progress", lambda jobs: jobs.progress.__setitem__(1, 1.01)),
        ("jobs.progress", lambda jobs: jobs.progress.__setitem__(1, -0.01)),
        ("jobs.progress", lambda jobs: jobs.progress.append(0.5)),
        ("jobs.num_servers", lambda jobs: jobs.num_servers.__setitem__(0, 10**7)),
        ("jobs.num_servers", lambda jobs: jobs.ClearField("num_servers")),
        ("jobs.server_offset", lambda jobs: jobs.num_servers.__setitem__(0, 0)),
        ("jobs.server_offset", lambda jobs: jobs.server_offset.__setitem__(2, 1)),
        ("jobs.server_node", lambda jobs: jobs.server_node.__setitem__(1, 3)),
        ("jobs.server_node", lambda jobs: jobs.server_node.__setitem__(1, 1)),
        ("jobs.server_count", lambda jobs: jobs.server_count.__setitem__(0, 0)),
        ("jobs.server_count", lambda jobs: jobs.ClearField("server_count")),
        ("jobs.qos", lambda jobs: jobs.qos.__setitem__(0, 3)),
        ("jobs.qos", lambda jobs: jobs.qos.append(0)),
        ("jobs.qos", lambda jobs: jobs.ClearField("qos")),
        ("jobs.qos", lambda jobs: jobs.ClearField("qos_names")),
    ],
)
def test_invalid_values_are_refused_by_field(field: str, damage: Callable[[snapshot_pb2.Jobs], object]) -> None:
    message = wire.encode_state(state())
    damage(message.jobs)
    with pytest.raises(WireError, match=f"^{field}"):
        wire.parse_state(message.SerializeToString())


@pytest.mark.parametrize(
    ("field", "damage"),
    [
        ("server_offset", lambda message: message.server_offset.pop()),
        ("server_node", lambda message: message.server_node.__setitem__(0, 3)),
        ("server_node", lambda message: message.server_node.__setitem__(1, 1)),
        ("server_count", lambda message: message.server_count.__setitem__(0, 0)),
        ("server_count", lambda message: message.server_count.pop()),
    ],
)
def test_invalid_decisions_are_refused_by_field(field: str, damage: Callable[[policy_pb2.Decision], object]) -> None:
    message = wire.encode_decision(Decision({0: Placement((0,), (4,), (1, 2), (2, 1))}), 1)
    damage(message)
    with pytest.raises(WireError, match=f"^{field}"):
        wire.decode_decision(message, state())


def test_unknown_values_are_nan() -> None:
    jobs = wire.parse_state(wire.serialize_state(state())).jobs
    np.testing.assert_array_equal(jobs.epochs, [20.0, 5.0, math.nan])  # type: ignore[arg-type]
    np.testing.assert_array_equal(jobs.progress, [0.25, 0.0, math.nan])  # type: ignore[arg-type]
