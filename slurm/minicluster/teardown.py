"""Taking a cluster down: everything that its record names, whatever state it is in."""

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
"""A file in the cluster's folder: what lies beside it may be deleted."""


def take_down(record: Record, store: RecordStore) -> None:
    """Remove processes, cgroups, network and files. The caller holds the name's lock. Doing it twice does no harm."""
    names = NetworkNames(record.name)
    if record.boot_id == boot_id():
        for holder in record.holders.values():
            namespaces.end_holder(holder)
        for netns in names.all_netns(record.nodes):
            namespaces.end_processes_in(netns)
    cgroups.remove(cgroups.cluster_cgroups(record.cgroup, record.name))
    network.demolish(names, record.nodes)
    remove_files(Path(record.directory), whole=record.made_directory)
    store.remove(record.name)


def down(name: str, store: RecordStore | None = None) -> None:
    """Take down a cluster by name. Raises NotRunningError if there is none, AlreadyRunningError if its owner is alive."""
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
        raise NotRunningError(f"mini-cluster {name}: there is none; `headway-minicluster status` lists them")
    take_down(record, store)


@contextlib.contextmanager
def signals_deferred() -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP take effect after the block: a deletion that is cut short leaves things behind."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def prepare_directory(directory: Path) -> bool:
    """Check that the folder may be used, without touching it. Returns whether it has to be made."""
    for parent in directory.parents:
        if parent.exists() and not parent.stat().st_mode & 0o001:
            raise MiniClusterError(
                f"{directory}: Slurm's user cannot enter {parent}; choose another --dir, or chmod o+x it"
            )
    if not directory.exists():
        return True
    if any(directory.iterdir()) and not (directory / MARKER).exists():
        raise MiniClusterError(f"{directory}: holds files that are no mini-cluster's; choose an empty or new folder")
    return False


def remove_files(directory: Path, *, whole: bool) -> None:
    """Delete a cluster's files; `whole`: the folder too."""
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
        (directory / MARKER).unlink()  # last, so that a deletion cut short can be gone on with
    if whole and not any(directory.iterdir()):
        directory.rmdir()
        parent = directory.parent
        if parent.name == "headway-minicluster":
            with contextlib.suppress(OSError):  # not empty, or another cluster that went at this moment has removed it
                parent.rmdir()
