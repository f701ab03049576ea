"""Messages are read back equal; invalid ones give a WireError that names the field."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.api import Decision, LearningStatus, Outcome, PolicySpec, load_policy, policy_names
from policies.errors import EncoderError, WireError
from policies.model import ClusterState, Placement, Split
from policies.wire import messages as wire
from protos.headway.v1 import policy_pb2, snapshot_pb2
from tests.unit.policies.states.cluster import Job, Node, cluster, states

OPTIONAL = {
    *("min_gpus", "max_gpus", "contention_sensitivity", "contention_confidence", "throughput_steps_per_s"),
    *("nic_gbyte_s", "uplink_gbyte_s", "pcie_gbyte_s"),
    *("epochs", "progress", "num_servers", "server_offset", "server_node", "server_count"),
    *("slurm_priority", "partition_tier", "qos", "qos_names"),
    *("gpu_layout", "foreign_gpu_mask", "gpu_speed"),
}
"""Columns that most states do not have."""


def assert_same(first: ClusterState, second: ClusterState) -> None:
    assert (first.sequence, first.time_s) == (second.sequence, second.time_s)
    for table in ("nodes", "jobs"):
        for name, value in vars(getattr(first, table)).items():
            other = getattr(getattr(second, table), name)
            if isinstance(value, np.ndarray):
                np.testing.assert_array_equal(value, other, err_msg=name)
                assert value.dtype == other.dtype, name
            else:
                assert value == other, name
    np.testing.assert_array_equal(first.node_sets, second.node_sets)


def sample() -> ClusterState:
    jobs = [
        Job(gpus=12, occupied={0: 8, 1: 4}, estimate_s=100, service_s=3, attained_gpu_s=36, preemptible=False),
        Job(gpus=4, split=Split.FIXED, min_nodes=2, cpus_per_gpu=2.5, memory_mib_per_gpu=1000, exclusive=True),
        Job(gpus=6, split=Split.EVEN, min_nodes=1, max_nodes=3, nodes=frozenset({1, 2})),
    ]
    nodes = [Node(), Node(cpus=64, memory_mib=2**40, foreign_gpus=1, foreign_cpus=2, foreign_memory_mib=2**33)]
    return cluster([*nodes, Node(available=False)], jobs, sequence=2**40, time_s=1.7e9)


def elastic() -> ClusterState:
    """One job takes 1 to 8 GPUs and asks for 4, the other takes exactly 2."""
    return cluster([Node()], [Job(gpus=4, sizes=(1, 8), occupied={0: 6}), Job(gpus=2)])


@settings(max_examples=100)
@given(state=states())
def test_states_come_back_the_same(state: ClusterState) -> None:
    assert_same(wire.parse_state(wire.serialize_state(state)), state)
    assert_same(wire.decode_state(wire.encode_state(state)), state)


@settings(max_examples=60)
@given(state=states())
def test_generated_code_reads_and_writes_the_same_messages(state: ClusterState) -> None:
    # Given what any other language's generated code sees
    message = snapshot_pb2.ClusterSnapshot.FromString(wire.serialize_state(state))
    # Then each column holds the numbers of the state
    for table, target in ((state.jobs, message.jobs), (state.nodes, message.nodes)):
        for name, value in vars(table).items():
            field = {"ids": "job_id", "names": "name"}.get(name, name)
            if value is None:
                assert name in OPTIONAL and not getattr(target, field)
                continue
            expected = list(value) if isinstance(value, tuple) else (value + (name == "node_set")).tolist()
            np.testing.assert_array_equal(list(getattr(target, field)), expected, err_msg=name)
    # And what it writes is read as the same state
    assert_same(wire.parse_state(message.SerializeToString()), state)


class TestElastic:
    """The columns of sizes, which most states do not have."""

    def test_they_come_back_the_same(self) -> None:
        assert_same(wire.parse_state(wire.serialize_state(elastic())), elastic())
        message = wire.encode_state(elastic())
        assert (list(message.jobs.min_gpus), list(message.jobs.max_gpus)) == ([1, 2], [8, 2])
        assert_same(wire.decode_state(message), elastic())
        assert [column.tolist() for column in elastic().jobs.sizes] == [[1, 2], [8, 2]]

    def test_without_ranges_every_job_takes_what_it_requests(self) -> None:
        jobs = wire.parse_state(wire.serialize_state(sample())).jobs
        assert jobs.min_gpus is jobs.max_gpus is None
        assert [column.tolist() for column in jobs.sizes] == [[12, 4, 6], [12, 4, 6]]

    def test_the_digest_covers_them(self) -> None:
        state, known = elastic(), set()
        for low, high in (([1, 2], [8, 2]), ([2, 2], [8, 2]), ([1, 2], [8, 4]), ([4, 2], [4, 2])):
            sizes = {"min_gpus": np.array(low, dtype=np.int64), "max_gpus": np.array(high, dtype=np.int64)}
            known.add(wire.state_digest(dataclasses.replace(state, jobs=dataclasses.replace(state.jobs, **sizes))))
        none = dataclasses.replace(state.jobs, min_gpus=None, max_gpus=None)
        known.add(wire.state_digest(dataclasses.replace(state, jobs=none)))
        assert len(known) == 5

    @pytest.mark.parametrize(
        ("field", "damage"),
        [
            ("jobs.min_gpus", lambda jobs: jobs.min_gpus.__setitem__(0, 0)),
            ("jobs.min_gpus", lambda jobs: jobs.min_gpus.__setitem__(1, 3)),
            ("jobs.min_gpus", lambda jobs: jobs.ClearField("min_gpus")),
            ("jobs.max_gpus", lambda jobs: jobs.max_gpus.__setitem__(0, 3)),
            ("jobs.max_gpus", lambda jobs: jobs.max_gpus.append(9)),
            ("jobs.max_gpus", lambda jobs: jobs.ClearField("max_gpus")),
        ],
    )
    def test_invalid_values_are_refused_by_field(
        self, field: str, damage: Callable[[snapshot_pb2.Jobs], object]
    ) -> None:
        message = wire.encode_state(elastic())
        damage(message.jobs)
        with pytest.raises(WireError, match=f"^{field}"):
            wire.parse_state(message.SerializeToString())


def measured() -> ClusterState:
    """Two jobs run, one known to be half as fast as alone; the third waits."""
    jobs = [
        Job(gpus=4, occupied={0: 4}, measured=(2.0, 0.95, 3.5)),
        Job(gpus=4, occupied={0: 4}, measured=(math.nan, 0.0, 1.25)),
        Job(gpus=2),
    ]
    return cluster([Node()], jobs)


class TestMeasured:
    """The columns of what was measured of running jobs, which most states do not have."""

    def test_they_come_back_the_same(self) -> None:
        assert_same(wire.parse_state(wire.serialize_state(measured())), measured())
        message = wire.encode_state(measured())
        assert message.schema_version == 1
        np.testing.assert_array_equal(list(message.jobs.contention_sensitivity), [2.0, math.nan, math.nan])
        assert list(message.jobs.contention_confidence) == [0.95, 0.0, 0.0]
        np.testing.assert_array_equal(list(message.jobs.throughput_steps_per_s), [3.5, 1.25, math.nan])
        assert_same(wire.decode_state(message), measured())

    def test_unknown_values_are_left_out(self) -> None:
        jobs = wire.parse_state(wire.serialize_state(sample())).jobs
        assert jobs.contention_sensitivity is jobs.contention_confidence is jobs.throughput_steps_per_s is None

    def test_an_older_reader_sees_all_other_fields(self) -> None:
        """A reader generated before these fields were added."""
        without = dataclasses.replace(
            measured().jobs, contention_sensitivity=None, contention_confidence=None, throughput_steps_per_s=None
        )
        old = dataclasses.replace(measured(), jobs=without)
        message = snapshot_pb2.ClusterSnapshot.FromString(wire.serialize_state(measured()))
        for field in ("contention_sensitivity", "contention_confidence", "throughput_steps_per_s"):
            message.jobs.ClearField(field)
        assert_same(wire.decode_state(message), old)
        assert wire.state_digest(old) != wire.state_digest(measured())

    @pytest.mark.parametrize(
        ("field", "damage"),
        [
            ("jobs.contention_sensitivity", lambda jobs: jobs.contention_sensitivity.__setitem__(0, 0.0)),
            ("jobs.contention_sensitivity", lambda jobs: jobs.contention_sensitivity.__setitem__(0, math.inf)),
            ("jobs.contention_sensitivity", lambda jobs: jobs.ClearField("contention_sensitivity")),
            ("jobs.contention_confidence", lambda jobs: jobs.contention_confidence.__setitem__(1, 1.01)),
            ("jobs.contention_confidence", lambda jobs: jobs.contention_confidence.__setitem__(1, math.nan)),
            ("jobs.contention_confidence", lambda jobs: jobs.contention_confidence.append(1.0)),
            ("jobs.throughput_steps_per_s", lambda jobs: jobs.throughput_steps_per_s.__setitem__(2, -1.0)),
            ("jobs.throughput_steps_per_s", lambda jobs: jobs.ClearField("throughput_steps_per_s")),
        ],
    )
    def test_invalid_values_are_refused_by_field(
        self, field: str, damage: Callable[[snapshot_pb2.Jobs], object]
    ) -> None:
        message = wire.encode_state(measured())
        damage(message.jobs)
        with pytest.raises(WireError, match=f"^{field}"):
            wire.parse_state(message.SerializeToString())


def test_unpacked_and_scattered_columns_are_read_too() -> None:
    """Both are valid protobuf, although generated code writes neither."""
    state = sample()
    message = wire.encode_state(state)
    gpus = list(message.nodes.gpus)
    message.nodes.ClearField("gpus")
    unpacked = b"".join(b"\x15" + gpu.to_bytes(4, "little") for gpu in gpus)
    scattered = b"".join(b"\x12\x04" + gpu.to_bytes(4, "little") for gpu in gpus)
    for column in (unpacked, scattered):
        nodes = b"\x22" + bytes([len(column)]) + column
        assert_same(wire.parse_state(message.SerializeToString() + nodes), state)


def test_digest_is_stable_across_processes_and_changes_with_content() -> None:
    state = sample()
    program = (
        "from policies.wire.messages import state_digest; from tests.unit.policies.wire.test_messages import sample; "
        "print(state_digest(sample()))"
    )
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert (
        other.stdout.strip()
        == wire.state_digest(state)
        == wire.state_digest(wire.parse_state(wire.serialize_state(state)))
    )
    assert wire.state_digest(dataclasses.replace(state, sequence=1)) == wire.state_digest(state)
    assert wire.state_digest(dataclasses.replace(state, time_s=1.0)) != wire.state_digest(state)
    for table in ("nodes", "jobs"):
        rows = getattr(state, table)
        for name, value in vars(rows).items():
            if value is None:
                changed = np.arange(1, 4)
            elif isinstance(value, np.ndarray):
                changed = value.copy()
                changed[-1] = not changed[-1] if changed.dtype == np.bool_ else 77
            else:
                changed = (*value[:-1], "other")
            altered = dataclasses.replace(state, **{table: dataclasses.replace(rows, **{name: changed})})
            assert wire.state_digest(altered) != wire.state_digest(state), name


Break = Callable[[snapshot_pb2.ClusterSnapshot], object]


def set_cell(table: str, column: str, row: int, value: object) -> Break:
    return lambda message: getattr(getattr(message, table), column).__setitem__(row, value)


def append(table: str, column: str, value: object) -> Break:
    return lambda message: getattr(getattr(message, table), column).append(value)


BROKEN: list[tuple[str, Break]] = [
    ("schema_version", lambda message: setattr(message, "schema_version", 2)),
    ("schema_version", lambda message: message.ClearField("schema_version")),
    ("time_s", lambda message: setattr(message, "time_s", math.nan)),
    ("nodes.name", set_cell("nodes", "name", 1, "n0")),
    ("nodes.name", set_cell("nodes", "name", 1, "")),
    ("nodes.gpus", append("nodes", "gpus", 8)),
    ("nodes.gpus", set_cell("nodes", "gpus", 0, 4_000_000_000)),
    ("nodes.available", append("nodes", "available", True)),
    ("nodes.memory_mib", set_cell("nodes", "memory_mib", 0, 2**63)),
    ("node_sets[0].members", lambda message: setattr(message.node_sets[0], "members", b"")),
    ("node_sets[0].members", lambda message: setattr(message.node_sets[0], "members", b"\xff")),
    ("jobs.job_id", set_cell("jobs", "job_id", 2, "101")),
    ("jobs.state", set_cell("jobs", "state", 0, 0)),
    ("jobs.state", set_cell("jobs", "state", 0, 3)),
    ("jobs.state", set_cell("jobs", "state", 0, 300)),
    ("jobs.split", set_cell("jobs", "split", 1, -1)),
    ("jobs.estimate_source", set_cell("jobs", "estimate_source", 1, 9)),
    ("jobs.submit_time_s", set_cell("jobs", "submit_time_s", 0, math.inf)),
    ("jobs.submit_time_s", set_cell("jobs", "submit_time_s", 0, 1e9)),
    ("jobs.start_time_s", set_cell("jobs", "start_time_s", 0, math.inf)),
    ("jobs.service_s", set_cell("jobs", "service_s", 0, -1.0)),
    ("jobs.service_s", set_cell("jobs", "service_s", 0, math.nan)),
    ("jobs.duration_estimate_s", set_cell("jobs", "duration_estimate_s", 0, -5.0)),
    ("jobs.cpus_per_gpu", set_cell("jobs", "cpus_per_gpu", 0, math.nan)),
    ("jobs.cpus_per_gpu", set_cell("jobs", "cpus_per_gpu", 0, 1e-300)),
    ("jobs.memory_mib_per_gpu", set_cell("jobs", "memory_mib_per_gpu", 0, 1e300)),
    ("jobs.num_gpus", set_cell("jobs", "num_gpus", 0, 0)),
    ("jobs.min_nodes", set_cell("jobs", "min_nodes", 0, 0)),
    ("jobs.max_nodes", set_cell("jobs", "max_nodes", 1, 1)),
    ("jobs.gpus_per_node", set_cell("jobs", "gpus_per_node", 1, 3)),
    ("jobs.node_set", set_cell("jobs", "node_set", 2, 2)),
    ("jobs.user", set_cell("jobs", "user", 2, 1)),
    ("jobs.preemptible", lambda message: message.jobs.preemptible.pop()),
    ("jobs.placement_offset", lambda message: message.jobs.placement_offset.pop()),
    ("jobs.placement_offset", set_cell("jobs", "placement_offset", 1, 1)),
    ("jobs.placement_offset", set_cell("jobs", "placement_offset", 1, 9)),
    ("jobs.placement_offset", set_cell("jobs", "placement_offset", 3, 3)),
    ("jobs.placement_offset", set_cell("jobs", "state", 0, snapshot_pb2.JOB_STATE_PENDING)),
    ("jobs.placement_offset", set_cell("jobs", "state", 1, snapshot_pb2.JOB_STATE_RUNNING)),
    ("jobs.placement_node", set_cell("jobs", "placement_node", 1, 3)),
    ("jobs.placement_node", set_cell("jobs", "placement_node", 0, 1)),
    ("jobs.placement_gpus", set_cell("jobs", "placement_gpus", 0, 0)),
    ("jobs.placement_gpu_mask", append("jobs", "placement_gpu_mask", 1)),
]


@pytest.mark.parametrize(("field", "damage"), BROKEN)
def test_invalid_snapshots_are_refused_by_field(field: str, damage: Break) -> None:
    message = wire.encode_state(sample())
    damage(message)
    with pytest.raises(WireError, match=f"^{field.replace('[', chr(92) + '[')}"):
        wire.parse_state(message.SerializeToString())


@settings(max_examples=200)
@given(data=st.binary(max_size=400), cut=st.integers(0, 600), flip=st.integers(0, 600))
def test_damaged_bytes_raise_no_other_error(data: bytes, cut: int, flip: int) -> None:
    good = bytearray(wire.serialize_state(sample()))
    good[flip % len(good)] ^= 0x41
    for junk in (data, bytes(good), bytes(good[: cut % len(good)])):
        with contextlib.suppress(WireError):
            wire.parse_state(junk)


DECISION = Decision({0: Placement((0, 1), (8, 4)), 2: Placement((2,), (6,))}, {2: "best fit"}, (2, 1))


def test_decisions_come_back_the_same() -> None:
    data = wire.encode_decision(DECISION, 7).SerializeToString()
    assert wire.parse_decision(data, sample()) == (7, DECISION)
    assert wire.parse_decision(b"\x1a\x01\x00", sample()) == (0, Decision({}))
    assert wire.parse_decision(b"\x08\x05", sample()) == (5, Decision({}))


@settings(max_examples=50)
@given(state=states(), name=st.sampled_from(policy_names()))
def test_decisions_of_every_policy_come_back_the_same(state: ClusterState, name: str) -> None:
    try:
        decision = load_policy(name).decide(state)
    except EncoderError:
        return  # one that was trained for other clusters
    data = wire.encode_decision(decision, state.sequence).SerializeToString()
    assert wire.parse_decision(data, state) == (state.sequence, decision)


def test_nodes_of_a_placement_may_come_in_any_order() -> None:
    message = wire.encode_decision(DECISION, 7)
    message.placement_node[:2], message.placement_gpus[:2] = [1, 0], [4, 8]
    assert wire.decode_decision(message, sample()) == DECISION


def test_long_reasons_are_cut_when_sent() -> None:
    decision = Decision({}, {0: "x" * 1000})
    assert wire.decode_decision(wire.encode_decision(decision, 1), sample()).reasons == {0: "x" * 200}


def test_texts_of_a_server_become_printable() -> None:
    text, shown = "two\nlines \x1b[31mred\x07", "two lines ?[31mred?"
    decision = wire.decode_decision(wire.encode_decision(Decision({}, {0: text}, (), text, text), 1), sample())
    assert (decision.reasons, decision.guard, decision.outside) == ({0: shown}, shown, shown)
    learning = LearningStatus(last_result=text, last_reason=text, problem=text)
    spec = wire.decode_spec(
        wire.encode_spec(PolicySpec("mine", source=text, version=text, ordered_by=text, learning=learning))
    )
    assert (spec.source, spec.version, spec.ordered_by) == (shown, shown, shown)
    assert spec.learning == LearningStatus(last_result=shown, last_reason=shown, problem=shown)


def test_long_properties_of_a_policy_are_cut() -> None:
    spec = wire.decode_spec(wire.encode_spec(PolicySpec("mine", "s" * 10**6, "v" * 10**6, ordered_by="o" * 10**6)))
    assert (spec.source, spec.version, spec.ordered_by) == ("s" * 500, "v" * 100, "o" * 300)


BROKEN_DECISIONS: list[tuple[str, Callable[[policy_pb2.Decision], object]]] = [
    ("job", lambda message: message.job.__setitem__(0, 3)),
    ("job", lambda message: message.job.__setitem__(0, 2)),
    ("placement_offset", lambda message: message.placement_offset.pop()),
    ("placement_offset", lambda message: message.placement_offset.__setitem__(0, 1)),
    ("placement_offset", lambda message: message.placement_offset.__setitem__(1, 4_000_000_000)),
    ("placement_offset", lambda message: message.placement_offset.__setitem__(1, 0)),
    ("placement_node", lambda message: message.placement_node.__setitem__(0, 3)),
    ("placement_node", lambda message: message.placement_node.__setitem__(0, 1)),
    ("placement_gpus", lambda message: message.placement_gpus.__setitem__(0, 0)),
    ("placement_gpus", lambda message: message.placement_gpus.pop()),
    ("reason_job", lambda message: message.reason_job.__setitem__(0, 3)),
    ("reason", lambda message: message.reason.append("two")),
    ("reason", lambda message: message.reason.__setitem__(0, "x" * 201)),
    ("queue", lambda message: message.queue.append(2)),
    ("queue", lambda message: message.queue.append(3)),
    ("queue", lambda message: message.queue.append(0)),
]


@pytest.mark.parametrize(("field", "damage"), BROKEN_DECISIONS)
def test_invalid_decisions_are_refused_by_field(field: str, damage: Callable[[policy_pb2.Decision], object]) -> None:
    message = wire.encode_decision(DECISION, 7)
    damage(message)
    with pytest.raises(WireError, match=f"^{field}"):
        wire.parse_decision(message.SerializeToString(), sample())


@settings(max_examples=200)
@given(data=st.binary(max_size=200))
def test_random_bytes_are_refused_or_give_a_valid_decision(data: bytes) -> None:
    try:
        _, decision = wire.parse_decision(data, sample())
    except WireError:
        return
    assert set(decision.allocation) <= {0, 1, 2}


@pytest.mark.parametrize("name", policy_names())
def test_specs_come_back_the_same(name: str) -> None:
    spec = load_policy(name).spec
    assert wire.decode_spec(wire.encode_spec(spec)) == spec


def test_a_description_of_an_earlier_version_considers_all_jobs() -> None:
    message = wire.encode_spec(PolicySpec(name="mine", source="me", considers=7))
    assert wire.decode_spec(message).considers == 7
    message.ClearField("considers")
    assert wire.decode_spec(message).considers == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", "x" * 101),
        ("name", "a\nb"),
        ("min_schema_version", 2),
        ("round_s", -1.0),
        ("round_s", math.nan),
        ("needs", ["telepathy"]),
    ],
)
def test_invalid_descriptions_are_refused_by_field(field: str, value: object) -> None:
    message = wire.encode_spec(PolicySpec(name="mine", source="me"))
    if isinstance(value, list):
        message.needs.extend(value)
    else:
        setattr(message, field, value)
    with pytest.raises(WireError, match=f"^{field}"):
        wire.decode_spec(message)


def test_outcomes_come_back_the_same_and_invalid_ones_are_refused() -> None:
    outcome = Outcome("12_3", "ada", "train", 1.0, 2.0, 9.5, 8, 2, 6.0, "COMPLETED")
    assert wire.decode_outcome(wire.encode_outcome(outcome)) == outcome
    for field, value in (("job_id", ""), ("finish_time_s", math.nan), ("service_s", math.inf)):
        with pytest.raises(WireError, match=field):
            wire.decode_outcome(wire.encode_outcome(dataclasses.replace(outcome, **{field: value})))
