"""A partition that Slurm does not have is reported by the log and by check-config."""

from __future__ import annotations

import pytest
import structlog.testing

from controller.base.config import ControllerSettings
from controller.base.errors import ConfigurationError, SlurmUnavailableError
from controller.daemon.partitions import UnknownPartitions, require_partitions
from controller.slurm.model.cluster import SlurmPartition, SlurmSnapshot


class FakeClient:
    """Answers with two partitions, or not at all."""

    def __init__(self, snapshot: SlurmSnapshot, answers: bool = True) -> None:
        self._snapshot = snapshot
        self._answers = answers

    async def snapshot(self) -> SlurmSnapshot:
        if not self._answers:
            raise SlurmUnavailableError("scontrol: no answer in 10 s")
        return self._snapshot


@pytest.fixture
def snapshot() -> SlurmSnapshot:
    partitions = tuple(SlurmPartition(name, frozenset(), True, None) for name in ("gpu", "cpu"))
    return SlurmSnapshot(0.0, (), (), partitions, ())


def test_the_log_names_a_missing_partition_once(snapshot: SlurmSnapshot) -> None:
    check = UnknownPartitions()
    with structlog.testing.capture_logs() as lines:
        for wanted in (["gpu"], ["gpu", "gpuu"], ["gpu", "gpuu"], ["gpu"]):
            check.note(wanted, snapshot)

    assert [line["event"] for line in lines] == ["partitions_not_found", "partitions_found"]
    assert lines[0]["log_level"] == "warning"
    assert "Slurm has no partition gpuu, so no job is scheduled there; it has cpu, gpu" in lines[0]["problem"]


def test_check_config_names_a_missing_partition(snapshot: SlurmSnapshot) -> None:
    client = FakeClient(snapshot)

    assert require_partitions(ControllerSettings(partitions=("gpu", "cpu")), client) == ""  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"Slurm has no partition gpuu, .* it has cpu, gpu"):
        require_partitions(ControllerSettings(partitions=("gpu", "gpuu")), client)  # type: ignore[arg-type]


def test_check_config_without_slurm_says_what_was_not_checked(snapshot: SlurmSnapshot) -> None:
    client = FakeClient(snapshot, answers=False)

    found = require_partitions(ControllerSettings(partitions=("gpu",)), client)  # type: ignore[arg-type]

    assert found.startswith("Slurm does not answer, so its partitions were not checked: scontrol")
