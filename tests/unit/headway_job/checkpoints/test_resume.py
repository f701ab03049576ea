"""A run that is saved, killed and started again has the same results as one that was not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.headway_job.checkpoints.conftest import Ended, ForkServer

STEPS = 40
KILLED = -9


def checkpoints(folder: Path) -> list[Path]:
    """Complete ones, the newest last."""
    found = (path for path in folder.iterdir() if (path / "manifest.json").exists() and path.name.startswith("step-"))
    return sorted(found, key=lambda path: path.name.split("-")[2])


def assert_same(whole: Ended, first: Ended, second: Ended, rank: int) -> None:
    start = second.reported("start", rank)
    wanted, before, after = whole.losses(rank), first.losses(rank), second.losses(rank)
    assert sorted(after) == list(range(start, STEPS))
    assert len(wanted) == STEPS
    for step in range(STEPS):
        assert (before if step < start else after)[step] == pytest.approx(wanted[step], abs=1e-6)


@pytest.mark.parametrize("world", [1, 2])
def test_a_run_killed_after_a_signal_continues_with_the_same_losses(
    fork_server: ForkServer, tmp_path: Path, folder: Path, world: int
) -> None:
    whole = fork_server.run("train", world, folder=tmp_path / "whole", steps=STEPS, pause_s=0.004)

    # Only the last rank gets a request. All are killed later, once that is saved: the ranks exchange requests every 100 ms, so
    # steps of at least 10 ms leave room for two exchanges between steps 7 and 34.
    first = fork_server.run(
        "train", world, folder=folder, steps=STEPS, pause_s=0.01, asks={"7": world - 1}, wait_at=34, die_at=36
    )
    second = fork_server.run("train", world, folder=folder, steps=STEPS, pause_s=0.004)

    assert first.ends == [KILLED] * world
    assert whole.ends == second.ends == [0] * world
    assert second.reported("start") == first.reported("saved") > 7
    for rank in range(world):
        assert_same(whole, first, second, rank)


def test_ranks_with_requests_at_different_steps_save_at_the_same(fork_server: ForkServer, folder: Path) -> None:
    ended = fork_server.run(
        "train", 2, folder=folder, steps=STEPS, pause_s=0.004, asks={"3": 1, "4": 0}, options={"keep": 9}
    )

    assert ended.ends == [0, 0]
    saved = checkpoints(folder)
    assert 1 <= len(saved) <= 2
    for path in saved:
        manifest = json.loads((path / "manifest.json").read_text())
        assert sorted(manifest["files"]) == ["rank-0.safetensors", "rank-1.safetensors"]
        assert int(path.name.split("-")[1]) == manifest["step"] > 3
    assert ended.reported("saved", 0) == ended.reported("saved", 1) == int(saved[-1].name.split("-")[1])


def test_hundreds_of_signals_do_no_harm_and_reach_the_programs_own_handler(
    fork_server: ForkServer, folder: Path
) -> None:
    ended = fork_server.run("storm", 2, folder=folder, steps=20)
    again = fork_server.run("restored", 2, folder=folder)

    assert ended.ends == [0, 0]
    assert ended.reported("heard") >= 20  # signals that arrive together count once
    assert again.reported("start") == ended.reported("saved") == 20
    assert len(checkpoints(folder)) == 2


@pytest.mark.parametrize("world", [1, 4])
def test_another_number_of_ranks_restores_the_model(fork_server: ForkServer, folder: Path, world: int) -> None:
    fork_server.run("train", 2, folder=folder, steps=10, options={"every_steps": 10})
    before = fork_server.run("restored", 2, folder=folder)

    after = fork_server.run("restored", world, folder=folder)
    again = fork_server.run("restored", world, folder=folder)

    assert after.ends == [0] * world
    assert "saved by 2 ranks, and this run has" in after.logs[0]
    for rank in range(world):
        assert after.reported("start", rank) == 10
        assert after.reported("weights", rank) == before.reported("weights")
    drawn = [tuple(after.reported("next", rank)) for rank in range(world)]
    assert len(set(drawn)) == world
    assert drawn == [tuple(again.reported("next", rank)) for rank in range(world)]
    assert list(drawn[0]) == before.reported("next", 0)


@pytest.mark.parametrize(
    ("options", "saved"), [({"every_steps": 4, "keep": 3}, [12, 16, 20]), ({"every_s": 0.001}, None)]
)
def test_it_saves_by_itself_and_keeps_the_newest(
    fork_server: ForkServer, folder: Path, options: dict[str, float], saved: list[int] | None
) -> None:
    ended = fork_server.run("train", 1, folder=folder, steps=21, waits=True, options=options)

    assert ended.ends == [0]
    steps = [int(path.name.split("-")[1]) for path in checkpoints(folder)]
    if saved is None:
        assert len(steps) == 2
        assert len(list(folder.iterdir())) == 2
    else:
        assert steps == saved
