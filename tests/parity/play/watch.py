"""One reader of the queue for all cases that are in flight on a cluster."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import replace
from types import TracebackType
from typing import Self

from slurm.errors import CommandError
from slurm.minicluster.cluster import RunningCluster
from tests.parity.play.records import Record, parse

INTERVAL_S = 0.5


class Watch:
    """Newest records of all jobs. Invariant: records of jobs that Slurm has forgotten stay as they were last."""

    def __init__(self, cluster: RunningCluster) -> None:
        self._cluster = cluster
        self._records: dict[tuple[str, str], Record] = {}
        self._changed = threading.Condition()
        self._readings = 0
        self._reading = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read_on, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def next_reading(self) -> None:
        """Wait until the queue was read by a command that began after this call. A Slurm that does not answer ends the wait."""
        with self._changed:
            wanted = self._readings + (2 if self._reading else 1)
            self._changed.wait_for(lambda: self._readings >= wanted, timeout=20)

    def records(self, root_id: str) -> list[Record]:
        """Return the newest records of a job, its tasks or components."""
        with self._changed:
            return [record for (root, _), record in self._records.items() if root == root_id]

    def named(self, name: str) -> list[Record]:
        """Return the newest records of the jobs of that name."""
        with self._changed:
            return [record for record in self._records.values() if record.fields.get("JobName") == name]

    def _read_on(self) -> None:
        while not self._stop.is_set():
            with self._changed:
                self._reading = True
            with contextlib.suppress(CommandError):  # slurmctld may be busy
                done = self._cluster.run("scontrol", "-o", "-d", "show", "job", check=False, timeout=15)
                self._note(done.stdout)
            with self._changed:
                self._readings += 1
                self._reading = False
                self._changed.notify_all()
            time.sleep(INTERVAL_S)

    def _note(self, text: str) -> None:
        with self._changed:
            found = {(record.root_id, record.part): record for record in parse(text)}
            for key, record in found.items():
                earlier = self._records.get(key)
                hidden = earlier is not None and record.has_ended and not any(record.gpus.values())
                # Slurm shows the GPUs only while the job runs.
                self._records[key] = replace(record, gpus=earlier.gpus or record.gpus) if earlier and hidden else record
            roots = {root for root, _ in found}
            for key in [key for key in self._records if key[0] in roots and key not in found]:
                self._records[key] = _cancelled(self._records[key])


def _cancelled(record: Record) -> Record:
    """Return the record of a task that its array no longer shows: it was cancelled before it had a record of its own."""
    if record.state != "PENDING":
        return record
    return replace(record, fields={**record.fields, "JobState": "CANCELLED"})
