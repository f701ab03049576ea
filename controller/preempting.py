"""Preemptions under way: asks agents, follows what Slurm shows, and says what is to be stopped. The rim around `preemption`.

Nothing here changes anything in Slurm: what is to be stopped or signalled is asked for by the cycle, which does it through
the Applier. Every change of a stage is in the journal before anybody acts on it.
"""

from __future__ import annotations

from collections.abc import Mapping

from controller.comeback import Comeback
from controller.preemption import Cause, Elsewhere, Preemption
from controller.slurm.client import SlurmJob


class Preempting:
    """Invariant: at most one open preemption by job."""

    @property
    def open(self) -> Mapping[int, Preemption]:
        """Those that have not ended, by Slurm's own number of the job; also STARTED ones, of which no step was told yet."""
        raise NotImplementedError

    def comeback(self, job: SlurmJob) -> Comeback:
        """Whether this job may be preempted now, and how it comes back. Cheap: may be asked of every job in every cycle."""
        raise NotImplementedError

    def begin(
        self,
        job: SlurmJob,
        cause: Cause,
        why: str,
        elsewhere: Elsewhere = Elsewhere(),  # noqa: B008 - frozen
        *,
        force: bool = False,
        within_s: float | None = None,
    ) -> Preemption:
        """Ask the job to save, so that it can be stopped. Does not wait. `why` is a sentence for people, without a full stop.

        `within_s` None: preemption_within_s of the settings. Raises PreemptionRefusedError with words that say why not, and
        JournalError.
        """
        raise NotImplementedError

    def recent(self, job: SlurmJob, limit: int = 20) -> list[Preemption]:
        """The newest preemptions of that job, open ones too, newest first."""
        raise NotImplementedError

    def since(self, time_s: float) -> list[Preemption]:
        """All that were asked for since then (Unix time), oldest first: for budgets."""
        raise NotImplementedError
