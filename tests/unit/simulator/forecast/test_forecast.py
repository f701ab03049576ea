"""Quantiles of waits from samples of one queue's future."""

import numpy as np
import pytest

from policies.api import Decision, PolicySpec, load_policy
from policies.rule import Discipline, Order, Rule
from simulator.errors import RuleTooSlowError
from simulator.forecast import sample_starts, stand_in
from simulator.forecast.arrivals import NO_ARRIVALS, Submissions
from simulator.forecast.durations import Durations
from simulator.forecast.forecast import Effort, forecast
from simulator.forecast.sample_starts import UNTIL_S, StartSampler
from simulator.forecast.stand_in import STAND_IN, DecidingRule
from tests.unit.simulator.forecast.queues import past, queue

FIFO = Rule(Order.ARRIVAL, Discipline.STRICT)
SKIP = Rule(Order.ARRIVAL, Discipline.SKIP)
BACKFILL = Rule(Order.ARRIVAL, Discipline.BACKFILL)
LEAST_ATTAINED = Rule(Order.ATTAINED, Discipline.SELECT)
SHORTEST = Rule(Order.GPUS, Discipline.SKIP)


def starts(rule, one, durations):
    return StartSampler(one, rule).run(np.array(durations), NO_ARRIVALS).tolist()


def test_waiting_jobs_start_when_the_running_ones_end() -> None:
    # one job of 4 GPUs has run 60 of its 100 s; then a job of 4 GPUs for 10 s, then another
    assert starts(FIFO, queue([(4, 60.0)], [4, 4]), [100.0, 10.0, 10.0]) == [40.0, 50.0]


def test_the_rule_decides_which_job_is_next() -> None:
    # 2 of 4 GPUs are free for 40 s: behind a job of 4 GPUs waits one of 2, for 30 or for 60 s
    one = queue([(2, 60.0)], [4, 2], limit_s=100.0)
    assert starts(FIFO, one, [100.0, 10.0, 30.0]) == [40.0, 50.0]
    assert starts(SKIP, one, [100.0, 10.0, 60.0]) == [60.0, 0.0]
    # its limit of 100 s would delay the head, so it may not pass it
    assert starts(BACKFILL, one, [100.0, 10.0, 30.0]) == [40.0, 50.0]
    assert starts(SHORTEST, queue([(4, 60.0)], [4, 2]), [100.0, 10.0, 30.0]) == [70.0, 40.0]


def test_a_job_that_never_fits_is_not_reached() -> None:
    assert starts(SKIP, queue([(4, 60.0)], [8, 1]), [100.0, 10.0, 10.0]) == [np.inf, 40.0]


def test_a_sample_that_is_broken_off_goes_on_at_its_pace() -> None:
    many = queue([(4, 60.0)], [4] * 400)
    whole = StartSampler(many, FIFO).run(np.full(401, 100.0), NO_ARRIVALS)
    broken = StartSampler(many, FIFO).run(np.full(401, 100.0), NO_ARRIVALS, cpu_s=0.0)

    assert whole[-1] == pytest.approx(40.0 + 399 * 100.0)
    assert np.isfinite(broken).all() and (np.diff(broken) > 0).all()


def test_quantiles_follow_the_run_times_of_the_past() -> None:
    found = forecast(queue([(4, 0.0)], [4]), past([100.0] * 50 + [300.0] * 50, gpus=4), FIFO, effort=Effort(200))

    assert found.shape == (1, 3)
    assert (found[0] == pytest.approx([100.0, 200.0, 300.0], abs=101)) and found[0, 0] == 100.0 and found[0, 2] == 300.0


def test_the_same_queue_has_the_same_forecast() -> None:
    one, before = queue([(4, 50.0)], [2, 4, 1]), past([100.0, 300.0, 50.0] * 20)
    assert (forecast(one, before, SKIP, seed=1) == forecast(one, before, SKIP, seed=1)).all()
    assert (forecast(one, before, SKIP, seed=1) != forecast(one, before, SKIP, seed=2)).any()


