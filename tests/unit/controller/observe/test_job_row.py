"""Rows of jobs cost little at the first cycle, in which every job of a long queue is new."""

from __future__ import annotations

import numpy as np
import pytest

from controller.observe import job_row
from controller.observe.columns import STATIC, STATIC_ROW
from controller.observe.observer import Observer
from controller.state.ledger import Ledger
from tests.unit.controller.examples.build import job, request, snapshot


def test_a_packed_row_is_a_row_of_the_columns() -> None:
    values = [STATIC[name].type(number % 7).item() for number, name in enumerate(STATIC.names or ())]
    (row,) = np.frombuffer(STATIC_ROW.pack(*values), dtype=STATIC)
    assert list(row.item()) == values


def test_jobs_that_ask_for_the_same_are_compared_with_the_nodes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    enough = job_row._enough
    monkeypatch.setattr(
        job_row, "_enough", lambda shape, usable: compared.append(shape.num_gpus) or enough(shape, usable)
    )
    queue = [job(str(number), request=request(gpus_per_node=1 + number % 3)) for number in range(30)]
    observation = Observer().observe(snapshot(*queue), Ledger(), frozenset({"dl"}))
    assert len(observation.rows) == 30
    assert sorted(compared) == [1, 2, 3]


def test_a_job_that_fits_on_no_node_is_told_apart_from_one_that_fits() -> None:
    queue = [job("1", request=request(gpus_per_node=1)), job("2", request=request(gpus_per_node=1, min_nodes=1000))]
    observation = Observer().observe(snapshot(*queue), Ledger(), frozenset({"dl"}))
    assert [each.key.job_id for each in observation.rows] == ["1"]
    assert [key.job_id for key in observation.to_yield] == ["2"]
