"""What the Admin service needs of a controller: a seam, so that tests give it something smaller."""

from __future__ import annotations

from typing import Protocol

from controller.base.clock import Clock
from controller.base.config import ControllerSettings
from controller.base.events import EventLog
from controller.contention.measurement import Measuring
from controller.contention.service import Judging
from controller.cycle.cycle import CycleResult
from controller.cycle.decision.decider import DeciderCounts
from controller.cycle.health import Health
from controller.preempt.manager import PreemptionManager
from controller.slurm.client import JobKey, SlurmFacts
from controller.state.journal import Intent, PlacedEntry, RunRecord
from controller.state.ledger import Ledger
from policies.api import PolicySpec
from policies.serving.runtime.supervise import Tasks


class AskedDecider(Protocol):
    """What the service tells of who decides."""

    @property
    def spec(self) -> PolicySpec | None:
        """What the policy server said of itself."""

    @property
    def address(self) -> str:
        """Where it is."""

    @property
    def fallback_name(self) -> str:
        """The built-in policy that stands in for it."""

    @property
    def serving(self) -> bool:
        """Whether the policy server decides."""

    @property
    def last_error(self) -> str:
        """Its last failure."""

    @property
    def counts(self) -> DeciderCounts:
        """Since the start."""

    async def greet(self) -> None:
        """Learn which policy the server has, unless that is known."""


class AskedJournal(Protocol):
    """What the service reads of the journal."""

    @property
    def notice(self) -> str:
        """What was done last about a file that could not be used; empty when all were."""

    def decisions_of(self, key: JobKey, limit: int = 20) -> list[PlacedEntry]:
        """What was decided for a job, newest first."""

    def intents_of(self, key: JobKey, limit: int = 50) -> list[Intent]:
        """The newest steps of one job, newest first."""

    def last_run(self, job_id: str) -> RunRecord | None:
        """How the newest ended job of that id ended."""


class Asked(Protocol):
    """What the service needs of a controller; `controller.daemon.daemon.Controller` keeps this."""

    @property
    def settings(self) -> ControllerSettings:
        """Its settings."""

    @property
    def clock(self) -> Clock:
        """Its time."""

    @property
    def decider(self) -> AskedDecider:
        """Who decides."""

    @property
    def journal(self) -> AskedJournal:
        """What was written down."""

    @property
    def ledger(self) -> Ledger:
        """What it remembers of jobs."""

    @property
    def events(self) -> EventLog:
        """What happens."""

    @property
    def health(self) -> Health:
        """How it is."""

    @property
    def facts(self) -> SlurmFacts | None:
        """What Slurm said of itself; None before the first answer."""

    @property
    def last(self) -> CycleResult | None:
        """The last good cycle; None before the first."""

    @property
    def measuring(self) -> Measuring | None:
        """What agents report; None where they are not served."""

    @property
    def judging(self) -> Judging | None:
        """What the contention threshold says; None: nothing is judged."""

    @property
    def preemptions(self) -> PreemptionManager:
        """Preemptions under way, and those of the past."""

    @property
    def tasks(self) -> Tasks:
        """What runs beside the cycles."""

    @property
    def slurm_errors(self) -> int:
        """Steps that Slurm refused."""

    async def use_policy(self, address: str) -> PolicySpec:
        """Swap the policy server. Raises PolicyUnavailableError or PolicyError, and keeps the old one."""
