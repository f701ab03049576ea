"""Finds the newest checkpoint that is sound on all ranks, and puts it back."""

from __future__ import annotations

import hashlib
import logging
from typing import Any, BinaryIO, Dict, List, NamedTuple, Optional

from . import state as states
from .mishaps import CheckpointError, Damaged, Refused
from .pieces import Pieces, read_index
from .sharded import pieces_from
from .shelf import MANIFEST, Manifest, Shelf, rank_file, shard_file
from .together import Together, most

_log = logging.getLogger("headway_job")
_PIECE = 1 << 20
_SOUND, _DAMAGED, _OUT_OF_REACH, _NOT_SEEN = 0, 1, 2, 3
"""The worst of any rank's counts. Only what every rank has seen may be called damaged."""


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
    """The newest that every rank can read and finds as its manifest says. Rank 0's list counts. Raises Refused.

    None where there is none, or all are damaged; not where there are some that cannot be reached.
    """
    folders = _listed(shelf, ranks)
    worst_of_all = _SOUND
    for folder in folders:
        found: Optional[Found] = None
        verdict = _SOUND
        try:
            found = _read(shelf, folder, ranks)
        except (Damaged, FileNotFoundError) as error:
            verdict = _DAMAGED
            _log.warning(
                "Checkpoint %s in %s is not restored: %s. Trying the one before.", folder, shelf.store.where, error
            )
        except _NotSeenError:
            verdict = _NOT_SEEN
            _log.warning(
                "Checkpoint %s is seen by rank 0, and not by rank %d, whose %s has none of that name: the folder must be seen by "
                "all nodes. Trying the one before.", folder, ranks.rank, shelf.store.where,
            )  # fmt: skip
        except Exception as error:
            # A store that cannot be reached, in whatever way an fsspec implementation tells it: no reason to call it damaged.
            verdict = _OUT_OF_REACH
            _log.warning(
                "Checkpoint %s in %s cannot be read: %s. Trying the one before.", folder, shelf.store.where, error
            )
        (worst,) = most(ranks, verdict)
        if worst == _SOUND:
            return found
        worst_of_all = max(worst_of_all, worst)
        if worst == _DAMAGED and ranks.rank == 0:
            _set_aside(shelf, folder)
    if worst_of_all == _NOT_SEEN:
        raise Refused(
            f"No checkpoint in {shelf.store.where} could be restored, and some are seen by rank 0 only: the folder must be seen by "
            "all nodes. Nothing is begun anew: start again where it is mounted, or give a folder that is shared."
        )
    if worst_of_all == _OUT_OF_REACH:
        raise Refused(
            f"No checkpoint in {shelf.store.where} could be read, and some could not be reached. Nothing is begun anew: start "
            "again when they can be reached."
        )
    if folders:
        _log.warning(
            "None of the %d checkpoints in %s can be used: the run begins anew.", len(folders), shelf.store.where
        )
    return None


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


def _read(shelf: Shelf, folder: str, ranks: Together) -> Found:
    """The ranks share the checking among them, so that a checkpoint is judged whole; each checks what it reads whole, too."""
    if not shelf.store.has(folder, MANIFEST):
        raise _NotSeenError
    manifest = shelf.manifest(folder)
    own_file = rank_file(ranks.rank if ranks.rank < manifest.world_size else 0)
    for place, name in enumerate(sorted(manifest.files)):
        if place % ranks.world_size == ranks.rank or name in (rank_file(0), own_file):
            with shelf.store.read(folder, name) as file:
                _check(file, name, manifest)
    with shelf.store.read(folder, rank_file(0)) as file:
        first = states.read(file)
    own = first
    if own_file != rank_file(0):
        with shelf.store.read(folder, own_file) as file:
            own = states.read(file)
    rng = own["rng"] if ranks.rank < manifest.world_size else None
    return Found(folder, manifest, first.get("shared", {}), own["own"], rng, _pieces(shelf, folder, manifest))


def _pieces(shelf: Shelf, folder: str, manifest: Manifest) -> Optional[Pieces]:
    """Of all ranks. Another rank may be checking their files meanwhile; they are read further once all have been."""
    if not manifest.sharded:
        return None
    found = {}
    for rank in range(manifest.world_size):
        with shelf.store.read(folder, shard_file(rank)) as file:
            found[shard_file(rank)] = read_index(file, shard_file(rank))
    return pieces_from(found, lambda name: shelf.store.read(folder, name))


def _check(file: BinaryIO, name: str, manifest: Manifest) -> None:
    digest = hashlib.sha256()
    size_bytes = 0
    while True:
        piece = file.read(_PIECE)
        if not piece:
            break
        digest.update(piece)
        size_bytes += len(piece)
    wanted = manifest.files[name]
    if size_bytes != wanted.size_bytes:
        raise Damaged(f"{name} has {size_bytes} bytes, not the {wanted.size_bytes} of {MANIFEST}")
    if digest.digest() != wanted.digest:
        raise Damaged(f"{name} has another SHA-256 than {MANIFEST} says")


def _set_aside(shelf: Shelf, folder: str) -> None:
    try:
        shelf.set_aside(folder)
    except (OSError, CheckpointError) as error:
        _log.warning("Checkpoint %s could not be set aside: %s", folder, error)
