"""Which GPUs: layouts of nodes, and masks of foreign jobs, in snapshots; masks of placements in decisions.

Each part is there as a whole, or left out. A reader that does not know a part ignores it: an older policy counts GPUs, and for an
older controller a decision that names GPUs is one that counts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from policies.model import ClusterState, Nodes, Placement
from policies.state.gpu_layout import MOST_GPUS, GpuLayout, mask_problem
from policies.wire.columns import check, read_column, refuse, write_column
from protos.headway.v1 import policy_pb2

_COLUMNS = ("socket", "switch", "nvlink")
_SPEEDS = ("nvlink_gbyte_s", "switch_gbyte_s", "socket_gbyte_s", "between_sockets_gbyte_s")
_LARGEST = 2**31


def write_gpus(message: Any, state: ClusterState) -> None:
    """Put the layouts and the masks of foreign jobs into a RawSnapshot, where the state has them."""
    nodes = state.nodes
    if nodes.gpu_layout is not None:
        write_column(message.nodes, "nodes", "gpu_layout", nodes.gpu_layout + 1)
    if nodes.foreign_gpu_mask is not None:
        write_column(message.nodes, "nodes", "foreign_gpu_mask", nodes.foreign_gpu_mask)
    for layout in state.gpu_layouts:
        speeds = {name: getattr(layout, name) for name in _SPEEDS if getattr(layout, name) is not None}
        row = message.gpu_layouts.add(**speeds)
        for name in _COLUMNS:
            write_column(row, "gpulayout", name, np.array(getattr(layout, name), dtype=np.int64))


def read_gpus(message: Any, nodes: Nodes) -> tuple[Nodes, tuple[GpuLayout, ...]]:
    """Return the nodes with these columns, where a RawSnapshot has them, and the layouts. Raises WireError."""
    layouts = tuple([_layout(f"gpu_layouts[{at}]", row) for at, row in enumerate(message.gpu_layouts)])
    columns: dict[str, Any] = {}
    if message.nodes.gpu_layout:
        rows = columns["gpu_layout"] = read_column(message.nodes, "nodes", "gpu_layout", len(nodes)) - 1
        check("nodes.gpu_layout", rows < len(layouts), rows + 1, f"beyond the {len(layouts)} layouts")
        sizes = np.array([layout.num_gpus for layout in layouts] + [0])[rows]
        check("nodes.gpu_layout", (rows < 0) | (sizes == nodes.gpus), rows + 1, "a layout of another number of GPUs")
    if message.nodes.foreign_gpu_mask:
        columns["foreign_gpu_mask"] = read_column(message.nodes, "nodes", "foreign_gpu_mask", len(nodes))
    return (replace(nodes, **columns) if columns else nodes), layouts


def _layout(field: str, message: Any) -> GpuLayout:
    columns = {name: read_column(message, "gpulayout", name, None) for name in _COLUMNS}
    count = len(columns["socket"])
    if not 1 <= count <= MOST_GPUS:
        refuse(f"{field}.socket", f"has {count} entries; give one per GPU, 1 to {MOST_GPUS}")
    for name, column in columns.items():
        if len(column) != count:
            refuse(f"{field}.{name}", f"has {len(column)} entries, not {count}")
        check(f"{field}.{name}", column < _LARGEST, column, f"{_LARGEST} or more")
    sockets = dict(zip(columns["switch"].tolist(), columns["socket"].tolist(), strict=True))
    one = np.array([sockets[switch] for switch in columns["switch"].tolist()]) == columns["socket"]
    check(f"{field}.switch", one, columns["switch"], "a switch on two sockets")
    speeds = {name: getattr(message, name) for name in _SPEEDS if message.HasField(name)}
    for name, speed in speeds.items():
        if not 0 < speed < float("inf"):
            refuse(f"{field}.{name}", f"is {speed}: not a finite number above 0")
    socket, switch, nvlink = (tuple(columns[name].tolist()) for name in _COLUMNS)
    return GpuLayout(socket, switch, nvlink, **speeds)


def write_masks(message: policy_pb2.Decision, placements: Sequence[Placement]) -> None:
    """Put the GPUs that the placements name into the message, if any names some."""
    if any(placement.gpu_masks for placement in placements):
        for placement in placements:
            message.placement_gpu_mask.extend(placement.gpu_masks or (0,) * len(placement.nodes))


def read_masks(
    message: policy_pb2.Decision, order: Sequence[int], node: list[int], gpus: list[int], state: ClusterState
) -> list[int]:
    """Return the masks of the entries, in that order; empty if the message has none. `node` and `gpus` are in that order too.

    Raises WireError for GPUs that do not exist, and for another number of them than the job gets.
    """
    masks = message.placement_gpu_mask
    if not masks:
        return []
    if len(masks) != len(node):
        refuse("placement_gpu_mask", f"has {len(masks)} entries, not {len(node)} as placement_node")
    sizes = state.nodes.gpus.tolist()
    for at, where, count in zip(order, node, gpus, strict=True):
        problem = mask_problem(masks[at], count, sizes[where], 0)
        if problem:
            refuse(f"placement_gpu_mask[{at}]", f"node {state.nodes.names[where]}: {problem}")
    return [masks[at] for at in order]
