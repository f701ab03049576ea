"""A controller's cycle beside an embedded Slurm on a virtual clock: a day of queue in milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controller.base.clock import VirtualClock
from controller.base.config import ControllerSettings
from controller.base.errors import SlurmError
from controller.base.events import EventLog
from controller.base.lease import Lease, write_lease
from controller.cycle.cycle import Cycle, CycleResult
from controller.cycle.decision.decider import Decider
from controller.observe.knowledge import Knowledge
from controller.preempt.manager import PreemptionManager
from controller.slurm.embedded import ClusterDescription, EmbeddedSlurm, Submission, sbatch_request
from controller.slurm.model.cluster import SlurmSnapshot
from controller.slurm.model.job import JobKey, Phase
from controller.slurm.user_holds import HoldFolder
from controller.state.journal import Journal
from policies.api import Policy, load_policy
from tests.unit.controller.cycle.decision.test_decider import FakeEndpoint


@dataclass
class World:
    """One cluster, one journal, and a cycle that can be thrown away and made anew, as a restart would."""

    folder: Path
    description: ClusterDescription = field(default_factory=ClusterDescription)
    policy: str | Policy = "fifo"
    fallback: Policy | None = None
    endpoint: Any = None
    settings_changes: dict[str, Any] = field(default_factory=dict)
    clock: VirtualClock = field(default_factory=VirtualClock)
    on_progress: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.alive = True
        self.woken: list[str] = []
        self.settings = ControllerSettings(
            partitions=(self.description.partitions[0].name,), runtime_dir=self.folder, **self.settings_changes
        )
        self.holds = HoldFolder(self.settings.holds_path)
        self.folder.mkdir(exist_ok=True)
        self.holds.make()
        self.slurm = EmbeddedSlurm(
            self.description, self.clock, lease=self._lease, wake=self.woken.append, holds=self.holds
        )
        self.restart()

    def _lease(self) -> Lease | None:
        if not self.alive:
            return None
        return Lease(int(self.clock.now()), 30.0, self.settings.partitions, 0, 4096)

    def write_lease(self) -> None:
        """Write a lease that lasts for an hour, for a controller whose heartbeat does not run."""
        lease = Lease(int(self.clock.now()), 3600.0, self.settings.partitions, 0, 4096)
        write_lease(self.settings.lease_path, lease)

    def restart(
        self, journal: str = "journal.sqlite", before_reading: Callable[[Journal], None] = lambda _: None
    ) -> None:
        """Restart as after kill -9: everything in memory is gone, the journal's file is unchanged.

        `journal`: name of the file, of which the controller of each machine has its own. `before_reading` is called with the open
        journal.
        """
        self.journal = Journal(self.folder / journal)
        before_reading(self.journal)
        self.events = EventLog(self.clock)
        policy = load_policy(self.policy) if isinstance(self.policy, str) else self.policy
        self.decider = Decider(self.endpoint or FakeEndpoint(away=True), self.fallback or policy, 0.5, self.clock)
        self.ledger = self.journal.load_ledger()
        self.knowledge = Knowledge()
        self.preemptions = PreemptionManager(
            lambda: self.settings,
            self.journal,
            self.ledger,
            self.events,
            self.clock,
            monotonic=self.clock.now,
        )
        self.cycle = Cycle(
            lambda: self.settings, self.slurm.client, self.decider, self.journal, self.ledger, self.events, self.clock,
            self.preemptions, self.holds, self.knowledge, progress=lambda: self.on_progress(),
            records_holds=lambda: self.alive,
        )  # fmt: skip

    def sbatch(self, duration_s: float = 100.0, *, gpus_per_node: int | None = None, **more: Any) -> JobKey:
        """Submit; GPUs by node unless `request` says otherwise."""
        nodes = more.pop("nodes", 1)
        asked = more.pop("request", None) or sbatch_request(gpus_per_node=gpus_per_node or 1, nodes=nodes)
        return self.slurm.submit(Submission(request=asked, duration_s=duration_s, **more))

    async def turn(self) -> CycleResult:
        """One cycle, as the daemon would run it."""
        holds, newest_step = self.holds.read(), self.journal.newest_step()
        result = await self.cycle.run(await self.slurm.client.snapshot(), holds, newest_step)
        self.cycle.reported()
        return result

    async def go_on(self, seconds: float, step_s: float = 1.0) -> None:
        """Cycle once a step for so long, whatever Slurm does meanwhile."""
        for _ in range(int(seconds / step_s)):
            with suppress(SlurmError):
                await self.turn()
            await self.clock.advance(step_s)

    def phase(self, key: JobKey) -> Phase:
        """Return the job's phase, by Slurm's own record."""
        return self.slurm.job(key.job_id).phase

    def nodes(self, key: JobKey) -> dict[str, int]:
        """Node → GPUs that the job holds, by Slurm's own record."""
        return {share.node: share.gpus for share in self.slurm.job(key.job_id).allocated}


def newest(holder: Any) -> Callable[[], SlurmSnapshot | None]:
    """Return what gives the snapshot of the holder's last cycle, as `serve_agents` wants it."""
    return lambda: None if holder.last is None else holder.last.observation.snapshot
