"""Findings of `headway doctor` about full disks, and about files of the journal that were set aside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from controller.base.text import listed
from policies.serving.runtime.finding import Finding, Level

if TYPE_CHECKING:
    from controller.base.config import ControllerSettings
    from controller.cli.doctor.host import Host
    from controller.slurm.client import SlurmFacts

_FULL_BYTES = 16 << 20
"""Free bytes below which the disk counts as full: one cycle of a large cluster writes a few MiB."""
_LITTLE_BYTES = 256 << 20
_LEASE_BYTES = 1 << 20
"""Free bytes of runtime_dir below which the lease may soon not be written any more."""
_NAMED = 3


def journal_findings(settings: ControllerSettings, host: Host) -> Iterator[Finding]:
    """Return the findings; none where the folder cannot be seen."""
    folder = settings.state_dir
    free = host.free_bytes(folder)
    if free is None:
        return
    mend = f"free space on the disk of {folder} (df -h {folder})"
    if free < _FULL_BYTES:
        what = f"{folder} has {free >> 20} MiB free: when the journal cannot be written, Slurm schedules jobs without Headway"
        yield Finding("state-space", Level.ERROR, what, mend)
    elif free < _LITTLE_BYTES:
        yield Finding("state-space", Level.WARNING, f"{folder} has {free >> 20} MiB free", mend)
    else:
        yield Finding("state-space", Level.OK, f"{folder} has enough free space")
    kept = sorted(name for name in host.names(folder) if ".sqlite." in name and not name.endswith(("-wal", "-shm")))
    if kept:
        yield Finding(
            "state-files",
            Level.WARNING,
            f"{folder} has files that could not be used and were replaced: {listed(kept, _NAMED)}",
            "look for the cause in the controller's log and on the disk; remove the files when they are no longer needed",
        )


def space_findings(settings: ControllerSettings, facts: SlurmFacts | None, host: Host) -> Iterator[Finding]:
    """Return findings about the full disks of other folders that must be written; none for those that have space."""
    folder = settings.runtime_dir
    free = host.free_bytes(folder)
    if free is not None and free < _LEASE_BYTES:
        what = f"{folder} has {free >> 10} KiB free: when the lease cannot be written, Slurm schedules jobs without Headway"
        yield Finding("runtime-space", Level.ERROR, what, f"free space there (df -h {folder})")
    state = (facts.settings.get("StateSaveLocation", "") if facts else "").strip()
    free = host.free_bytes(Path(state)) if state.startswith("/") else None
    if free is not None and free < _FULL_BYTES:
        what = f"{state}, in which slurmctld keeps its state, has {free >> 20} MiB free: jobs may be lost with its next restart"
        yield Finding("slurm-space", Level.ERROR, what, f"free space there (df -h {state})")
