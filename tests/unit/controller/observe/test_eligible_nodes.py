"""Node sets of jobs that ask for several partitions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from controller.observe.eligible_nodes import EligibleNodes, Mask, UnsupportedRequestError
from controller.slurm.client import SlurmJob, SlurmPartition
from tests.unit.controller.examples.build import job, snapshot

NAMES = ("n1", "n2", "n3", "n4")
LEFT = SlurmPartition("left", frozenset({"n1", "n2"}), up=True, max_time_s=None)
RIGHT = SlurmPartition("right", frozenset({"n3"}), up=True, max_time_s=600.0)
EITHER = replace(job(), partition="right,left", time_limit_s=300.0)


def nodes_of(wanted: SlurmJob, *partitions: SlurmPartition, on_one_node: bool, needed: int = 1) -> tuple[str, ...]:
    """Return the nodes that the job may use, of which it needs so many."""

    def fits(mask: Mask) -> bool:
        return bool(np.count_nonzero(mask) >= needed)

    eligible = EligibleNodes(snapshot(partitions=partitions), NAMES)
    row = eligible.node_set(wanted, fits, on_one_node=on_one_node)
    return tuple(name for name, usable in zip(NAMES, eligible.masks[row], strict=True) if usable)


def test_a_job_on_one_node_may_use_the_nodes_of_each_of_its_partitions() -> None:
    assert nodes_of(EITHER, LEFT, RIGHT, on_one_node=True) == ("n1", "n2", "n3")


def test_nodes_of_a_partition_that_is_down_or_allows_less_time_do_not_count() -> None:
    assert nodes_of(EITHER, replace(LEFT, up=False), RIGHT, on_one_node=True) == ("n3",)
    assert nodes_of(replace(EITHER, time_limit_s=900.0), LEFT, RIGHT, on_one_node=True) == ("n1", "n2")


@pytest.mark.parametrize(("needed", "found"), [(1, ("n3",)), (2, ("n1", "n2"))])
def test_a_larger_job_uses_the_first_partition_on_which_it_fits(needed: int, found: tuple[str, ...]) -> None:
    assert nodes_of(EITHER, LEFT, RIGHT, on_one_node=False, needed=needed) == found


@pytest.mark.parametrize("on_one_node", [True, False])
def test_a_job_that_fits_on_none_of_its_partitions_is_left_to_slurm(on_one_node: bool) -> None:
    for partitions in ((LEFT, RIGHT), (replace(LEFT, up=False), replace(RIGHT, up=False))):
        with pytest.raises(UnsupportedRequestError):
            nodes_of(EITHER, *partitions, on_one_node=on_one_node, needed=4)
