"""Layouts of the GPUs inside nodes come from the site's file of the cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.base.errors import ConfigurationError
from controller.observe.gpu_layouts import read_layouts
from controller.observe.knowledge import Knowledge
from controller.observe.observer import Observer
from controller.state.ledger import Ledger
from tests.unit.controller.examples.build import node, snapshot

FILE = """
nodes = [{names = "n[1-2]", gpus = 8, switches = 4, nvlink = 4}, {names = "n3", gpus = 4}]
"""


def test_nodes_of_the_file_have_their_layouts(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(FILE)
    knowledge = Knowledge()
    knowledge.set_gpu_layouts(read_layouts(path))
    # n3 has 8 GPUs in Slurm, and n4 is not in the file
    nodes = (node("n1"), node("n2"), node("n3"), node("n4"))
    state = Observer(knowledge).observe(snapshot(nodes=nodes), Ledger(), frozenset({"dl"})).state
    assert state.nodes.gpu_layout is not None
    assert state.nodes.gpu_layout.tolist() == [0, 0, -1, -1]
    assert [layout.nvlink for layout in state.gpu_layouts] == [(1, 1, 1, 1, 2, 2, 2, 2)]


def test_without_a_file_states_are_as_before() -> None:
    state = Observer().observe(snapshot(), Ledger(), frozenset({"dl"})).state
    assert read_layouts(None) == {}
    assert (state.gpu_layouts, state.nodes.gpu_layout, state.nodes.foreign_gpu_mask) == ((), None, None)


def test_a_wrong_file_is_named_with_key_and_mend(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text("nodes = [{count = 1, gpus = 8, switches = 3}]")
    with pytest.raises(ConfigurationError, match=r"cluster_file: .*cluster.toml, nodes\[0\].switches: 3 PCIe switches"):
        read_layouts(path)
