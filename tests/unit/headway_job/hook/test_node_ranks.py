"""The ranks of this node, from environments as launchers write them."""

from __future__ import annotations

import pytest
from headway_job.hook.node_ranks import ranks_of_node

_TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "1"}
_SLURM = {"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8", "SLURM_GTIDS": "1,3,5,7", "SLURM_NODEID": "1"}


def test_torchrun_numbers_the_ranks_of_a_node_in_one_run() -> None:
    assert ranks_of_node(5, 8, _TORCHRUN) == {4, 5, 6, 7}
    # nodes may have different numbers of ranks
    assert ranks_of_node(5, 8, _TORCHRUN | {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "3"}) == {5, 6, 7}


def test_slurm_lists_the_tasks_of_a_node_in_any_distribution() -> None:
    assert ranks_of_node(5, 8, _SLURM) == {1, 3, 5, 7}
    assert ranks_of_node(5, 8, _SLURM | {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "2"}) == {1, 3, 5, 7}


def test_the_launcher_nearest_to_the_process_counts() -> None:
    # one task of Slurm on each node, each of which runs torchrun
    outer = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_GTIDS": "1"}
    assert ranks_of_node(5, 8, _TORCHRUN | outer) == {4, 5, 6, 7}


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {name: value for name, value in _TORCHRUN.items() if name != "GROUP_RANK"},  # of another launcher
        _TORCHRUN | {"RANK": "4"},  # torch.distributed has other ranks than the launcher
        _TORCHRUN | {"WORLD_SIZE": "9"},
        _TORCHRUN | {"LOCAL_RANK": "4"},
        _TORCHRUN | {"LOCAL_RANK": "-1"},
        _TORCHRUN | {"LOCAL_WORLD_SIZE": "5"},  # more ranks than there are
        _TORCHRUN | {"LOCAL_RANK": "6", "LOCAL_WORLD_SIZE": "7"},
        _SLURM | {"SLURM_PROCID": "4"},
        _SLURM | {"SLURM_STEP_NUM_TASKS": "4"},  # the step runs several ranks in a task
        _SLURM | {"SLURM_GTIDS": ""},
        _SLURM | {"SLURM_GTIDS": "1,3"},
        _SLURM | {"SLURM_GTIDS": "5,8"},
        _SLURM | {"SLURM_GTIDS": "5,5"},
        _SLURM | {"SLURM_GTIDS": "5-7"},
        _SLURM | {"SLURM_GTIDS": "5," * 40_000 + "5"},
    ],
)
def test_what_is_not_certain_is_not_known(environment: dict[str, str]) -> None:
    assert ranks_of_node(5, 8, environment) is None


def test_a_rank_outside_its_world_is_not_known() -> None:
    assert ranks_of_node(8, 8, _TORCHRUN | {"RANK": "8"}) is None
    assert ranks_of_node(-1, -1, {}) is None
