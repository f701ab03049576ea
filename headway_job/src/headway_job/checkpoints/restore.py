"""Finds the newest checkpoint that is sound on all ranks, and puts it back."""

from __future__ import annotations

import hashlib
import logging
import os
from typing import Any, Dict, List, NamedTuple, Optional

import torch

from .catalog import MANIFEST, Manifest, Shelf, rank_file, shard_file
from .errors import CheckpointError, Damaged, Refused
from .rank_group import Together, most
from .state import state_dict as states
from .state.dtensor import pieces_from
from .state.shards import Pieces, read_index
from .stores.local import Receipt

_log = logging.getLogger("headway_job")
_PIECE = 1 << 20
_SOUND, _DAMAGED, _UNREADABLE, _NOT_SEEN = 0, 1, 2, 3
"""The worst of any rank's counts. Only what is damaged on one rank, and unreadable on none, gives way to the one before."""


class _NotSeenError(Exception):
    """A checkpoint that rank 0 has listed is not there for this rank."""


class Found(NamedTuple):
    """A checkpoint that was read and checked on this rank."""

    folder: str
    manifest: Manifest
    shared: Dict[str, Any]
    own: Dict[str, Any]
    rng: Optional[Dict[str, Any]]
    """None where the checkpoint has no such rank."""
    pieces: Optional[Pieces]
    """None where nothing was sharded."""

    def put_rng_back(self, rank: int) -> None:
        """Once more, where the script has drawn numbers since."""
        if self.rng is not None:
            states.put_rng_back(self.rng)
        else:
            states.derive_rng(self.manifest.seed, self.manifest.step, rank)


def newest_sound(shelf: Shelf, ranks: Together) -> Optional[Found]:
    """Read the newest checkpoint that is as its manifest says. Rank 0's list counts. Raises Refused, on all ranks or on none.

    None where there is none, or all are proven to be damaged. A checkpoint that cannot be read, and may be sound, is neither set
    aside nor passed over: the steps since the one before would be lost, and it would be removed later on.
    """
    folders = _listed(shelf, ranks)
    for folder in folders:
        manifest = _checked(shelf, folder, ranks)
        if manifest is not None:
            return _loaded_alike(shelf, folder, manifest, ranks)
    if folders:
        _log.warning(
            "None of the %d checkpoints in %s can be used: the run begins anew.", len(folders), shelf.store.where
        )
    return None


def _checked(shelf: Shelf, folder: str, ranks: Together) -> Optional[Manifest]:
    """Check all files of a checkpoint, shared among the ranks. None: it is damaged, and was set aside. Raises Refused."""
    manifest: Optional[Manifest] = None
    verdict, why = _SOUND, ""
    try:
        manifest = _check(shelf, folder, ranks)
    except Damaged as error:
        verdict = _DAMAGED
        _log.warning(
            "Checkpoint %s in %s is not restored: %s. Trying the one before.", folder, shelf.store.where, error
        )
    except _NotSeenError:
        verdict = _NOT_SEEN
        _log.warning(
            "Checkpoint %s is seen by rank 0, and not by rank %d, whose %s has none of that name.",
            folder, ranks.rank, shelf.store.where,
        )  # fmt: skip
    except Exception as error:
        # A store that cannot be reached, in whatever way an fsspec implementation tells it; memory or descriptors that are not
        # there; another version's format: none of these says that it is damaged.
        verdict, why = _UNREADABLE, _told(error)
    (worst,) = most(ranks, verdict)
    if worst == _NOT_SEEN:
        raise Refused(
            f"Checkpoint {folder} in {shelf.store.where} is seen by rank 0 and not by all ranks: the folder must be seen by all "
            "nodes. Nothing is begun anew: start again where it is mounted, or give a folder that is shared."
        )
    if worst == _UNREADABLE:
        raise Refused(
            f"Checkpoint {folder} in {shelf.store.where} cannot be read {_here(why)}. It may be sound, so nothing is begun anew, "
            "and nothing was changed: start again when it can be read; or remove its folder, to go on from the one before."
        )
    if worst == _DAMAGED and ranks.rank == 0:
        _set_aside(shelf, folder)
    return manifest if worst == _SOUND else None


