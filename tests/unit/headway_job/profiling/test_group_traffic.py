"""Shares of collectives that pass the links between nodes, with results that were computed by hand."""

from __future__ import annotations

import pytest
from headway_job.profiling.group_traffic import Layout, Place


def layout(**groups: tuple[int, int]) -> Layout:
    """Return the layout of a job on 4 nodes of 8 ranks."""
    return Layout(32, 8, {name: Place(*place) for name, place in groups.items()})


@pytest.mark.parametrize(
    ("place", "share"),
    [
        ((32, 8), 1.0),  # all ranks: one ring, which passes each node once
        ((8, 8), 0.0),  # shards of the model within a node
        ((1, 1), 0.0),
        ((4, 1), 8.0),  # replicas on all nodes: 8 such rings side by side
        ((8, 2), 4.0),
        ((16, 8), 2 / 3),  # on two of four nodes: half of the ring's bytes pass a link, not three quarters
        ((2, 1), 8 * 2 / 3),
    ],
)
def test_a_ring_counts_by_the_nodes_that_it_passes(place: tuple[int, int], share: float) -> None:
    assert layout(world=(32, 8), group=place).link_share("all_reduce", "group") == pytest.approx(share)


@pytest.mark.parametrize(("place", "share"), [((32, 8), 1.0), ((8, 8), 0.0), ((4, 1), 1.0), ((16, 8), 2 / 3)])
def test_the_controller_counts_all_ranks_of_an_all_to_all_itself(place: tuple[int, int], share: float) -> None:
    assert layout(group=place).link_share("all_to_all", "group") == pytest.approx(share)


def test_a_call_whose_group_is_not_known_counts_as_one_of_all_ranks() -> None:
    mesh = layout(world=(32, 8), shard=(8, 8), replica=(4, 1))
    assert mesh.link_share("all_reduce", "") == 1.0
    assert mesh.link_share("all_reduce", "of another program") == 1.0


def test_if_all_groups_are_alike_it_is_known_nevertheless() -> None:
    assert layout(one=(8, 8), other=(4, 4), own=(1, 1)).link_share("all_reduce", "") == 0.0
    assert layout(one=(4, 1), other=(4, 1)).link_share("all_reduce", "") == 8.0


def test_nothing_is_divided_on_one_node_or_where_the_nodes_are_not_known() -> None:
    for here in (0, 32):
        one = Layout(32, here, {"group": Place(8, min(8, here))})
        assert not one.divides
        assert (one.link_share("all_reduce", "group"), one.link_share("all_reduce", "")) == (1.0, 1.0)
    assert layout().divides
