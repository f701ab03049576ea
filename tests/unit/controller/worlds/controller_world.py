"""A controller as its services see it: real parts beside an embedded Slurm, with cycles run by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controller.base.errors import PolicyUnavailableError
from controller.contention.measurement import Measurement
from controller.contention.service import ContentionService
from controller.cycle.view.health import CycleListener, Health
from controller.cycle.view.result import CycleResult
from controller.profiles.current import ContentionByRun
from controller.slurm.client import SlurmClient, SlurmFacts
from policies.api import PolicySpec
from policies.serving.runtime.tasks.supervise import Tasks
from tests.unit.controller.cycle.decision.test_decider import FakeEndpoint
from tests.unit.controller.worlds.world import World


@dataclass
class ControllerWorld(World):
    """Keeps `ControllerView`."""

    listeners: list[CycleListener] = field(default_factory=list)
    last: CycleResult | None = None
    facts: SlurmFacts | None = None
    slurm_errors: int = 0
    new_endpoints: dict[str, Any] = field(default_factory=dict)
    measurement: Measurement | None = None
    contention: ContentionService | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.tasks = Tasks()
        self.health = Health(started_s=self.clock.now(), begun_at_s=self.clock.monotonic())
        self.client: SlurmClient = self.slurm.client

    @property
    def has_unreported(self) -> bool:
        """See `ControllerView`."""
        return self.cycle.has_unreported

    async def turn(self) -> CycleResult:
        """One cycle, and what the daemon does after it."""
        self.facts = self.facts or await self.client.facts()
        self.last = await super().turn()
        self.health.snapshot_time_s = self.health.last_good_s = self.clock.now()
        self.health.cycles += 1
        for listener in self.listeners:
            listener(self.last)
        return self.last

    def know(self, measured: ContentionByRun) -> None:
        """Publish measurements, as the measurement service does."""
        self.knowledge.set_measured(measured, None)

    async def use_policy(self, address: str) -> PolicySpec:
        """Swap the policy server, as the daemon does, to an endpoint of the test."""
        if address not in self.new_endpoints:
            raise PolicyUnavailableError(f"{address}: unreachable")
        return await self.decider.use(self.new_endpoints[address], self.last.observation.state if self.last else None)

    def slurm_says(self, **settings: str) -> None:
        """Set Slurm's settings, as if slurm.conf had these lines."""
        self.facts = SlurmFacts((22, 5, 8), "test", "embedded", settings)


def world_in(folder: Path, **changes: Any) -> ControllerWorld:
    """A world whose policy server answers."""
    return ControllerWorld(folder, endpoint=FakeEndpoint(), **changes)
