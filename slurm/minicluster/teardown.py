"""Take a cluster down: everything that its record names, in any state."""

from __future__ import annotations

import contextlib
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

from slurm.errors import MiniClusterError, NotRunningError
from slurm.minicluster.host import cgroups, namespaces, network
from slurm.minicluster.host.network import NetworkNames
from slurm.minicluster.record import Record, RecordStore, boot_id

MARKER = ".headway-minicluster"
"""File in the folder of a cluster: everything beside it may be deleted."""


def take_down(record: Record, store: RecordStore) -> None:
    """Remove processes, cgroups, network and files. The caller holds the lock of the name. A second call does no harm."""
    names = NetworkNames(record.name)
    folders = cgroups.cluster_cgroups(record.cgroup, record.name)
    if record.boot_id == boot_id():
        cgroups.thaw(folders)
        for holder in record.holders.values():
            namespaces.end_holder(holder)
        for netns in names.all_netns(record.nodes):
            namespaces.end_processes_in(netns)
    cgroups.remove(folders)
    network.demolish(names, record.nodes)
    remove_files(Path(record.directory), whole=record.made_directory)
    store.remove(record.name)


def down(name: str, store: RecordStore | None = None) -> None:
    """Take down a cluster by name. Raises NotRunningError when there is none, AlreadyRunningError when its owner is alive."""
    store = store or RecordStore()
    lock = store.lock(name)
    try:
        with signals_deferred():
            _take_down_recorded(name, store)
    finally:
        lock.release(remove=True)
        store.tidy()


def _take_down_recorded(name: str, store: RecordStore) -> None:
    record = store.read(name)
    if record is None:
        raise NotRunningError(f"mini-cluster {name}: no such cluster; `headway-minicluster status` lists all")
    take_down(record, store)


@contextlib.contextmanager
def signals_deferred() -> Iterator[None]:
    """Delay SIGINT, SIGTERM and SIGHUP until after the block, because an interrupted deletion leaves things behind."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def prepare_directory(directory: Path) -> bool:
    """Check that the folder may be used, without a change. Return whether it has to be created."""
    for parent in directory.parents:
        if parent.exists() and not parent.stat().st_mode & 0o001:
            raise MiniClusterError(
                f"{directory}: Slurm's user cannot enter {parent}; choose another --dir, or run chmod o+x {parent}"
            )
    if not directory.exists():
        return True
    if any(directory.iterdir()) and not (directory / MARKER).exists():
        raise MiniClusterError(
            f"{directory}: holds files that do not belong to a mini-cluster; choose an empty or new folder"
        )
    return False


def remove_files(directory: Path, *, whole: bool) -> None:
    """Delete the files of a cluster; with `whole` also the folder."""
    if not directory.exists():
        return
    if (directory / MARKER).exists():
        for entry in directory.iterdir():
            if entry.name == MARKER:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        (directory / MARKER).unlink()  # last, so that an interrupted deletion can be continued
    if whole and not any(directory.iterdir()):
        directory.rmdir()
        parent = directory.parent
        if parent.name == "headway-minicluster":
            with contextlib.suppress(OSError):  # it is not empty, or another cluster has just removed it
                parent.rmdir()
