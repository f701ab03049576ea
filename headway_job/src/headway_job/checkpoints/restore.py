"""Finds the newest checkpoint that is intact on all ranks, and restores it."""

from __future__ import annotations

import hashlib
import logging
import os
from typing import Any, Container, Dict, List, NamedTuple, Optional, Sequence

import torch

from . import divided, registered_names, resume_memory
from .catalog import MANIFEST, OLDER_SUFFIX, Catalog, Manifest, shard_file
from .errors import CheckpointError, Damaged, Refused
from .ranks.rank_group import RankGroup, max_over_ranks
from .state import memory, module_versions, state_dict
from .state import rng as rng_state
from .state.dtensor import shards_from
from .state.shards import ShardReader, read_index
from .stores.base import Receipt

_log = logging.getLogger("headway_job")
PROGRAM = "program"
"""Key, in rank 0's state, of the digest of the program. Earlier versions of this package ignore it."""
STOP = "stop"
"""Key, in rank 0's state, of a `StopNote`. As `PROGRAM`."""
_READ_BYTES = 1 << 20
_INTACT, _DAMAGED, _UNREADABLE, _INVISIBLE = 0, 1, 2, 3
"""The largest of all ranks' results counts: the checkpoint before is tried only if all can read this one, and it is damaged."""


class _InvisibleError(Exception):
    """A checkpoint that rank 0 has listed does not exist for this rank."""


class StopNote(NamedTuple):
    """The reason for which a job was to be stopped after a save. Another job may continue from the same folder."""

    why: str
    """Text for people."""
    job_id: str
    """Slurm's id of the job that has saved."""
    restarts: int
    """Slurm's restart count of its run."""

    def encode(self) -> Dict[str, Any]:
        """Return the note as part of a state."""
        return self._asdict()


def _stop_note(found: Any) -> Optional[StopNote]:
    """Return the note in a state; None = there is none that this version understands."""
    if not isinstance(found, dict):
        return None
    why, job_id, restarts = found.get("why"), found.get("job_id"), found.get("restarts")
    if not (isinstance(why, str) and why and isinstance(job_id, str)) or type(restarts) is not int:
        return None
    return StopNote(why, job_id, restarts)


class LoadedCheckpoint(NamedTuple):
    """A checkpoint that was read and checked on this rank."""

    folder: str
    where: str
    """Store of the folder, for messages."""
    manifest: Manifest
    shared: Dict[str, Any]
    own: Dict[str, Any]
    rng: Optional[Dict[str, Any]]
    """None = the checkpoint has no such rank."""
    shards: Optional[ShardReader]
    """None = nothing was sharded."""
    divided: List[str]
    """Names of objects of which each rank has saved different tensors."""
    versions: Dict[str, Any]
    """Name -> the versions of its modules, not checked yet; an earlier version of this package has saved none."""
    program: str
    """Digest of the program that has saved it; empty = an earlier version of this package has saved none."""
    stop: Optional[StopNote] = None
    """None = the save was not made to stop the job, or its reason is not known."""


class Resumed(NamedTuple):
    """A resume that has happened. It holds none of the state, which takes as much memory as the model."""

    folder: str
    step: int
    """Number of steps done, which is the number of the next step."""
    seed: int
    rng: Optional[Dict[str, Any]]
    """As in LoadedCheckpoint."""

    def restore_rng(self, rank: int) -> None:
        """Restore the random number generators; once more, if the script has drawn numbers since."""
        if self.rng is not None:
            rng_state.restore(self.rng)
        else:
            rng_state.derive(self.seed, self.step, rank)


def load_newest(catalog: Catalog, ranks: RankGroup) -> Optional[LoadedCheckpoint]:
    """Read the newest checkpoint that matches its manifest, in rank 0's list. Raises Refused on all ranks or on none.

    Returns None if there is none, or if all are proven to be damaged. A checkpoint that cannot be read, but may be intact, is
    neither set aside nor skipped: the steps since the one before would be lost, and it would be removed later.
    """
    folders = _listed(catalog, ranks)
    for folder in folders:
        manifest = _checked(catalog, folder, ranks)
        if manifest is not None:
            return _load(catalog, folder, manifest, ranks)
    if folders:
        _log.warning(
            "None of the %d checkpoints in %s can be used, as all are damaged: the run begins at step 0.",
            len(folders), catalog.store.where,
        )  # fmt: skip
    return None


