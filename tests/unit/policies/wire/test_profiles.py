"""Profiles and speeds of links are read back equal from messages; invalid fields are refused by name."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.errors import WireError
from policies.model import ClusterState, Pairs, ProfileTable
from policies.state.pair_ratios import Ratios
from policies.state.ring_reduction import RingTime
from policies.wire import messages as wire
from policies.wire.profiles import profile_columns
from protos.headway.v1 import snapshot_pb2
from tests.unit.policies.states.cluster import Job, Node, cluster

LINKS = ("nic_gbyte_s", "uplink_gbyte_s", "pcie_gbyte_s", "gpu_speed")
SPEEDS = np.array([12.5, math.nan, 3.0])
PAIRS = {("bert,8,2", "vgg"): 0.4, ("vgg", "bert,8,2"): 0.9, ("vgg", "vgg"): 1.02}
measured = st.one_of(st.just(math.nan), st.floats(1e-6, 1e9))
share = st.one_of(st.just(math.nan), st.floats(0, 1))


def bare() -> ClusterState:
    return cluster([Node(), Node(), Node()], [Job(gpus=4, occupied={0: 4}), Job(gpus=8), Job(gpus=1)])


def column(*numbers: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array(numbers, dtype=np.float64)


def full() -> ClusterState:
    """Return profiles of two models, one mostly unknown, of three jobs, one without a model, and all links."""
    nan = math.nan
    profiles = ProfileTable(
        models=("VGG-16", "bert"),
        of_job=np.array([1, -1, 0]),
        locality=np.array([[1.0, 1.0, 0.5, 0.25], [nan] * 4]),
        bytes_per_step=column(5e8, nan),
        compute_s=column(0.25, nan),
        cpu_cores=column(6.0, nan),
        pcie_gbyte_s=column(0.0, nan),
        overlap=column(0.5, nan),
        hiding=column(1.0, 0.6),
        batch_per_gpu=column(nan, 32.0),
        neighbour_loss=column(0.3, -0.02),
        speed_sensitivity=column(1.0, nan),
        job_batch_per_gpu=column(16.0, nan, 64.0),
        pairs=Pairs.of(PAIRS),
        ring=RingTime(0.01, 0.1, 0.3),
    )
    state = bare()
    nodes = dataclasses.replace(state.nodes, **dict.fromkeys(LINKS, SPEEDS))
    return dataclasses.replace(state, nodes=nodes, profiles=profiles)


def assert_same(first: ClusterState, second: ClusterState) -> None:
    for name in LINKS:
        np.testing.assert_array_equal(getattr(first.nodes, name), getattr(second.nodes, name))
    assert (first.profiles is None) == (second.profiles is None)
    if first.profiles is None or second.profiles is None:
        return
    for (name, value), (same, other) in zip(
        profile_columns(first.profiles), profile_columns(second.profiles), strict=True
    ):
        assert name == same
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(value, other, err_msg=name)
            assert value.dtype == other.dtype, name
        else:
            assert value == other, name
    assert wire.state_digest(first) == wire.state_digest(second)


def test_a_state_with_profiles_comes_back_the_same() -> None:
    assert_same(wire.parse_state(wire.serialize_state(full())), full())
    message = wire.encode_state(full())
    assert message.schema_version == 1
    assert list(message.profiles.model) == ["VGG-16", "bert"]
    assert list(message.profiles.of_job) == [2, 0, 1]
    assert list(message.profiles.ring) == [0.01, 0.1, 0.3]
    np.testing.assert_array_equal(list(message.nodes.nic_gbyte_s), SPEEDS)
    assert_same(wire.decode_state(message), full())


@given(data=st.data())
def test_measurements_come_back_the_same(data: st.DataObject) -> None:
    state = full()
    assert state.profiles is not None
    drawn = {
        name: column(*data.draw(st.lists(share if name in {"overlap", "hiding"} else measured, min_size=2, max_size=2)))
        for name in ("bytes_per_step", "compute_s", "cpu_cores", "overlap", "hiding", "batch_per_gpu")
    }
    left_out = data.draw(st.sets(st.sampled_from(["overlap", "batch_per_gpu", "pairs", "ring", "job_batch_per_gpu"])))
    drawn |= dict.fromkeys(left_out)  # type: ignore[arg-type] # None: not measured
    changed = dataclasses.replace(state, profiles=dataclasses.replace(state.profiles, **drawn))
    assert_same(wire.parse_state(wire.serialize_state(changed)), changed)


def test_without_measurements_nothing_is_sent() -> None:
    message = wire.encode_state(bare())
    assert not message.HasField("profiles")
    assert not any(getattr(message.nodes, name) for name in LINKS)
    assert wire.decode_state(message).profiles is None
    assert wire.decode_state(message).nodes.nic_gbyte_s is None


def test_profiles_without_models_are_kept() -> None:
    nothing, jobs = np.zeros(0), np.full(3, -1)
    profiles = ProfileTable((), jobs, nothing.reshape(0, 4), nothing, nothing, nothing, nothing)
    state = dataclasses.replace(bare(), profiles=profiles)
    assert_same(wire.parse_state(wire.serialize_state(state)), state)


def test_an_older_reader_sees_all_other_fields() -> None:
    """A reader generated before these fields were added: they are unknown fields to it."""
    message = snapshot_pb2.ClusterSnapshot.FromString(wire.serialize_state(full()))
    message.ClearField("profiles")
    for name in LINKS:
        message.nodes.ClearField(name)
    assert message.SerializeToString() == wire.encode_state(bare()).SerializeToString()
    assert wire.decode_state(message).profiles is None


def test_the_digest_covers_every_column() -> None:
    state = full()
    assert state.profiles is not None
    known = {wire.state_digest(state)}
    changes: list[ProfileTable] = [
        dataclasses.replace(state.profiles, ring=RingTime(0.01, 0.1, 0.2)),
        dataclasses.replace(state.profiles, pairs=Pairs.of(PAIRS | {("vgg", "vgg"): 0.5})),
        dataclasses.replace(state.profiles, pairs=None),
        dataclasses.replace(state.profiles, overlap=column(0.5, 0.5)),
        dataclasses.replace(state.profiles, job_batch_per_gpu=column(1.0, 2.0, 3.0)),
    ]
    for profiles in changes:
        known.add(wire.state_digest(dataclasses.replace(state, profiles=profiles)))
    assert len(known) == 1 + len(changes)


def test_pairs_are_looked_up_as_they_were_given() -> None:
    state = wire.parse_state(wire.serialize_state(full()))
    assert state.profiles is not None and state.profiles.pairs is not None
    assert state.profiles.pairs.table() == PAIRS
    ratios = Ratios(state.profiles.pairs.table())
    assert ratios.of("bert,8,2", "vgg,1,1") == 0.4
    assert ratios.of("vgg", "vgg") == 1.0  # a measurement above 1 is no gain
    assert ratios.measured("bert", "vgg") and not ratios.measured("bert", "bert")


Break = Callable[[snapshot_pb2.ClusterSnapshot], object]


def cell(name: str, row: int, value: object) -> Break:
    return lambda message: getattr(message.profiles, name).__setitem__(row, value)


def clear(name: str) -> Break:
    return lambda message: message.profiles.ClearField(name)


BROKEN: list[tuple[str, Break]] = [
    ("nodes.nic_gbyte_s", lambda message: message.nodes.nic_gbyte_s.append(1.0)),
    ("nodes.uplink_gbyte_s", lambda message: message.nodes.uplink_gbyte_s.__setitem__(0, 0.0)),
    ("nodes.pcie_gbyte_s", lambda message: message.nodes.pcie_gbyte_s.__setitem__(0, math.inf)),
    ("profiles.model", cell("model", 0, "bert")),
    ("profiles.of_job", cell("of_job", 0, 3)),
    ("profiles.of_job", clear("of_job")),
    ("profiles.locality", lambda message: message.profiles.locality.pop()),
    ("profiles.locality", cell("locality", 1, 0.0)),
    ("profiles.bytes_per_step", cell("bytes_per_step", 0, -1.0)),
    ("profiles.bytes_per_step", clear("bytes_per_step")),
    ("profiles.compute_s", cell("compute_s", 0, 0.0)),
    ("profiles.compute_s", cell("compute_s", 0, math.inf)),
    ("profiles.overlap", cell("overlap", 0, 1.5)),
    ("profiles.hiding", cell("hiding", 0, -0.5)),
    ("profiles.batch_per_gpu", cell("batch_per_gpu", 1, 0.0)),
    ("profiles.neighbour_loss", cell("neighbour_loss", 1, 1.1)),
    ("profiles.speed_sensitivity", cell("speed_sensitivity", 0, 1.5)),
    ("nodes.gpu_speed", lambda message: message.nodes.gpu_speed.__setitem__(0, 0.0)),
    ("profiles.job_batch_per_gpu", lambda message: message.profiles.job_batch_per_gpu.pop()),
    ("profiles.pair_kind", cell("pair_kind", 0, "vgg")),
    ("profiles.pair_target", cell("pair_target", 0, 2)),
    ("profiles.pair_target", clear("pair_target")),
    ("profiles.pair_ratio", cell("pair_ratio", 0, math.nan)),
    ("profiles.pair_ratio", cell("pair_ratio", 0, 0.0)),
    ("profiles.ring", lambda message: message.profiles.ring.pop()),
    ("profiles.ring", cell("ring", 0, -1.0)),
]


@pytest.mark.parametrize(("field", "damage"), BROKEN)
def test_invalid_profiles_are_refused_by_field(field: str, damage: Break) -> None:
    message = wire.encode_state(full())
    damage(message)
    with pytest.raises(WireError, match=f"^{field}"):
        wire.parse_state(message.SerializeToString())