def _loaded_alike(shelf: Shelf, folder: str, manifest: Manifest, ranks: Together) -> Found:
    """Load a checkpoint that is sound: whatever goes wrong now is not its fault. Raises Refused, on all ranks or on none."""
    found: Optional[Found] = None
    why = ""
    try:
        found = _read(shelf, folder, manifest, ranks)
    except Exception as error:
        # Memory that is not there; what another torch does not know; a store that is away by now.
        why = _told(error)
    (failed,) = most(ranks, int(found is None))
    if failed or found is None:
        raise Refused(
            f"Checkpoint {folder} in {shelf.store.where} is whole, as its SHA-256 tells, and cannot be loaded {_here(why)}. "
            f"Nothing is begun anew, and nothing was changed. It was saved with torch {manifest.torch}, and this is torch "
            f"{torch.__version__}: start again with that version or a later one, and with enough memory; or give another folder "
            "to begin anew."
        )
    return found


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error) or 'no more is known').splitlines()[0]}"


def _here(why: str) -> str:
    return f"({why})" if why else "on another rank, whose log says why"


def put_back(found: Found, parts: states.Parts, ranks: Together) -> None:
    """Loads it. Raises Refused where it does not fit, on all ranks or on none."""
    for name in _loaded(_fitted(found, parts, ranks), found, parts, ranks):
        _log.warning("Checkpoint %s has no state of %s, which stays as it is.", found.folder, name)
    if found.manifest.world_size != ranks.world_size and ranks.rank == 0:
        _log.warning(
            "Checkpoint %s was saved by %d ranks, and this run has %d: ranks that are new derive their random numbers from "
            "the seed %d, and take other state of their own from rank 0.",
            found.folder, found.manifest.world_size, ranks.world_size, found.manifest.seed,
        )  # fmt: skip
    found.put_rng_back(ranks.rank)


def _fitted(found: Found, parts: states.Parts, ranks: Together) -> Dict[str, Any]:
    """On all ranks or on none, as loading what is sharded waits for the others."""
    fitted: Dict[str, Any] = {}
    trouble: Optional[Exception] = None
    try:
        fitted = parts.fit(found.shared, found.own, found.pieces)
    except Exception as error:
        # As in newest_sound; and what torch raises where the model has changed.
        trouble = error
    (troubled,) = most(ranks, int(trouble is not None))
    if isinstance(trouble, Refused):
        raise trouble
    if troubled:
        why = f": {trouble}" if trouble else " on another rank"
        raise Refused(f"Checkpoint {found.folder} could not be read{why}. Start again when it can.") from trouble
    return fitted


def _loaded(fitted: Dict[str, Any], found: Found, parts: states.Parts, ranks: Together) -> List[str]:
    """The names that the checkpoint does not have. No rank trains on what another one has not loaded."""
    lacking: List[str] = []
    trouble: Optional[Refused] = None
    try:
        lacking = parts.put_back(fitted)
    except Refused as error:
        trouble = error
    if any(most(ranks, int(trouble is not None))):
        raise trouble or Refused(f"Checkpoint {found.folder} does not fit on another rank, whose log says why.")
    return lacking


def _listed(shelf: Shelf, ranks: Together) -> List[str]:
    """Rank 0's list, told by attempt number; the other ranks find the folders by it."""
    newest: List[str] = []
    trouble = ""
    try:
        newest = shelf.newest_first()
    except Exception as error:
        # As in newest_sound. The other ranks must hear of it before this one gives up.
        trouble = str(error) or type(error).__name__
    if any(most(ranks, int(bool(trouble)))):
        raise Refused(
            f"The checkpoints in {shelf.store.where} cannot be listed{': ' + trouble if trouble else ' on another rank'}. Nothing "
            "is begun anew while there may be some: start again when they can be reached."
        )
    (length,) = most(ranks, len(newest) if ranks.rank == 0 else -1)
    listed = []
    for place in range(length):
        step, number = (int(part) for part in newest[place].split("-")[1:]) if ranks.rank == 0 else (-1, -1)
        step, number = most(ranks, step, number)
        listed.append(f"step-{step:09d}-{number:04d}")
    return listed


