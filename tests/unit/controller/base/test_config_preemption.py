"""Settings of preemption: what contradicts itself is refused, with the mend."""

from __future__ import annotations

from pathlib import Path

import pytest
from headway_job.hook.save_requests import SaveRequests

from controller.admin.preemption_messages import LONGEST_S
from controller.base.config import ControllerSettings, load_settings
from controller.base.errors import ConfigurationError
from controller.daemon.assemble import RESTART_KEYS
from controller.preempt.attempts.saving import QUIESCE_AT_LEAST_S
from nodeagent.jobsocket.registry import JobRegistry
from nodeagent.saves.coordinator import SaveRequest
from nodeagent.saves.service import SaveService


def written(folder: Path, text: str) -> Path:
    path = folder / "controller.toml"
    path.write_text(f'partitions = ["gpu", "big"]\n{text}\n')
    return path


def test_preemption_is_off_by_default(tmp_path: Path) -> None:
    settings = load_settings(written(tmp_path, ""))
    assert (settings.preemption, settings.preemption_partitions) == ("off", {})


def test_all_of_it_can_be_changed_by_a_reload() -> None:
    about = {key for key in ControllerSettings.model_fields if key.startswith(("preemption", "contention"))}
    assert len(about) == 11
    assert not about & RESTART_KEYS


def test_a_table_sets_the_mode_by_partition(tmp_path: Path) -> None:
    settings = load_settings(written(tmp_path, '[preemption_partitions]\ngpu = "automatic"\nbig = "advise"'))
    assert settings.preemption_partitions == {"gpu": "automatic", "big": "advise"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('preemption = "yes"', "preemption: Input should be 'off', 'advise' or 'automatic'"),
        ('preemption_partitions = { gpu = "on" }', "preemption_partitions.gpu: Input should be 'off', 'advise' or"),
        ('preemption_partitions = { cpu = "off" }', "cpu is not among partitions (gpu, big); add it there"),
        ("contention_threshold = 1.2", "contention_clear: Value error, must be less than contention_threshold (1.2)"),
        ("contention_clear = 1.5", "lower it, or raise contention_threshold"),
        ("preemption_within_s = 120", "preemption_still_s: Value error, must be more than preemption_within_s (120)"),
        ("preemption_within_s = 3571", "preemption_within_s: Input should be less than or equal to 3570"),
        ("preemption_still_s = 3601", "preemption_still_s: Input should be less than or equal to 3600"),
        ("contention_threshold = 1", "contention_threshold: Input should be greater than 1"),
        ("preemption_moves_per_hour = -1", "preemption_moves_per_hour: Input should be greater than or equal to 0"),
    ],
)
def test_contradictory_settings_are_refused_with_the_remedy(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(written(tmp_path, text))
    assert said in str(caught.value)


class Nobody:
    """Mail without a job to go to."""

    def request_save(self, connection: int, save_id: str, still_s: float, why: str) -> bool:
        return False

    def request_go_on(self, connection: int, save_id: str) -> bool:
        return False

    def read_now(self) -> None:
        pass


def test_the_longest_that_may_be_set_is_taken_by_agents_and_ranks(tmp_path: Path) -> None:
    longest = load_settings(written(tmp_path, "preemption_within_s = 3570\npreemption_still_s = 3600"))
    assert longest.preemption_within_s == LONGEST_S
    save_service = SaveService(JobRegistry(), Nobody(), lambda: 0)
    for within_s, still_s in (
        (longest.preemption_within_s, longest.preemption_still_s),
        (LONGEST_S, LONGEST_S + QUIESCE_AT_LEAST_S),
    ):
        order = SaveRequest(f"p1.{still_s:g}", 7, 0, within_s, still_s)
        assert save_service.request_save(order) == ""
        orders = SaveRequests()
        orders.receive_save(order.id, order.still_s)
        assert orders.current is not None
