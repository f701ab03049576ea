"""Time between the end of a job and the start of the next one, in samples."""

import numpy as np
import pytest

from policies.rule import Discipline, Order, Rule
from simulator.forecast.changeover import Changeover
from simulator.forecast.forecast import Effort, forecast
from tests.unit.simulator.forecast.queues import past, queue

FIFO = Rule(Order.ARRIVAL, Discipline.STRICT)
MEASURED = Changeover(free_s=np.array([2.0, 4.0]), start_s=np.array([1.0, 3.0]))


def medians(one, changeover):
    return forecast(one, past([100.0] * 60, gpus=4), FIFO, effort=Effort(40), changeover=changeover)[:, 1]


def test_each_change_of_jobs_delays_those_behind_it() -> None:
    one = queue([(4, 60.0)], [4, 4, 4])
    without, with_ = medians(one, Changeover()), medians(one, MEASURED)

    assert without == pytest.approx([40.0, 140.0, 240.0], abs=10.0)
    # five seconds on average before each start
    assert with_ - without == pytest.approx([5.0, 10.0, 15.0], abs=2.0)


def test_a_job_whose_gpus_are_free_already_still_has_to_be_started() -> None:
    (median_s,) = medians(queue([], [4]), MEASURED)
    assert 1.0 <= median_s <= 3.0


def test_a_job_that_is_ending_does_no_more_work() -> None:
    one = queue([(4, 60.0)], [4])
    one.jobs.ending[0] = True
    (median_s,) = medians(one, MEASURED)
    assert median_s == pytest.approx(5.0, abs=2.0)


def test_draws_are_sums_of_measured_times_and_never_negative() -> None:
    rng = np.random.default_rng(0)
    assert set(MEASURED.draw(200, rng).tolist()) == {3.0, 5.0, 7.0}
    assert set(MEASURED.draw_start(200, rng).tolist()) == {1.0, 3.0}
    # Slurm's whole seconds can make a start seem earlier than its decision
    assert Changeover(start_s=np.array([-0.8])).draw(3, rng).tolist() == [0.0] * 3
    assert Changeover().draw(3, rng).tolist() == [0.0] * 3
