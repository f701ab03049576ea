"""Removes files of users' holds that are no longer needed, and gives holds of running tasks files of their own."""

from __future__ import annotations

import structlog

from controller.base.events import EventLog
from controller.slurm.model.cluster import SlurmSnapshot
from controller.slurm.user_holds import Hold, HoldFolder, Holds, is_for_next_run, own_holds, settled

log = structlog.get_logger(__name__)


class HoldFiles:
    """Maintains the folder of users' holds. Invariant: a file is removed only when a snapshot shows that nothing is left to
    do."""

    def __init__(self, folder: HoldFolder, events: EventLog) -> None:
        self._folder = folder
        self._events = events
        self._late: set[str] = set()
        """Jobs that Slurm has started in spite of their holds, as of the last snapshot.
        Bound: the jobs of one snapshot."""

    def tidy(self, holds: Holds, snapshot: SlurmSnapshot) -> None:
        """Remove holds that have become their users' own, or have no effect any more. `holds` were read before the snapshot."""
        own = own_holds(holds, snapshot.jobs)
        if own:
            holds = {**holds, **self._write(own)}
        self._report_late(holds, snapshot)
        done = settled(holds, snapshot)
        if not done:
            return
        try:
            self._folder.remove(done)
        except OSError as error:  # every reading of the folder tries again, and the holds count no more
            log.warning("holds_left", problem=str(error))

    def _report_late(self, holds: Holds, snapshot: SlurmSnapshot) -> None:
        found = (
            {job.key.job_id for job in snapshot.jobs if not job.held and is_for_next_run(job, holds)}
            if holds
            else set()
        )
        for job_id in found - self._late:
            text = "its user held it while Slurm was starting it, so it runs; it is held when it is requeued"
            self._events.add("error", job_id, text)
        self._late = found

    def _write(self, holds: Holds) -> Holds:
        """Write as many holds as the folder may have. Returns those that are written."""
        written: dict[str, Hold] = {}
        for job_id, hold in list(holds.items())[: self._folder.room]:
            try:
                self._folder.write(job_id, hold)
            except OSError as error:  # the hold of its array stays
                log.warning("hold_not_written", job=job_id, problem=str(error))
                break
            written[job_id] = hold
        return written
