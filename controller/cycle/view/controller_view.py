"""The controller as the services around its cycles see it, so that tests can give them a smaller object."""

from __future__ import annotations

from typing import Protocol

from controller.base.clock import Clock
from controller.base.config import ControllerSettings
from controller.base.events import EventLog
from controller.cycle.decision.decider import Decider
from controller.cycle.view.health import CycleListener, Health
from controller.cycle.view.result import CycleResult
from controller.observe.knowledge import Knowledge
from controller.preempt.manager import PreemptionManager
from controller.slurm.client import SlurmClient, SlurmFacts
from controller.state.journal import Journal
from controller.state.ledger import Ledger
from policies.api import PolicySpec
from policies.serving.runtime.tasks.supervise import Tasks


class ControllerView(Protocol):
    """The controller as contention, admin and metrics may use it; `controller.daemon.daemon.Controller` implements this."""

    @property
    def settings(self) -> ControllerSettings:
        """The present settings; a reload replaces them."""

    @property
    def client(self) -> SlurmClient:
        """The connection to Slurm."""

    @property
    def clock(self) -> Clock:
        """The controller's clock."""

    @property
    def decider(self) -> Decider:
        """The policy server, and the fallback behind it."""

    @property
    def journal(self) -> Journal:
        """Decisions, steps and ended jobs of the past."""

    @property
    def ledger(self) -> Ledger:
        """Facts about jobs that Slurm does not keep."""

    @property
    def events(self) -> EventLog:
        """Events for users and operators."""

    @property
    def knowledge(self) -> Knowledge:
        """Measurements and topology beside Slurm's snapshot."""

    @property
    def health(self) -> Health:
        """Times and errors of the last cycles."""

    @property
    def facts(self) -> SlurmFacts | None:
        """Slurm's version and settings; None before the first answer."""

    @property
    def last(self) -> CycleResult | None:
        """Result of the last good cycle; None before the first."""

    def has_unreported(self, job_id: str) -> bool:
        """Return whether the job was seen to start or end, and no good cycle has reported it to `listeners` yet."""

    @property
    def listeners(self) -> list[CycleListener]:
        """Functions that are called after every good cycle."""

    @property
    def preemptions(self) -> PreemptionManager:
        """Preemptions under way, and those of the past."""

    @property
    def tasks(self) -> Tasks:
        """Tasks that run beside the cycles."""

    @property
    def slurm_errors(self) -> int:
        """Number of jobs for which a step in Slurm has failed, since the start."""

    async def use_policy(self, address: str) -> PolicySpec:
        """Swap the policy server. Raises PolicyUnavailableError or PolicyError, and keeps the old one."""