def restore_into(
    loaded: LoadedCheckpoint, objects: state_dict.StatefulObjects, ranks: RankGroup, optional: Sequence[str] = ()
) -> Resumed:
    """Load the checkpoint into the run's objects. Raises Refused if it does not fit, on all ranks or on none.

    `optional`: names of objects that the checkpoint may lack, or the run may leave out. The caller keeps the result, and no
    reference to `loaded`.
    """
    # Measured before the ranks wait for each other: none of them has begun to load.
    budget = memory.MemoryBudget(memory.most_bytes(resume_memory.ranks_here(ranks)))
    what = f"Checkpoint {loaded.folder} in {loaded.where}"
    registered_names.check(
        objects.names, loaded.shared, loaded.own, optional, ranks,
        saved_here=ranks.rank < loaded.manifest.world_size, what=what,
    )  # fmt: skip
    divided.check(loaded.divided, loaded.manifest.world_size, ranks.world_size, optional, what=what)
    unused = divided.unusable(
        loaded.divided, set(loaded.own) & set(objects.names), loaded.manifest.world_size, ranks.world_size
    )
    for name in unused:
        _log.warning(
            "The state of %s in checkpoint %s is not restored, and %s stays as it is: each of %d ranks had saved another part of "
            "it, and this run has %d.",
            name, loaded.folder, name, loaded.manifest.world_size, ranks.world_size,
        )  # fmt: skip
    loaded = loaded._replace(own={name: state for name, state in loaded.own.items() if name not in unused})
    left = (set(loaded.shared) | set(loaded.own)) - set(objects.names)
    for name in sorted(name for name in left if registered_names.may_differ(name, optional)):
        _log.warning("The state of %s in checkpoint %s is not restored, as the run has none.", name, loaded.folder)
    for name in sorted(
        set(_load_objects(_fitted(loaded, objects, ranks, budget), loaded, objects, ranks)) - set(unused)
    ):
        _log.warning("Checkpoint %s has no state of %s, which stays as it is.", loaded.folder, name)
    if loaded.manifest.world_size != ranks.world_size and ranks.rank == 0:
        _log.warning(
            "Checkpoint %s was saved by %d ranks, and this run has %d: ranks that are new derive their random numbers from "
            "the seed %d, and take other state of their own from rank 0.",
            loaded.folder, loaded.manifest.world_size, ranks.world_size, loaded.manifest.seed,
        )  # fmt: skip
    resumed = Resumed(loaded.folder, loaded.manifest.step, loaded.manifest.seed, loaded.rng)
    resumed.restore_rng(ranks.rank)
    return resumed


def first_of_its_node() -> bool:
    """Return True if this rank checks files for all ranks of its node; also if the launcher does not say which rank is first."""
    for name in ("LOCAL_RANK", "SLURM_LOCALID"):
        if os.environ.get(name):
            return os.environ[name].strip() == "0"
    return True


# ---- finding


def _listed(catalog: Catalog, ranks: RankGroup) -> List[str]:
    """Return rank 0's list. Ranks exchange numbers only, from which the others derive the names of the folders."""
    newest: List[str] = []
    trouble = ""
    try:
        newest = catalog.newest_first()
    except Exception as error:
        # As in _checked. The other ranks must know of it before this one gives up.
        trouble = str(error).rstrip(".") or type(error).__name__
    if any(max_over_ranks(ranks, int(bool(trouble)))):
        raise Refused(
            f"The checkpoints in {catalog.store.where} cannot be listed{': ' + trouble if trouble else ' on another rank'}. The "
            "run does not begin at step 0 as long as there may be some. Start it again when they can be reached."
        )
    (length,) = max_over_ranks(ranks, len(newest) if ranks.rank == 0 else -1)
    listed = []
    for place in range(length):
        step, number = (int(part) for part in newest[place].split("-")[1:]) if ranks.rank == 0 else (-1, -1)
        step, number = max_over_ranks(ranks, step, number)
        listed.append(f"step-{step:09d}-{number:04d}")
    return listed


# ---- checking


