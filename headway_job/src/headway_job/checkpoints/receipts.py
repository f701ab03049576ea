"""What a rank wrote of a save, and how it tells the others."""

from __future__ import annotations

from typing import Any, Dict, Optional

from .catalog import Shelf, rank_file, shard_file
from .state import shards as pieces
from .state import state_dict as state
from .stores.local import Receipt

Written = Dict[str, Receipt]
"""By file."""

_KINDS = (rank_file, shard_file)
_DIGEST_BYTES = 32
_SIZE_BYTES = 8
_EACH_BYTES = _SIZE_BYTES + _DIGEST_BYTES


def write(shelf: Shelf, folder: str, rank: int, parts: Dict[str, Any]) -> Written:
    """This rank's files: its state, and its pieces of what is sharded where anything is."""
    kept = parts.pop("pieces", None)
    written = {rank_file(rank): shelf.store.write(folder, rank_file(rank), lambda file: state.write(parts, file))}
    if kept is not None:
        name = shard_file(rank)
        written[name] = shelf.store.write(folder, name, lambda file: pieces.write(kept, file))
    return written


def packed(rank: int, written: Optional[Written]) -> bytes:
    """Of one length, whatever it says. None: this rank could not write."""
    if written is None:
        return bytes(1 + len(_KINDS) * _EACH_BYTES)
    told = b"".join(
        written[kind(rank)].size_bytes.to_bytes(_SIZE_BYTES, "big") + written[kind(rank)].digest
        for kind in _KINDS
        if kind(rank) in written
    )
    return bytes([len(written)]) + told.ljust(len(_KINDS) * _EACH_BYTES, b"\0")


def unpacked(rank: int, data: bytes) -> Optional[Written]:
    """What that rank packed."""
    if not data[0]:
        return None
    starts = range(1, 1 + data[0] * _EACH_BYTES, _EACH_BYTES)
    return {
        kind(rank): Receipt(
            int.from_bytes(data[start : start + _SIZE_BYTES], "big"), data[start + _SIZE_BYTES : start + _EACH_BYTES]
        )
        for kind, start in zip(_KINDS, starts)
    }
