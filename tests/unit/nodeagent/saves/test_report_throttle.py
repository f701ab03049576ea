"""Rows before their time, within limits."""

from nodeagent.saves.report_throttle import ReportThrottle


def test_news_that_come_together_are_one_row():
    haste = ReportThrottle()
    for _ in range(64):
        haste.want(7)
    haste.want(8)
    assert haste.waiting
    assert haste.take(100.0) == [7, 8]
    assert not haste.waiting
    assert haste.take(100.0) == []


def test_a_job_with_news_all_the_time_has_a_few_at_once_then_one_a_second_and_costs_others_nothing():
    haste = ReportThrottle()
    taken = []
    for tick in range(200):
        haste.want(7)
        if tick == 150:
            haste.want(8)
        taken += haste.take(100.0 + tick * 0.05)
    assert taken.count(7) == 4 + 9  # in ten seconds but one tick
    assert taken.count(8) == 1
    assert haste.waiting  # the last news are told once they may
    assert haste.take(111.0) == [7]


def test_jobs_that_have_been_quiet_are_forgotten():
    haste = ReportThrottle()
    haste.want(7)
    haste.take(100.0)
    haste.want(8)
    haste.take(170.0)
    assert list(haste._buckets) == [8]