def _checked(catalog: Catalog, folder: str, ranks: RankGroup) -> Optional[Manifest]:
    """Check all files of a checkpoint, divided among the ranks. None = it is damaged, and was set aside. Raises Refused."""
    manifest: Optional[Manifest] = None
    result, why = _INTACT, ""
    try:
        manifest = _check(catalog, folder, ranks)
    except Damaged as error:
        result = _DAMAGED
        _log.warning(
            "Checkpoint %s in %s is damaged: %s. It is not restored; the one before is tried next.",
            folder, catalog.store.where, error,
        )  # fmt: skip
    except _InvisibleError:
        result = _INVISIBLE
        _log.warning(
            "Checkpoint %s is visible to rank 0, but not to rank %d: its folder %s has none of that name.",
            folder, ranks.rank, catalog.store.where,
        )  # fmt: skip
    except Exception as error:
        # The store cannot be reached (an fsspec implementation may raise anything), memory or descriptors are exhausted, or another
        # version has written it: none of these proves that it is damaged.
        result, why = _UNREADABLE, _first_line(error)
    (worst,) = max_over_ranks(ranks, result)
    if worst == _INVISIBLE:
        raise Refused(
            f"Checkpoint {folder} in {catalog.store.where} is visible to rank 0, but not to all ranks. All nodes must see the same "
            "folder. The run does not begin at step 0: start it again where the folder is mounted, or give a folder that is shared."
        )
    if worst == _UNREADABLE:
        raise Refused(
            f"Checkpoint {folder} in {catalog.store.where} cannot be read {_where(why)}. It may be intact, so the run does not "
            "begin at step 0, and nothing was changed. Start it again when the checkpoint can be read; or remove its folder, "
            "to go on from the one before."
        )
    if worst == _DAMAGED and ranks.rank == 0:
        _set_aside(catalog, folder)
    return manifest if worst == _INTACT else None


def _check(catalog: Catalog, folder: str, ranks: RankGroup) -> Manifest:
    """Compare the files with the manifest. The ranks divide them, so that each is read once. Raises Damaged.

    The files that a node needs are also checked there, by its first rank, as nodes may get different data.
    """
    if not catalog.store.has(folder, MANIFEST):
        raise _InvisibleError
    manifest = catalog.manifest(folder)
    read_here = {manifest.own_file(ranks.rank)} | ({manifest.state_file(0)} if first_of_its_node() else set())
    for place, name in enumerate(sorted(manifest.files)):
        if place % ranks.world_size == ranks.rank or name in read_here:
            _check_file(catalog, folder, name, manifest.files[name])
    return manifest


def _check_file(catalog: Catalog, folder: str, name: str, wanted: Receipt) -> None:
    """Raise Damaged if size or SHA-256 differ from the manifest, with the same result twice; OSError if the results differ."""
    first = _digest(catalog, folder, name, wanted)
    if first == wanted.digest:
        return
    second = _digest(catalog, folder, name, wanted)
    if second == first:
        raise Damaged(f"{name} has another SHA-256 than {MANIFEST} says")
    if second != wanted.digest:
        raise OSError(f"{name} was read twice, with different results")


def _digest(catalog: Catalog, folder: str, name: str, wanted: Receipt) -> bytes:
    """Return the digest of the file, which is opened anew. If reading ends early (connection lost), it proves nothing: OSError."""
    with catalog.store.read(folder, name) as file:
        size_bytes = file.seek(0, os.SEEK_END)
        if size_bytes != wanted.size_bytes:
            raise Damaged(f"{name} has {size_bytes} bytes, not the {wanted.size_bytes} of {MANIFEST}")
        file.seek(0)
        digest, read_bytes = hashlib.sha256(), 0
        while True:
            data = file.read(_READ_BYTES)
            if not data:
                break
            digest.update(data)
            read_bytes += len(data)
    if read_bytes < size_bytes:
        raise OSError(f"reading {name} ended after {read_bytes} of {size_bytes} bytes")
    return digest.digest()


def _set_aside(catalog: Catalog, folder: str) -> None:
    try:
        catalog.set_aside(folder)
    except (OSError, CheckpointError) as error:
        _log.warning("Checkpoint %s is damaged, and could not be renamed: %s", folder, error)


# ---- loading


def _load(catalog: Catalog, folder: str, manifest: Manifest, ranks: RankGroup) -> LoadedCheckpoint:
    """Load a checkpoint that is intact, so that every error now has another cause. Raises Refused on all ranks or on none."""
    resume_memory.check(catalog, folder, manifest, ranks)
    loaded: Optional[LoadedCheckpoint] = None
    why = ""
    try:
        loaded = _read(catalog, folder, manifest, ranks)
    except Exception as error:
        # There is too little memory, this torch does not know a type, or the store cannot be reached any more.
        why = _first_line(error)
    (failed,) = max_over_ranks(ranks, int(loaded is None))
    if failed or loaded is None:
        raise Refused(
            f"Checkpoint {folder} in {catalog.store.where} is intact (its SHA-256 is right), but cannot be loaded {_where(why)}. "
            "The run does not begin at step 0, and nothing was changed. The checkpoint was saved with torch "
            f"{manifest.torch}, and this is torch {torch.__version__}: start the run again with that version or a later one, and "
            "with enough memory; or give another folder to begin at step 0."
        )
    return loaded


