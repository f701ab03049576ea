"""Features of SCHED2's state, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from policies.learned.sched2.encoder import Encoding
from policies.learned.sched2.state.feature_columns import (
    IS_SPREAD,
    LOG_GPUS,
    LOG_TIME,
    LOG_UNTIL_CLEAR,
    NEVER_H,
    SIZES,
    FeatureColumns,
)
from policies.learned.sched2.state.features import Features
from tests.unit.policies.learned.sched2.agents import candidates_of


def test_features_by_hand() -> None:
    columns = Encoding(num_nodes=2, gpus_per_node=4, candidates=3).columns
    state = np.zeros(columns.size, dtype=np.float32)
    gpus, jobs, _ = columns.split(state)
    gpus[:] = [[0, 2, 3, 3], [-1, 0, 0, 5]]
    jobs[0] = [1, 4, 4, 4, 3 / 4, 0.5]
    jobs[1] = [2, 2, 2, 2, 1 / 4, 0]
    own, first = candidates_of(columns, state)
    row = dict(enumerate(own[0].tolist()))
    # Three GPUs fit on neither: all of the second one would be taken first, and the job would run four times as long.
    assert first[:2].tolist() == [1, 0]
    assert row[IS_SPREAD] == 1
    assert row[LOG_TIME] == 0
    assert row[1] == pytest.approx(np.log(4))
    assert row[LOG_GPUS] == pytest.approx(np.log2(3) / 2)
    # In three hours the first has three free; waiting for that gains nothing: (4 - 1) - 3.
    assert row[8] == pytest.approx(np.log1p(3))
    assert row[9] == 0
    assert own[0, -SIZES:].tolist() == [0, 0, 1, 0, 0]
    # The one of one GPU goes to the first, which it fits best and which is empty in three hours.
    assert own[1, IS_SPREAD] == 0
    assert own[1, 12] == pytest.approx(np.log1p(3))
    assert not own[2].any()
    assert NEVER_H > 5


@pytest.mark.parametrize("busy_h", [NEVER_H, NEVER_H + 1, 500.0])
def test_a_server_that_is_busy_for_days_is_not_free_now(busy_h: float) -> None:
    columns = Encoding(num_nodes=1, gpus_per_node=4, candidates=1).columns
    state = np.zeros(columns.size, dtype=np.float32)
    gpus, jobs, _ = columns.split(state)
    gpus[:] = [[0, 0, 0, busy_h]]
    jobs[0] = [1, 1, 1, 1, 1 / 4, 0]
    own, _ = candidates_of(columns, state)
    assert own[0, LOG_UNTIL_CLEAR] == pytest.approx(np.log1p(NEVER_H), abs=1e-4)


def test_features_of_jobs_beside_large_ones_by_hand() -> None:
    columns = Encoding(num_nodes=3, gpus_per_node=4, candidates=5).columns
    state = np.zeros(columns.size, dtype=np.float32)
    gpus, jobs, rest = columns.split(state)
    gpus[:] = [[0, 0, 0, 0], [0, 2, 3, 3], [1, 1, 1, 1]]
    # A job of twelve, which is two empty servers short and has waited for seven hours; one of a server, which has not.
    jobs[:4] = [[1, 1, 1, 1, 3, 7], [2, 2, 2, 2, 1, 0], [5, 5, 5, 5, 2 / 4, 0], [5, 9, 9, 9, 1 / 4, 0]]
    rest[0] = 1.5
    own, first = candidates_of(columns, state)
    waits, queue = np.log1p(7), np.log1p(1.5)
    twelve, server, two, one = (each.tolist() for each in own[:4])
    assert first[:4].tolist() == [0, 0, 0, 1]
    assert twelve[17:31] == pytest.approx([0] * 12 + [queue, 2 / 2])
    assert server[17:31] == pytest.approx([0] * 12 + [queue, 0])
    # The one of two would break up the only empty server, the one of a GPU would outlast the others on its server by two hours.
    assert two[17:31] == pytest.approx([1, 1, 2, queue, 2 / 4, 1, waits, queue, 1, waits, queue, 0, 0, 0])
    assert one[17:31] == pytest.approx([0, 0, 0, 0, 2 / 4, 1, waits, queue, 0, 0, 0, 2 / 4, 0, 0])
    # Without large ones nothing is taken from them.
    jobs[:2] = 0
    own, _ = candidates_of(columns, state)
    assert own[2, 17:31].tolist() == pytest.approx([1, 1, 0, queue] + [0] * 10)
    assert not own[3, 17:31].any()


def test_features_of_servers_and_queue_by_hand() -> None:
    columns = Encoding(num_nodes=2, gpus_per_node=4, candidates=1).columns
    state = np.zeros(columns.size, dtype=np.float32)
    gpus, _, rest = columns.split(state)
    gpus[:] = [[3, 0, 1, 0], [-1, 0, 0, 0]]
    rest[:] = [3, 1, 0, 7]
    servers, _, _, after = FeatureColumns(columns).split(torch.from_numpy(Features(columns).rows(state[None])))
    assert servers[0, 0].tolist() == pytest.approx([0, 0, np.log(2), np.log(4), 2 / 4, 0, 0])
    assert servers[0, 1].tolist() == pytest.approx([0, 0, 0, np.log1p(NEVER_H), 3 / 4, 0, 1 / 4])
    assert after[0].tolist() == pytest.approx([np.log(4), np.log(2), 0, np.log(8), 5 / 8])