def _check(shelf: Shelf, folder: str, ranks: Together) -> Manifest:
    """Compare files with the manifest: the ranks divide them, so that each is read once. Raises Damaged.

    The files that a node reads are also checked there, by its first rank: what one node gets is not what another one does.
    """
    if not shelf.store.has(folder, MANIFEST):
        raise _NotSeenError
    manifest = shelf.manifest(folder)
    read_here = {_own_file(manifest, ranks)} | ({rank_file(0)} if first_of_its_node() else set())
    for place, name in enumerate(sorted(manifest.files)):
        if place % ranks.world_size == ranks.rank or name in read_here:
            _check_file(shelf, folder, name, manifest.files[name])
    return manifest


def first_of_its_node() -> bool:
    """Whether no other rank of this node does what one of them has to do. True where the launcher does not say."""
    for name in ("LOCAL_RANK", "SLURM_LOCALID"):
        if os.environ.get(name):
            return os.environ[name].strip() == "0"
    return True


def _own_file(manifest: Manifest, ranks: Together) -> str:
    return rank_file(ranks.rank if ranks.rank < manifest.world_size else 0)


def _read(shelf: Shelf, folder: str, manifest: Manifest, ranks: Together) -> Found:
    """Load what this rank needs of a checkpoint whose files have been checked."""
    with shelf.store.read(folder, rank_file(0)) as file:
        first = states.read(file)
    own, own_file = first, _own_file(manifest, ranks)
    if own_file != rank_file(0):
        with shelf.store.read(folder, own_file) as file:
            own = states.read(file)
    rng = own["rng"] if ranks.rank < manifest.world_size else None
    return Found(folder, manifest, first.get("shared", {}), own["own"], rng, _pieces(shelf, folder, manifest))


def _pieces(shelf: Shelf, folder: str, manifest: Manifest) -> Optional[Pieces]:
    """Read the indexes of all ranks' shards. None where nothing was sharded."""
    if not manifest.sharded:
        return None
    found = {}
    for rank in range(manifest.world_size):
        with shelf.store.read(folder, shard_file(rank)) as file:
            found[shard_file(rank)] = read_index(file, shard_file(rank))
    return pieces_from(found, lambda name: shelf.store.read(folder, name))


def _check_file(shelf: Shelf, folder: str, name: str, wanted: Receipt) -> None:
    """Raises Damaged where its size or its SHA-256 is not the manifest's, twice alike; OSError where it cannot be told."""
    first = _digest(shelf, folder, name, wanted)
    if first == wanted.digest:
        return
    second = _digest(shelf, folder, name, wanted)
    if second == first:
        raise Damaged(f"{name} has another SHA-256 than {MANIFEST} says")
    if second != wanted.digest:
        raise OSError(f"{name} was read twice, with two results")


def _digest(shelf: Shelf, folder: str, name: str, wanted: Receipt) -> bytes:
    """Of the file, opened anew. A reading that ends early, as where a connection was cut, says nothing of the file: OSError."""
    with shelf.store.read(folder, name) as file:
        size_bytes = file.seek(0, os.SEEK_END)
        if size_bytes != wanted.size_bytes:
            raise Damaged(f"{name} has {size_bytes} bytes, not the {wanted.size_bytes} of {MANIFEST}")
        file.seek(0)
        digest, read_bytes = hashlib.sha256(), 0
        while True:
            piece = file.read(_PIECE)
            if not piece:
                break
            digest.update(piece)
            read_bytes += len(piece)
    if read_bytes < size_bytes:
        raise OSError(f"the reading of {name} ended after {read_bytes} of {size_bytes} bytes")
    return digest.digest()


def _set_aside(shelf: Shelf, folder: str) -> None:
    try:
        shelf.set_aside(folder)
    except (OSError, CheckpointError) as error:
        _log.warning("Checkpoint %s could not be set aside: %s", folder, error)
