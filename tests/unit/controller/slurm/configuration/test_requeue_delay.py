"""The time for which Slurm lets a requeued job wait, from its settings."""

from math import inf

import pytest

from controller.slurm.configuration.requeue_delay import requeue_delay_s


@pytest.mark.parametrize(
    ("settings", "delay_s"),
    [
        ({}, 120.0),
        ({"SchedulerParameters": "(null)", "AuthInfo": "(null)"}, 120.0),
        ({"SchedulerParameters": "bf_interval=30,requeue_delay=600"}, 600.0),
        ({"SchedulerParameters": "requeue_delay=5"}, 120.0),
        ({"AuthInfo": "socket=/run/munge.socket,cred_expire=300"}, 300.0),
        ({"SchedulerParameters": "requeue_delay=400", "AuthInfo": "cred_expire=300"}, 400.0),
        ({"SchedulerParameters": "requeue_delay=soon"}, inf),
    ],
)
def test_the_longer_of_slurms_settings_counts(settings: dict[str, str], delay_s: float) -> None:
    assert requeue_delay_s(settings) == delay_s
