"""Runs with a sharded model continue with the same losses, on the same number of ranks or another."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.unit.headway_job.checkpoints.conftest import Ended, ForkServer
from tests.unit.headway_job.checkpoints.test_faults import flip
from tests.unit.headway_job.checkpoints.test_resume import KILLED, checkpoints

STEPS = 14
SAVE = {"every_steps": 6}


def trained(fork_server: ForkServer, kind: str, world: int, folder: Path, **args: object) -> Ended:
    return fork_server.run("state.sharded.train", world, kind=kind, folder=folder, **{"steps": STEPS, **args})


@pytest.fixture(scope="module")
def whole_run(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Ended]:
    """Return a function that returns a run without interruption. The same run is made once for all tests."""

    @cache
    def run(kind: str, world: int, **args: object) -> Ended:
        ended = trained(fork_server, kind, world, tmp_path_factory.mktemp("whole"), **args)
        assert ended.ends == [0] * world, ended.logs
        return ended

    return run


def assert_same(whole: Ended, parts: list[Ended]) -> None:
    """Return the loss of each step, from the last run that made it."""
    found = {step: loss for part in parts for step, loss in part.losses().items()}
    assert found == pytest.approx(whole.losses(), abs=1e-6)
    assert len(found) == STEPS


KINDS = ("fsdp1", "fsdp1-flat", "fsdp2")
RANKS = ((2, 2), (2, 3), (3, 2), (2, 1))
QUICK = {"fsdp1": {(2, 2)}, "fsdp1-flat": {(2, 3)}, "fsdp2": {(3, 2), (2, 1)}}
"""Numbers of ranks before and after with which each kind is tested in `make test`: each number with some kind."""


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        pytest.param(kind, *ranks, marks=() if ranks in QUICK[kind] else pytest.mark.slow)
        for kind in KINDS
        for ranks in RANKS
    ],
)
def test_a_sharded_run_goes_on_with_any_number_of_ranks(
    fork_server: ForkServer, whole_run: Callable[..., Ended], folder: Path, kind: str, before: int, after: int
) -> None:
    whole = whole_run(kind, before)

    first = trained(fork_server, kind, before, folder, options=SAVE, die_at=8, saved=6)
    second = trained(fork_server, kind, after, folder)

    assert first.ends == [KILLED] * before
    assert second.ends == [0] * after, second.logs
    assert second.reported("start") == first.reported("saved") == 6
    assert_same(whole, [first, second])
    assert second.reported("rate") == whole.reported("rate")


@pytest.mark.parametrize(("before", "after"), [("fsdp1-own", "fsdp1"), ("fsdp1-flat", "fsdp1-own"), ("ddp-own", "ddp")])
def test_classes_derived_from_torchs_are_recognized(
    fork_server: ForkServer, whole_run: Callable[..., Ended], folder: Path, before: str, after: str
) -> None:
    whole = whole_run(after, 2)

    first = trained(fork_server, before, 2, folder, options=SAVE, die_at=8, saved=6)
    second = trained(fork_server, after, 1 if after == "ddp" else 2, folder)

    assert second.reported("start") == 6, second.logs
    assert_same(whole, [first, second])


@pytest.mark.parametrize("optimizer", ["SGD", "Adagrad"])
def test_optimizers_with_other_kinds_of_state(
    fork_server: ForkServer, whole_run: Callable[..., Ended], folder: Path, optimizer: str
) -> None:
    whole = whole_run("fsdp2", 2, optimizer=optimizer)

    first = trained(fork_server, "fsdp2", 2, folder, options=SAVE, die_at=8, saved=6, optimizer=optimizer)
    second = trained(fork_server, "fsdp2", 3, folder, optimizer=optimizer)

    assert second.reported("start") == 6, second.logs
    assert_same(whole, [first, second])


@pytest.mark.parametrize(("before", "after"), [("ddp", "fsdp2"), ("fsdp2", "ddp")])
@pytest.mark.parametrize("world", [1, 2])
def test_whole_models_and_fully_sharded_ones_are_restored_into_each_other(
    fork_server: ForkServer, whole_run: Callable[..., Ended], folder: Path, before: str, after: str, world: int
) -> None:
    whole = whole_run("ddp", 2)

    first = trained(fork_server, before, 2, folder, options=SAVE, die_at=8, saved=6)
    second = trained(fork_server, after, world, folder, options=SAVE)

    assert second.ends == [0] * world, second.logs
    assert_same(whole, [first, second])


@pytest.mark.parametrize(("before", "after"), [("fsdp2", "fsdp1"), ("fsdp1", "fsdp2"), ("fsdp1", "ddp")])
def test_an_optimizer_is_not_restored_between_fsdp1_and_others(
    fork_server: ForkServer, folder: Path, before: str, after: str
) -> None:
    trained(fork_server, before, 2, folder, options=SAVE, steps=6)

    ended = trained(fork_server, after, 2, folder)

    assert ended.ends == [1, 1]
    assert "an optimizer's state cannot be converted between the two" in ended.logs[0]
    assert len(checkpoints(folder)) == 1


@pytest.mark.parametrize(("before", "after"), [("ddp", "fsdp1"), ("fsdp1-flat", "ddp"), ("fsdp1", "fsdp2")])
def test_a_model_alone_is_restored_between_fsdp1_and_others(
    fork_server: ForkServer, whole_run: Callable[..., Ended], folder: Path, before: str, after: str
) -> None:
    alone = {"model_alone": True, "optimizer": "SGD-plain"}
    whole = whole_run("ddp", 2, **alone)

    first = trained(fork_server, before, 2, folder, options=SAVE, die_at=8, saved=6, **alone)
    second = trained(fork_server, after, 2, folder, **alone)

    assert second.reported("start") == 6, second.logs
    assert_same(whole, [first, second])


def test_an_object_that_raises_on_one_rank_blocks_no_other(fork_server: ForkServer, folder: Path) -> None:
    ended = fork_server.run("state.sharded.moody", 2, folder=folder, loads=True)

    assert ended.ends == [0, 0], ended.logs
    assert [row["saved"] for row in ended.rows[0]] == [None, None, None, 4]
    assert "could not be copied: 'not now'" in ended.logs[1]

    refused = fork_server.run("state.sharded.moody", 2, folder=folder, loads=False)

    assert refused.ends == [1, 1]
    assert "does not fit own: 'not that'" in refused.logs[1]
    assert "does not fit on another rank" in refused.logs[0]
    assert len(checkpoints(folder)) == 1


def test_replicas_of_shards_are_kept_once(
    fork_server: ForkServer, whole_run: Callable[..., Ended], folder: Path
) -> None:
    whole = whole_run("replicated", 4)

    first = trained(fork_server, "replicated", 4, folder, options=SAVE, die_at=8, saved=6)
    files = json.loads((checkpoints(folder)[0] / "manifest.json").read_text())["files"]
    second = trained(fork_server, "fsdp2", 3, folder)

    assert_same(whole, [first, second])
    sizes = [files[f"rank-{rank}.shards"]["size_bytes"] for rank in range(4)]
    assert sizes[0] > 1000 and sizes[1] > 1000
    assert sizes[2] == sizes[3] == len(b"hwshard1" + bytes(8) + b"[]")


@pytest.mark.parametrize("name", ["rank-0.shards", "rank-1.shards"])
def test_after_a_damaged_shard_the_checkpoint_before_is_used(fork_server: ForkServer, folder: Path, name: str) -> None:
    trained(fork_server, "fsdp2", 2, folder, options={"every_steps": 4}, steps=8)
    newest = checkpoints(folder)[-1]
    flip(newest / name)

    found = trained(fork_server, "fsdp2", 3, folder, steps=8)

    assert found.ends == [0, 0, 0], found.logs
    assert [found.reported("start", rank) for rank in range(3)] == [4, 4, 4]
    assert f"{name} has another SHA-256" in "".join(found.logs)
    assert (folder / f"damaged-{newest.name}").exists()


def test_a_whole_model_imports_nothing_for_sharding(fork_server: ForkServer, folder: Path) -> None:
    ended = trained(fork_server, "ddp", 2, folder, options=SAVE, steps=6)

    assert ended.reported("saved") == 6
    assert ended.reported("before") == ended.reported("imported") == []
    assert sorted(path.name for path in checkpoints(folder)[0].iterdir()) == [
        "manifest.json",
        "rank-0.safetensors",
        "rank-1.safetensors",
    ]


def test_options_that_differ_between_ranks_are_refused(fork_server: ForkServer, folder: Path) -> None:
    ended = fork_server.run("state.sharded.options_differ", 2, folder=folder)

    assert ended.ends == [1, 1]
    assert all("The ranks give headway_job.checkpoint different options" in log for log in ended.logs)
    assert not folder.exists()


def test_shards_that_cannot_be_joined_are_refused_at_once(fork_server: ForkServer, folder: Path) -> None:
    uneven = fork_server.run("state.sharded.uneven", 2, folder=folder)
    alone = [
        fork_server.run("state.sharded.optimizer_alone", 2, folder=folder, kind=kind)
        for kind in ("fsdp1", "fsdp1-flat", "fsdp1-own")
    ]
    elsewhere = fork_server.run("state.sharded.elsewhere", 2, folder=folder)

    assert [each.ends for each in (uneven, *alone, elsewhere)] == [[1, 1]] * 5
    assert "The ranks have models or optimizers with different tensors: model. " in uneven.logs[0]
    assert all("belongs to a FullyShardedDataParallel model that was not given" in each.logs[0] for each in alone)
    assert "average has a tensor that is sharded over ranks" in elsewhere.logs[0]
    assert not folder.exists()
