"""Findings of `headway doctor` about full disks, and about files of the journal that were set aside."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from controller.base.text import listed
from policies.serving.runtime.finding import Finding, Level

if TYPE_CHECKING:
    from controller.base.config import ControllerSettings
    from controller.cli.doctor.host import Host, Space
    from controller.slurm.client import SlurmFacts

_FULL_BYTES = 16 << 20
"""Free bytes below which the disk counts as full: one cycle of a large cluster writes a few MiB."""
_LITTLE_BYTES = 256 << 20
_LEASE_BYTES = 1 << 20
"""Free bytes of runtime_dir below which the lease may soon not be written any more."""
_NAMED = 3
_HEAD = re.compile(r"[(\s]")
"""Separator of name and address in SlurmctldHost."""


def journal_findings(settings: ControllerSettings, host: Host) -> Iterator[Finding]:
    """Return the findings; none where the folder cannot be seen."""
    folder = settings.state_dir
    space = host.space(folder)
    if space is None:
        return
    effect = "when the journal cannot be written, Slurm schedules jobs without Headway"
    if lack := _lack(folder, space, _FULL_BYTES):
        yield Finding("state-space", Level.ERROR, f"{folder} {lack.what}: {effect}", lack.mend)
    elif lack := _lack(folder, space, _LITTLE_BYTES):
        yield Finding("state-space", Level.WARNING, f"{folder} {lack.what}", lack.mend)
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
    if lack := _lack(folder, host.space(folder), _LEASE_BYTES):
        what = f"{folder} {lack.what}: when the lease cannot be written, Slurm schedules jobs without Headway"
        yield Finding("runtime-space", Level.ERROR, what, lack.mend)
    state = (facts.settings.get("StateSaveLocation", "") if facts else "").strip()
    if facts is None or not state.startswith("/"):
        return
    heads = [_HEAD.split(value)[0] for name, value in facts.settings.items() if name.startswith("SlurmctldHost")]
    if heads and host.name().partition(".")[0] not in {head.partition(".")[0] for head in heads}:
        what = f"the space of {state} was not checked: slurmctld keeps its state there on {', '.join(heads)}, not on this machine"
        yield Finding("slurm-space", Level.SKIPPED, what)
    elif lack := _lack(Path(state), host.space(Path(state)), _FULL_BYTES):
        what = f"{state}, in which slurmctld keeps its state, {lack.what}: jobs may be lost with its next restart"
        yield Finding("slurm-space", Level.ERROR, what, lack.mend)


class _Lack(NamedTuple):
    what: str
    mend: str


def _lack(folder: Path, space: Space | None, needed_bytes: int) -> _Lack | None:
    """Return what a folder's disk lacks, with the remedy; None when it has the space, or cannot be seen."""
    if space is None:
        return None
    if not space.answered:
        return _Lack("does not answer in time", f"see the mount of {folder} (findmnt -T {folder}) and its server")
    if not space.has_inodes:
        return _Lack("has no free inodes, so that no file can be made", f"remove files from that disk (df -i {folder})")
    if space.free_bytes < needed_bytes:
        free = f"{space.free_bytes >> 20} MiB" if space.free_bytes >> 20 else f"{space.free_bytes >> 10} KiB"
        return _Lack(f"has {free} free", f"free space on that disk (df -h {folder})")
    return None
