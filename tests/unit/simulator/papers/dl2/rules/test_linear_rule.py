"""The linear rule in DL2's environment: its first slot by hand."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.papers.dl2.reproduction.rule_search import costs
from simulator.papers.dl2.reproduction.settings import MAIN, acting
from simulator.papers.dl2.rules.linear_rule import FOUND, NUM_WEIGHTS, LinearRule
from simulator.reproducing.experiment import Kind
from simulator.traces.generators.dl2 import MODELS
from tests.unit.simulator.papers.dl2.rules.test_baselines import first_slot
from tests.unit.simulator.papers.dl2.test_env import both, elastic

TRACE = elastic((0, 1, 6000), (0, 2, 600), models=(MODELS[0], MODELS[1]))


def weights(**changes: float) -> list[float]:
    found = dict.fromkeys(map(str, range(NUM_WEIGHTS)), 0.0)
    return list({**found, **{name.removeprefix("at"): value for name, value in changes.items()}}.values())


def test_every_job_gets_a_pair_first_and_more_as_long_as_its_score_is_above_0() -> None:
    # log2(1 + workers) is 1, 1.58 and 2 with one, two and three workers
    assert first_slot(LinearRule(weights(at0=-5.0, at1=1.6)), TRACE) == [both(1), both(0), both(1), both(1)]


def test_hours_left_and_free_gpus_count() -> None:
    longest_first = LinearRule(weights(at8=1.0))
    assert first_slot(longest_first, TRACE) == [both(0), both(1)]
    assert first_slot(LinearRule(weights(at9=4.0)), TRACE) == [both(0), both(1), both(0)]


def test_another_number_of_weights_is_refused() -> None:
    with pytest.raises(ValueError, match="3 were given"):
        LinearRule([0.0] * 3)


def test_the_search_measures_average_jct_and_its_result_acts_by_name() -> None:
    by_name = acting("dl2-rule", Kind.CONTROL).run(MAIN, 500, None).figures["avg_jct_s"]
    assert costs(np.array(FOUND), [500]) == [by_name]
    assert by_name < costs(np.array(weights()), [500])[0]
