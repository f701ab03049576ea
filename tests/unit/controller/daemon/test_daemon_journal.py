"""The controller over a journal that fails: its lease is renewed only while the journal can be written, and damage ends nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from controller.admin.messages import status
from controller.admin.metrics.exporter import make_registry
from controller.base.clock import VirtualClock
from controller.base.config import ControllerSettings
from controller.base.errors import JournalError
from controller.cycle.decision.decider import Decider
from controller.daemon.daemon import Controller
from controller.daemon.pacing.wake_pipe import WakePipe
from controller.slurm.embedded import EmbeddedSlurm, Submission, sbatch_request
from controller.slurm.model.job import JobKey, Phase
from controller.state.journal import Journal
from policies.api import load_policy
from policies.serving.client import PolicyClient
from tests.unit.controller.cycle.decision.test_decider import FakeEndpoint


@dataclass
class Daemon:
    """A controller whose cycles are turned by hand."""

    controller: Controller
    slurm: EmbeddedSlurm
    clock: VirtualClock
    wake: WakePipe

    async def cycles(self, count: int) -> int:
        """Turn so many; returns how many of them were good."""
        good = self.controller.health.cycles
        for _ in range(count):
            await self.controller._one_cycle(self.wake)
            await self.clock.advance(1.0)
        return self.controller.health.cycles - good

    def sbatch(self) -> JobKey:
        return self.slurm.submit(Submission(request=sbatch_request(gpus_per_node=8, nodes=4), duration_s=1000.0))

    def phase(self, key: JobKey) -> Phase:
        return self.slurm.job(key.job_id).phase


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Daemon]:
    clock = VirtualClock()
    settings = ControllerSettings(partitions=("dl",), runtime_dir=tmp_path, state_dir=tmp_path / "state")
    slurm = EmbeddedSlurm(clock=clock)
    with closing(Journal(settings.journal_path)) as journal, closing(WakePipe(settings.wake_path)) as wake:
        decider = Decider(FakeEndpoint(away=True), load_policy("fifo"), 0.5, clock)
        yield Daemon(Controller(settings, slurm.client, decider, journal, clock, PolicyClient), slurm, clock, wake)


async def test_no_cycle_is_good_while_the_journal_cannot_be_written(daemon: Daemon) -> None:
    # given a cluster that is full, and a disk that is
    first = daemon.sbatch()
    assert await daemon.cycles(5) == 5
    assert daemon.phase(first) is Phase.RUNNING
    db = daemon.controller.journal._db
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(JournalError, match="is the disk full"):
        while True:
            daemon.controller.journal.begin("pin", {first: "x" * 1000}, 1.0)
    # when nothing calls for a write
    # then no cycle is good all the same, so that the lease runs out
    assert await daemon.cycles(10) == 0
    assert "is the disk full" in daemon.controller.health.last_error
    registry = make_registry(daemon.controller)
    assert registry.get_sample_value("headway_journal_writable") == 0
    assert registry.get_sample_value("headway_cycle_failures_total") == 10
    # and with room again, everything goes on
    db.execute("PRAGMA max_page_count = 1000000")
    assert await daemon.cycles(3) == 3
    assert daemon.controller.health.last_error == ""
    assert registry.get_sample_value("headway_journal_writable") == 1
    assert registry.get_sample_value("headway_cycle_failures_total") == 10


async def test_damage_costs_a_cycle_and_is_reported(daemon: Daemon) -> None:
    # given a controller that has placed a job
    first = daemon.sbatch()
    assert await daemon.cycles(5) == 5
    # when a table of its journal is gone, and there is something to write
    daemon.controller.journal._db.execute("DROP TABLE intent")
    daemon.slurm.cancel(first.job_id)
    second = daemon.sbatch()
    await daemon.cycles(15)
    # then the next job runs, and operators see an event
    assert daemon.phase(second) is Phase.RUNNING
    assert any("journal could not be used" in event.text for event in daemon.controller.events.recent())
    assert "journal could not be used" in status(daemon.controller, "1").last_error
    assert len(list(daemon.controller.settings.state_dir.glob("*damaged*Z"))) == 1
