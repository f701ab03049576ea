"""Ranks whose models or optimizers differ are refused when the run begins: only rank 0's would be saved, and loaded by all."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.unit.headway_job.checkpoints.conftest import ForkServer
from tests.unit.headway_job.checkpoints.test_faults import everything


@pytest.mark.parametrize(
    ("case", "name"),
    [
        ("shapes", "model"), ("names", "model"), ("lists", "model"), ("optimizer", "optimizer"), ("kinds", "ema"),
        ("only rank 1", "ema"),
    ],
)  # fmt: skip
def test_ranks_with_different_models_or_optimizers_are_refused_at_once(
    fork_server: ForkServer, folder: Path, case: str, name: str
) -> None:
    ended = fork_server.run("names.different_by_rank", 2, folder=folder, case=case)

    assert ended.ends == [0, 0], ended.logs
    for rank in (0, 1):
        assert f"with different tensors: {name}. " in ended.reported("refused", rank)
    assert not folder.exists()


def test_ranks_with_models_of_their_own_save_them_as_the_message_advises(fork_server: ForkServer, folder: Path) -> None:
    ended = fork_server.run("names.different_by_rank", 2, folder=folder, case="each")

    assert ended.ends == [0, 0], ended.logs
    assert [ended.reported("weight", rank) for rank in (0, 1)] == [1.0, 2.0]
    assert [ended.reported("start", rank) for rank in (0, 1)] == [1, 1]


@pytest.mark.parametrize("world", [1, 3])
def test_another_number_of_ranks_is_refused_if_each_had_tensors_of_its_own(
    fork_server: ForkServer, folder: Path, world: int
) -> None:
    fork_server.run("names.different_by_rank", 2, folder=folder, case="each")
    before = everything(folder)

    ended = fork_server.run("names.different_by_rank", world, folder=folder, case="each")
    named = fork_server.run("names.different_by_rank", 1, folder=folder, case="each", options={"optional": "mine"})

    for rank in range(world):
        refused = ended.reported("refused", rank)
        assert f"was saved by 2 ranks, each of which had other tensors in mine, and this run has {world}" in refused
        assert "Start it with 2 ranks" in refused
    assert before.items() <= everything(folder).items()
    assert named.reported("start") == 2


@pytest.mark.parametrize("world", [1, 3])
def test_parts_that_another_number_of_ranks_cannot_use_are_left_out_if_they_are_optional(
    fork_server: ForkServer, folder: Path, world: int
) -> None:
    fork_server.run("names.stages", 2, folder=folder, value=5.0, optional=[])

    ended = fork_server.run("names.stages", world, folder=folder, value=0.0, optional=["stage"])

    assert ended.ends == [0] * world, ended.logs
    for rank in range(world):
        assert ended.reported("start", rank) == 1
        assert ended.reported("weights", rank) == [5.0, 0.0]
        assert "The state of stage in checkpoint" in ended.logs[rank]
        assert "each of 2 ranks had saved another part of it" in ended.logs[rank]
        assert "has no state of stage" not in ended.logs[rank]


def test_in_a_list_only_the_shared_objects_have_to_be_equal(fork_server: ForkServer, folder: Path) -> None:
    for value in (5.0, 0.0):
        ended = fork_server.run("names.mixed_list", 2, folder=folder, value=value, differs=0)
        assert ended.ends == [0, 0], ended.logs
    assert [ended.reported("start", rank) for rank in (0, 1)] == [1, 1]
    assert [ended.reported("weights", rank) for rank in (0, 1)] == [[5.0, 5.0], [5.0, 6.0]]

    fewer = fork_server.run("names.mixed_list", 1, folder=folder, value=0.0, differs=0)
    unequal = fork_server.run("names.mixed_list", 2, folder=folder, value=0.0, differs=1)

    assert "each of which had other tensors in parts" in fewer.reported("refused")
    for rank in (0, 1):
        assert "with different tensors: parts. " in unequal.reported("refused", rank)


def test_lazy_modules_are_compared_without_shapes(fork_server: ForkServer, folder: Path) -> None:
    ended = fork_server.run("names.different_by_rank", 2, folder=folder, case="lazy")
    assert ended.ends == [0, 0], ended.logs
    assert [ended.reported("start", rank) for rank in (0, 1)] == [0, 0]