def test_jobs_that_come_can_pass_only_where_the_rule_lets_them() -> None:
    # jobs of 1 GPU have come every 10 s and run for 1000 s: with skipping, one of 4 GPUs starves
    one, busy = queue([(1, 100.0), (1, 300.0), (1, 500.0), (1, 700.0)], [4]), past([1000.0] * 500, every_s=10.0)
    assert forecast(one, busy, FIFO, effort=Effort(10))[0, 1] < 1000.0
    assert forecast(one, busy, SKIP, effort=Effort(10))[0, 1] > 2000.0


def test_submissions_of_a_sample_are_those_of_the_past_once_more() -> None:
    before = past([10.0] * 100)
    drawn = Submissions(before, Durations(before), 100_000.0, 250).draw(np.random.default_rng(3))

    assert len(drawn.after_s) == 250 and (np.diff(drawn.after_s) > 0).all()
    assert np.median(np.diff(drawn.after_s)) == pytest.approx(100.0)
    assert (drawn.duration_s == 10.0).all()


def test_a_start_beyond_the_horizon_is_at_the_horizon() -> None:
    assert forecast(queue([(4, 0.0)], [8]), past([10.0] * 9), SKIP, effort=Effort(3)).tolist() == [[UNTIL_S] * 3]


@pytest.mark.parametrize("name", ["dl2", "headway-rl", "contention-greedy", "no such policy"])
def test_only_the_rule_of_a_heuristic_is_its_own(name, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(stand_in, "load_policy", lambda one: loaded.append(one) or load_policy(one))
    assert DecidingRule.named(name).stand_in == STAND_IN
    assert DecidingRule.named("srtf") == DecidingRule(load_policy("srtf").rule, load_policy("srtf").spec.round_s, "")
    # a learned policy is not even loaded: that would take longer than the forecast
    assert set(loaded) <= {"srtf", "contention-greedy"}


def test_an_empty_queue_has_no_quantiles() -> None:
    assert forecast(queue([(4, 0.0)], []), past([]), FIFO).shape == (0, 3)


def test_a_rule_that_stops_jobs_is_not_carried_out_without_time_for_its_first_instants() -> None:
    one, before = queue([(2, 60.0)], [4, 4, 4, 4], nodes=(4, 4, 4)), past([100.0] * 20, gpus=4)
    with pytest.raises(RuleTooSlowError):
        forecast(one, before, LEAST_ATTAINED, effort=Effort(cpu_s=0.0))

    assert forecast(one, before, SKIP, effort=Effort(cpu_s=0.0)).shape == (4, 3)


def test_one_decision_that_would_take_too_long_ends_the_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    # both waiting jobs come first, and are laid out anew around the running one
    one, before = queue([(2, 60.0)], [4, 4], nodes=(4, 4, 4)), past([100.0] * 20, gpus=4)
    one.jobs.attained_gpu_s[0] = 120.0
    unlimited = forecast(one, before, LEAST_ATTAINED)
    assert (forecast(one, before, LEAST_ATTAINED, effort=Effort(cpu_s=1e6)) == unlimited).all()

    monkeypatch.setattr(sample_starts, "_MOST_LAID_OUT", 1)
    with pytest.raises(RuleTooSlowError):
        forecast(one, before, LEAST_ATTAINED, effort=Effort(cpu_s=1e6))
    assert (forecast(one, before, LEAST_ATTAINED) == unlimited).all()


def test_an_attribute_of_another_packages_policy_is_no_rule():
    class Mine:
        spec = PolicySpec(name="mine", source="tests", round_s=60.0)
        rule = "shortest"

        def decide(self, state):
            return Decision({})

    assert DecidingRule.of(Mine()) == DecidingRule()
    assert DecidingRule.of(load_policy("srtf")).rule.order is Order.REMAINING
