"""What the Admin service needs of a controller: a seam, so that tests give it something smaller."""

from __future__ import annotations

from typing import Protocol

from controller.clock import Clock
from controller.config import ControllerSettings
from controller.cycle import CycleResult
from controller.daemon import Health
from controller.decide import DeciderCounts
from controller.events import EventLog
from controller.journal import Intent, PlacedEntry, RunRecord
from controller.judging import Judging
from controller.ledger import Ledger
from controller.measuring import Measuring
from controller.preempting import Preempting
from controller.slurm.client import JobKey, SlurmFacts
from policies.api import PolicySpec


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


class AskedJournal(Protocol):
    """What the service reads of the journal."""

    def decisions_of(self, key: JobKey, limit: int = 20) -> list[PlacedEntry]:
        """What was decided for a job, newest first."""

    def intents_of(self, key: JobKey, limit: int = 50) -> list[Intent]:
        """The newest steps of one job, newest first."""

    def last_run(self, job_id: str) -> RunRecord | None:
        """How the newest ended job of that id ended."""


class Asked(Protocol):
    """What the service needs of a controller; `controller.daemon.Controller` keeps this."""

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
    def preempting(self) -> Preempting:
        """Preemptions under way, and those of the past."""

    @property
    def slurm_errors(self) -> int:
        """Steps that Slurm refused."""

    async def use_policy(self, address: str) -> PolicySpec:
        """Swap the policy server. Raises PolicyUnavailableError or PolicyError, and keeps the old one."""
