"""Which GPUs on the wire: layouts, masks and choices come back the same, older programs work without, invalid ones are refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from policies.api import Decision, PolicySpec
from policies.errors import WireError
from policies.model import ClusterState, Placement
from policies.state.gpu_layout import GpuLayout
from policies.wire import messages as wire
from protos.headway.v1 import policy_pb2, snapshot_pb2
from tests.unit.policies.states.cluster import Job, Node, cluster
from tests.unit.policies.wire.test_messages import assert_same

NEW = {
    "ClusterSnapshot": {"gpu_layouts"},
    "Nodes": {"gpu_layout", "foreign_gpu_mask"},
    "Decision": {"placement_gpu_mask"},
}
"""Fields that older programs do not know, by message."""
LAYOUT = GpuLayout((0,) * 4 + (1,) * 4, (0, 0, 1, 1, 2, 2, 3, 3), (1,) * 4 + (0,) * 4, 100.0, 16.0, None, 9.6)
CHOICE = Decision({1: Placement((0, 2), (2, 1), gpu_masks=(0b1100, 0)), 2: Placement((1,), (2,))})


def state() -> ClusterState:
    """Two nodes of the layout, one without; a foreign job has GPU 7 of the first; one job runs, two wait."""
    seen = cluster([Node(foreign_gpus=1), Node(), Node(gpus=4)], [Job(occupied={0: 1}), Job(gpus=3), Job(gpus=2)])
    masks = np.array([128, 0, 0], dtype=np.uint64)
    nodes = dataclasses.replace(seen.nodes, gpu_layout=np.array([0, 0, -1]), foreign_gpu_mask=masks)
    return dataclasses.replace(seen, nodes=nodes, gpu_layouts=(LAYOUT,))


def older(module: Any, name: str) -> type[Any]:
    """Return the message class as a program generated before the new fields has it."""
    pool = descriptor_pool.DescriptorPool()
    for each in (snapshot_pb2, module):
        file = descriptor_pb2.FileDescriptorProto()
        each.DESCRIPTOR.CopyToProto(file)
        for message in file.message_type:
            kept = [field for field in message.field if field.name not in NEW.get(message.name, ())]
            del message.field[:]
            message.field.extend(kept)
        pool.Add(file)
    found: type[Any] = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"headway.v1.{name}"))
    return found


def sent(decision: Decision) -> policy_pb2.Decision:
    return wire.encode_decision(decision, 7)


def test_states_come_back_the_same() -> None:
    for back in (wire.parse_state(wire.serialize_state(state())), wire.decode_state(wire.encode_state(state()))):
        assert_same(back, state())
        assert back.gpu_layouts == (LAYOUT,)
        assert back.nodes.gpu_layout is not None
        assert back.nodes.gpu_layout.tolist() == [0, 0, -1]
        assert back.nodes.foreign_gpu_mask is not None
        assert back.nodes.foreign_gpu_mask.tolist() == [128, 0, 0]
    faster = dataclasses.replace(state(), gpu_layouts=(dataclasses.replace(LAYOUT, nvlink_gbyte_s=300.0),))
    assert wire.state_digest(faster) != wire.state_digest(state())


def test_named_gpus_come_back_with_their_placements_in_any_order() -> None:
    assert wire.decode_decision(sent(CHOICE), state()) == CHOICE
    swapped = sent(CHOICE)
    for column in (swapped.placement_node, swapped.placement_gpus, swapped.placement_gpu_mask):
        column[0], column[1] = column[1], column[0]
    assert wire.decode_decision(swapped, state()) == CHOICE


def test_an_older_policy_reads_the_state_without_layouts() -> None:
    old = older(snapshot_pb2, "ClusterSnapshot").FromString(wire.serialize_state(state()))
    for nodes in (old.nodes,):
        nodes.DiscardUnknownFields()
    old.DiscardUnknownFields()
    back = wire.parse_state(old.SerializeToString())
    assert (back.gpu_layouts, back.nodes.gpu_layout, back.nodes.foreign_gpu_mask) == ((), None, None)
    assert back.nodes.gpus.tolist() == [8, 8, 4]


def test_for_an_older_controller_a_choice_is_a_number_of_gpus() -> None:
    old = older(policy_pb2, "Decision").FromString(sent(CHOICE).SerializeToString())
    old.DiscardUnknownFields()
    _, back = wire.parse_decision(old.SerializeToString(), state())
    assert back.allocation == {1: Placement((0, 2), (2, 1)), 2: Placement((1,), (2,))}


def test_decisions_that_count_have_the_bytes_that_they_had() -> None:
    counted = sent(Decision({2: Placement((1,), (2,))}))
    assert not counted.placement_gpu_mask
    plain = wire.encode_state(cluster([Node()], [Job()]))
    assert not plain.gpu_layouts
    assert not plain.nodes.gpu_layout
    assert not plain.nodes.foreign_gpu_mask


def test_a_spec_says_that_the_policy_names_gpus() -> None:
    spec = PolicySpec("p", "tests", exact_gpus=True)
    assert wire.decode_spec(wire.encode_spec(spec)).exact_gpus


def _masks(*masks: int) -> Callable[[policy_pb2.Decision], None]:
    def change(message: policy_pb2.Decision) -> None:
        del message.placement_gpu_mask[:]
        message.placement_gpu_mask.extend(masks)

    return change


@pytest.mark.parametrize(
    ("masks", "complaint"),
    [
        ((0b11, 0), "placement_gpu_mask: has 2 entries, not 3"),
        ((1 << 8 | 1, 0, 0), r"placement_gpu_mask\[0\]: node n0: GPU 8 does not exist there; name some of 0 to 7"),
        ((0b1, 0, 0), r"node n0: 1 GPUs \(0\) are named for 2"),
        ((0, 1 << 4, 0), r"placement_gpu_mask\[1\]: node n2: GPU 4 does not exist"),
    ],
)
def test_invalid_choices_are_refused(masks: tuple[int, ...], complaint: str) -> None:
    message = sent(CHOICE)
    _masks(*masks)(message)
    with pytest.raises(WireError, match=complaint):
        wire.decode_decision(message, state())


def _change(path: str, value: Any) -> Callable[[snapshot_pb2.ClusterSnapshot], None]:
    def change(message: snapshot_pb2.ClusterSnapshot) -> None:
        *table, name = path.split(".")
        holder: Any = message.gpu_layouts[0] if table == ["layout"] else message.nodes
        if isinstance(value, list):
            del getattr(holder, name)[:]
            getattr(holder, name).extend(value)
        else:
            setattr(holder, name, value)

    return change


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (_change("nodes.gpu_layout", [1, 2, 0]), r"nodes.gpu_layout\[1\]: is 2: beyond the 1 layouts"),
        (_change("nodes.gpu_layout", [1, 1, 1]), r"nodes.gpu_layout\[2\]: is 1: a layout of another number of GPUs"),
        (_change("nodes.foreign_gpu_mask", [1]), "nodes.foreign_gpu_mask: has 1 entries, not 3"),
        (_change("layout.socket", []), r"gpu_layouts\[0\].socket: has 0 entries"),
        (_change("layout.nvlink", [1]), r"gpu_layouts\[0\].nvlink: has 1 entries, not 8"),
        (_change("layout.switch", [0] * 8), r"gpu_layouts\[0\].switch\[0\]: is 0: a switch on two sockets"),
        (_change("layout.nvlink_gbyte_s", 0.0), r"gpu_layouts\[0\].nvlink_gbyte_s: is 0.0: not a finite number"),
    ],
)
def test_invalid_layouts_are_refused(change: Callable[[snapshot_pb2.ClusterSnapshot], None], complaint: str) -> None:
    message = wire.encode_state(state())
    change(message)
    with pytest.raises(WireError, match=complaint):
        wire.decode_state(message)