def _read(catalog: Catalog, folder: str, manifest: Manifest, ranks: RankGroup) -> LoadedCheckpoint:
    """Load what this rank needs of a checkpoint whose files have been checked."""
    first_file, own_file = manifest.state_file(0), manifest.own_file(ranks.rank)
    first = _read_state(catalog, folder, first_file, own=own_file == first_file)
    own = first if own_file == first_file else _read_state(catalog, folder, own_file)
    rng = own["rng"] if ranks.rank < manifest.world_size else None
    shared, shards = first.get("shared", {}), _shards(catalog, folder, manifest)
    parts = first.get(state_dict.DIVIDED, [])
    versions = {**_versions(first, shared), **_versions(own, own["own"])}
    saved_by = first.get(PROGRAM)
    return LoadedCheckpoint(
        folder, catalog.store.where, manifest, shared, own["own"], rng, shards, parts, versions,
        saved_by if isinstance(saved_by, str) else "", _stop_note(first.get(STOP)),
    )  # fmt: skip


def _versions(state: Dict[str, Any], names: Container[str]) -> Dict[str, Any]:
    """Return what a rank's file says of the versions of modules in these objects."""
    found = state.get(module_versions.KEY)
    return {name: of for name, of in found.items() if name in names} if isinstance(found, dict) else {}


def _read_state(catalog: Catalog, folder: str, name: str, *, own: bool = True) -> Dict[str, Any]:
    with catalog.store.read(folder, name) as file:
        return state_dict.read_older(file) if name.endswith(OLDER_SUFFIX) else state_dict.read(file, own=own)


def _shards(catalog: Catalog, folder: str, manifest: Manifest) -> Optional[ShardReader]:
    """Read the indexes of all ranks' shards. None = nothing was sharded."""
    if not manifest.sharded:
        return None
    found = {}
    for rank in range(manifest.world_size):
        with catalog.store.read(folder, shard_file(rank)) as file:
            found[shard_file(rank)] = read_index(file, shard_file(rank))
    return shards_from(found, lambda name: catalog.store.read(folder, name))


def _fitted(
    loaded: LoadedCheckpoint, objects: state_dict.StatefulObjects, ranks: RankGroup, budget: memory.MemoryBudget
) -> Dict[str, Any]:
    """Fit the state to this run, on all ranks or on none, as loading what is sharded waits for the others."""
    fitted: Dict[str, Any] = {}
    trouble: Optional[Exception] = None
    try:
        fitted = objects.fit(loaded.shared, loaded.own, loaded.shards, budget, loaded.versions)
    except Exception as error:
        # As in _checked; and torch's errors if the model has changed.
        trouble = error
    (troubled,) = max_over_ranks(ranks, int(trouble is not None))
    if isinstance(trouble, Refused):
        raise trouble
    if troubled:
        why = f": {trouble}" if trouble else " on another rank, whose log says why"
        raise Refused(
            f"Checkpoint {loaded.folder} could not be read{why}. Start the run again when it can be read."
        ) from trouble
    return fitted


def _load_objects(
    fitted: Dict[str, Any], loaded: LoadedCheckpoint, objects: state_dict.StatefulObjects, ranks: RankGroup
) -> List[str]:
    """Return the names that the checkpoint does not have. If one rank cannot load, none goes on."""
    lacking: List[str] = []
    trouble: Optional[Refused] = None
    try:
        lacking = objects.load(fitted)
    except Refused as error:
        trouble = error
    if any(max_over_ranks(ranks, int(trouble is not None))):
        raise trouble or Refused(f"Checkpoint {loaded.folder} does not fit on another rank, whose log says why.")
    return lacking


def _first_line(error: Exception) -> str:
    text = (str(error) or "no more is known").splitlines()[0]
    return text.rstrip(".") if isinstance(error, CheckpointError) else f"{type(error).__name__}: {text}"


def _where(why: str) -> str:
    return f"({why})" if why else "on another rank, whose log says why"
