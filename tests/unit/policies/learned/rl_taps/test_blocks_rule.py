"""The rule of blocks, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from policies.learned.rl_taps.blocks_rule import actions_of, blocks_of, work_left
from policies.learned.rl_taps.image_columns import PAPER
from policies.learned.rl_taps.system import columns_of
from simulator.agents.episodes import make, play
from simulator.agents.named import agent_of


def image(jobs: dict[int, tuple[int, int]], running: dict[int, tuple[list[int], int]]) -> np.ndarray:
    """Return an image with jobs (slot: rows, GPUs) and GPUs in use (slot: GPUs, rows)."""
    found = np.zeros(PAPER.shape, dtype=np.uint8)
    for slot, (rows, gpus) in jobs.items():
        begin = PAPER.first_of_slots + (slot - 1) * PAPER.widest
        found[:rows, begin : begin + gpus] = 1
    for slot, (gpus, rows) in running.items():
        found[:rows, gpus] = slot
    return found


def given(jobs: dict[int, tuple[int, int]], running: dict[int, tuple[list[int], int]]) -> dict[int, list[int]]:
    action = actions_of(PAPER, image(jobs, running)[None])[0]
    return {int(slot): np.flatnonzero(action == slot).tolist() for slot in np.unique(action) if slot}


SMALL, LARGE = list(range(10, 16)), list(range(16, 32))


def test_new_jobs_take_the_blocks_in_order_and_the_others_one_gpu() -> None:
    assert given({1: (3, 4), 2: (3, 4), 4: (8, 9)}, {}) == {1: SMALL, 2: LARGE, 4: [3]}


def test_a_fast_job_keeps_its_block_and_a_slow_one_goes_to_its_own_gpu() -> None:
    # 22 cells in 4 steps are 5.5 a step; 14 cells in 13 steps are less than 1.17.
    jobs = {1: (6, 4), 2: (4, 4), 3: (8, 4), 5: (9, 2)}
    running = {1: (SMALL, 4), 2: (LARGE, 10), 3: ([2], 10), 5: ([4], 10)}
    # Of the jobs on one GPU, that with the most work tries the free block.
    assert given(jobs, running) == {1: SMALL, 2: [1], 3: LARGE, 5: [4]}


def test_a_job_without_gpus_comes_before_others_and_little_work_is_not_moved() -> None:
    assert given({1: (1, 2), 2: (9, 9), 3: (1, 1)}, {1: ([0], 2), 2: ([1], 10)}) == {1: [0], 3: SMALL, 2: LARGE}
    assert given({1: (1, 2)}, {1: ([0], 2)}) == {1: [0]}


def test_work_and_blocks_by_size() -> None:
    assert work_left(PAPER, image({2: (3, 4)}, {})[None]).tolist() == [[0, 10, *[0] * 8]]
    assert [(each.start, each.stop) for each in blocks_of(PAPER)] == [(10, 16), (16, 32)]
    assert [(each.start, each.stop) for each in blocks_of(columns_of(16))] == [(10, 16)]
    assert blocks_of(columns_of(8)) == []
    assert not actions_of(columns_of(8), np.zeros((1, *columns_of(8).shape), dtype=np.uint8)).any()


@pytest.mark.parametrize("name", ["taps-blocks", "taps-one-each"])
def test_they_act_in_the_environment(name: str) -> None:
    env = make("headway/RlTaps-v0", max_steps=40)
    try:
        assert play(env, agent_of(name), 3).outcome["finished"] > 0
    finally:
        env.close()
