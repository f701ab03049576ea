"""Early rows, within limits."""

from nodeagent.saves.report_throttle import ReportThrottle


def test_news_that_come_together_are_one_row():
    throttle = ReportThrottle()
    for _ in range(64):
        throttle.want(7)
    throttle.want(8)
    assert throttle.waiting
    assert throttle.take(100.0) == [7, 8]
    assert not throttle.waiting
    assert throttle.take(100.0) == []


def test_a_job_with_news_all_the_time_has_a_few_at_once_then_one_a_second_and_costs_others_nothing():
    throttle = ReportThrottle()
    taken = []
    for tick in range(200):
        throttle.want(7)
        if tick == 150:
            throttle.want(8)
        taken += throttle.take(100.0 + tick * 0.05)
    assert taken.count(7) == 4 + 9  # in ten seconds but one tick
    assert taken.count(8) == 1
    assert throttle.waiting  # the last news go out when the limit allows it
    assert throttle.take(111.0) == [7]


def test_jobs_that_have_been_quiet_are_forgotten():
    throttle = ReportThrottle()
    throttle.want(7)
    throttle.take(100.0)
    throttle.want(8)
    throttle.take(170.0)
    assert list(throttle._buckets) == [8]
