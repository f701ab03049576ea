"""Removes files of users' holds that are no longer needed, and gives holds of running tasks files of their own."""

from __future__ import annotations

import structlog

from controller.base.events import EventLog
from controller.slurm.client import SlurmSnapshot
from controller.slurm.user_holds import HoldFolder, Holds, is_held_by_user, own_holds, settled

log = structlog.get_logger(__name__)


class HoldFiles:
    """Maintains the folder of users' holds. Invariant: a file is removed only when a snapshot shows that nothing is left to
    do."""

    def __init__(self, folder: HoldFolder, events: EventLog) -> None:
        self._folder = folder
        self._events = events

    def tidy(self, holds: Holds, snapshot: SlurmSnapshot) -> None:
        """Remove holds that have become their users' own, or came too late. `holds` were read before the snapshot."""
        own = own_holds(holds, snapshot.jobs)
        if own:
            holds = {**holds, **self._write(own)}
        done = settled(holds, snapshot.jobs)
        if not done:
            return
        late = [job for job in snapshot.jobs if job.phase.occupies_nodes and is_held_by_user(job, holds)]
        for job in late:
            if job.key.job_id in done:
                self._events.add("error", job.key.job_id, "its user held it while Slurm was starting it, so it runs")
        try:
            self._folder.remove(done)
        except OSError as error:  # every cycle tries again, and the files do no harm
            log.warning("holds_left", problem=str(error))

    def _write(self, holds: Holds) -> Holds:
        """Write as many holds as the folder may have. Returns those that are written."""
        written: dict[str, float] = {}
        for job_id, time_s in list(holds.items())[: self._folder.room]:
            try:
                self._folder.write(job_id, time_s)
            except OSError as error:  # the hold of its array stays
                log.warning("hold_not_written", job=job_id, problem=str(error))
                break
            written[job_id] = time_s
        return written
