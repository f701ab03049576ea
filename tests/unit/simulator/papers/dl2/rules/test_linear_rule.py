"""The linear rule in DL2's environment: its first slot by hand."""

from __future__ import annotations

import pytest

from simulator.papers.dl2.reproduction import rule_search
from simulator.papers.dl2.reproduction.rule_search import costs
from simulator.papers.dl2.reproduction.settings import MAIN, acting
from simulator.papers.dl2.rules.linear_rule import FOUND, NUM_WEIGHTS, FixedPairs, LinearRule
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
    assert costs(LinearRule(FOUND), [500]) == [by_name]
    assert by_name < costs(LinearRule(weights()), [500])[0]


def test_fixed_pairs_are_given_job_by_job_of_the_largest_number() -> None:
    assert first_slot(FixedPairs([1, 2, *[1] * (len(MODELS) - 2)]), TRACE) == [both(1), both(0), both(1)]
    # The node has four GPUs.
    assert first_slot(FixedPairs([1, 9, *[1] * (len(MODELS) - 2)]), TRACE) == [both(1), both(0), both(1), both(1)]
    by_name = acting("dl2-pairs", Kind.CONTROL).run(MAIN, 500, None).figures["avg_jct_s"]
    assert costs(FixedPairs(), [500]) == [by_name]


def test_the_search_for_a_table_takes_the_best_neighbour_of_each_type(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given costs that are least where every type has five pairs
    wanted = FixedPairs([5] * len(MODELS))
    seeds_of_rounds: list[range] = []

    def far(rule: LinearRule, seeds: range) -> list[float]:
        seeds_of_rounds.append(seeds)
        return [float(abs(rule.weights - wanted.weights).sum())] * len(seeds)

    monkeypatch.setattr(rule_search, "costs", far)
    assert rule_search.neighbours(1) == [1, 2] and rule_search.neighbours(16) == [15, 16]
    assert rule_search.table(rounds=2, traces=3) == [5] * len(MODELS)
    assert len({*seeds_of_rounds}) == 2 and {len(each) for each in seeds_of_rounds} == {3}
