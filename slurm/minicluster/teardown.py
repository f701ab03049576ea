"""Take a cluster down: everything that its record names, in any state."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from pathlib import Path

from slurm.errors import MiniClusterError, NotRunningError
from slurm.minicluster.host import cgroups, namespaces, network
from slurm.minicluster.host.network import NetworkNames
from slurm.minicluster.record import Record, RecordStore, boot_id
from slurm.signals import signals_deferred

MARKER = ".headway-minicluster"
"""File in the folder of a cluster: everything beside it may be deleted, with the cluster that it names."""
_CLUSTER = "Cluster: "
"""Before the cluster's name in the marker. Markers of older versions name no cluster."""


def take_down(record: Record, store: RecordStore) -> None:
    """Remove processes, cgroups, network and files. The caller holds the lock of the name. A second call does no harm.

    Raises MiniClusterError when files cannot be deleted; the record stays then, for the next call.
    """
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
    try:
        remove_files(Path(record.directory), record.name, whole=record.made_directory)
    except OSError as error:  # such as a program that writes there meanwhile, or a file system that is read-only now
        raise MiniClusterError(
            f"{record.directory}: the files of mini-cluster {record.name} cannot be deleted ({error}); mend this, and run "
            f"headway-minicluster down --name {record.name}"
        ) from error
    store.remove(record.name)


def down(name: str, store: RecordStore | None = None, *, detached: bool = True) -> None:
    """Take down a cluster by name, or only one that has not been detached.

    Raises NotRunningError when there is none, AlreadyRunningError when its owner is alive.
    """
    store = store or RecordStore()
    lock = store.lock(name)
    try:
        with signals_deferred():
            _take_down_recorded(name, store, detached=detached)
    finally:
        lock.release(remove=True)
        store.tidy()


def _take_down_recorded(name: str, store: RecordStore, *, detached: bool) -> None:
    record = store.read(name)
    if record is None or (record.detached and not detached):
        raise NotRunningError(f"mini-cluster {name}: no such cluster; `headway-minicluster status` lists all")
    take_down(record, store)


def prepare_directory(directory: Path, others: Sequence[Record] = ()) -> bool:
    """Check that the folder may be used beside the clusters `others`, without a change. Return whether it has to be created."""
    for path in (*reversed(directory.parents), directory):
        if path.exists() and not path.is_dir():
            raise MiniClusterError(f"{directory}: {path} is not a folder; choose another --dir")
    for parent in directory.parents:
        if parent.exists() and not parent.stat().st_mode & 0o001:
            raise MiniClusterError(
                f"{directory}: Slurm's user cannot enter {parent}; choose another --dir, or run chmod o+x {parent}"
            )
    for other in others:
        _refuse_shared(directory, other)
    if not directory.exists():
        return True
    if any(directory.iterdir()) and not (directory / MARKER).exists():
        raise MiniClusterError(
            f"{directory}: holds files that do not belong to a mini-cluster; choose an empty or new folder"
        )
    return False


def _refuse_shared(directory: Path, other: Record) -> None:
    """Refuse the folder of another cluster, one inside it and one around it: each would delete the other's files."""
    mine, theirs = directory.resolve(), Path(other.directory).resolve()
    if mine.is_relative_to(theirs) or theirs.is_relative_to(mine):
        raise MiniClusterError(
            f"{directory}: mini-cluster {other.name} has its files in {other.directory}; choose another --dir, "
            f"or take that cluster down first: headway-minicluster down --name {other.name}"
        )


def write_marker(directory: Path, cluster: str) -> None:
    """Mark the folder as that of a cluster."""
    text = "Files of a mini-cluster: headway-minicluster deletes everything in this folder."
    (directory / MARKER).write_text(f"{text}\n{_CLUSTER}{cluster}\n")


def _belongs_to(directory: Path, cluster: str | None) -> bool:
    """Return whether the marker in the folder allows this cluster to delete the files there; None for any cluster."""
    try:
        lines = (directory / MARKER).read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return False
    named = [line.removeprefix(_CLUSTER) for line in lines if line.startswith(_CLUSTER)]
    return cluster is None or not named or cluster in named


def remove_files(directory: Path, cluster: str | None, *, whole: bool) -> None:
    """Delete the files of a cluster, unless another cluster uses its folder now; with `whole` also the folder.

    Without a cluster (None), delete those of any earlier one: no cluster has its files there, as `prepare_directory` has found.
    """
    if not directory.is_dir():
        return
    if _belongs_to(directory, cluster):
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
