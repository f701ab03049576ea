"""Read what an undo needs to know of this machine, and apply its plan."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from controller.base.errors import ConfigurationError
from controller.base.lease import is_stale, read_lease
from controller.slurm.configuration import installed_files
from controller.slurm.configuration.conf import SlurmConf
from slurm.setup.draft import ReadFile
from slurm.setup.files import (
    BEFORE,
    WITH,
    Written,
    back_up,
    included_files,
    other_clusters,
    read_installed,
    shipped_sources,
    write,
)
from slurm.setup.record import parse_record, record_path
from slurm.setup.slurmctld import slurmctld_state
from slurm.setup.spank_plan import find_line, plugstack_path
from slurm.setup.undo_plan import Installed, Removal, UndoPlan

_COPIES = (
    "left behind: {names}: copies of files that this program changed. Those with {WITH} in their names, and all {BEFORE} but the "
    "oldest, may have lines of Headway; remove them when you do not need them"
)
_PLUGIN = (
    "left behind: the SPANK plugin, which {path} (or a file that it includes) lists: remove that line on every machine, then "
    "headway.so from the folder of Slurm's plugins"
)


def inspect_installation(
    conf: SlurmConf, runtime_dir: Path, task_prolog: Path | None, *, slurmctld_gone: bool = False
) -> Installed:
    """Return what is installed beside this slurm.conf, and what runs. Raises ConfigurationError.

    `slurmctld_gone`: an operator has stated that no slurmctld runs.
    """
    path = record_path(conf.path, read_installed)
    lease = read_lease(runtime_dir / "lease")
    return Installed(
        conf=conf,
        record=parse_record(path, read_installed(path)),
        sources=shipped_sources(),
        running=slurmctld_state(conf, gone=slurmctld_gone),
        is_link=Path.is_symlink,
        controller_runs=lease is not None and not is_stale(lease, time.time()),
        task_prolog=task_prolog,
        others=tuple(other_clusters(conf)),
    )


def traces(conf: SlurmConf, read: ReadFile, paths: list[Path]) -> list[str]:
    """Return a sentence for each trace of Headway that stays: copies beside these files, and the SPANK plugin."""
    copies = sorted({str(copy) for path in paths for label in (BEFORE, WITH) for copy in _copies_of(path, label)})
    found = [_COPIES.format(names=", ".join(copies), WITH=WITH, BEFORE=BEFORE)] if copies else []
    plugstack = plugstack_path(conf)
    if find_line(plugstack, read, included_files) is not None:
        found.append(_PLUGIN.format(path=plugstack))
    return found


def _copies_of(path: Path, label: str) -> list[Path]:
    real = path.resolve()
    return [Path(copy) for copy in real.parent.glob(f"{_literal(real.name)}.{label}-*")]


def _literal(name: str) -> str:
    return "".join(f"[{character}]" if character in "*?[" else character for character in name)


def apply_undo(plan: UndoPlan) -> list[Written]:
    """Write the changes, then remove the files. slurm.conf comes first, so that it never names a file that is gone.

    Raises ConfigurationError that names the file. What was done before it stays; the next run does the rest.
    """
    written = [write(change, WITH) for change in plan.changes]
    for removal in plan.removals:
        copy = _remove(removal)
        if copy is not None:
            written.append(Written(removal.path, copy))
    return written


def _remove(removal: Removal) -> Path | None:
    """Remove a file, and its folder if that is Headway's and empty now. Return the copy that was kept."""
    path = removal.path.resolve()  # a symbolic link stays
    try:
        copy = back_up(path, WITH) if removal.keep_copy else None
        path.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be removed: {error}; run this command as root") from error
    if path.parent.name == installed_files.HOOKS_FOLDER:
        with contextlib.suppress(OSError):  # something else is in it
            path.parent.rmdir()
    return copy
