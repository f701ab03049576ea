"""Receipts of the files that a rank wrote for a save, and their encoding for the other ranks."""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Optional, Sequence

from .catalog import Catalog, rank_file, shard_file
from .state import shards, state_dict
from .stores.base import Receipt

Written = Dict[str, Receipt]
"""File name -> receipt."""

_KINDS = (rank_file, shard_file)
_DIGEST_BYTES = 32
_SIZE_BYTES = 8
_RECEIPT_BYTES = _SIZE_BYTES + _DIGEST_BYTES


class Prepared(NamedTuple):
    """A rank's files, before they are written."""

    state: state_dict.Encoded
    shards: Optional[Sequence[shards.Shard]]
    """None = nothing is sharded."""


def prepare(state: Dict[str, Any]) -> Prepared:
    """Encode the state of this rank. Raises UnsavableError."""
    own_shards = state.pop("pieces", None)
    return Prepared(state_dict.encode(state), own_shards)


def write(catalog: Catalog, folder: str, rank: int, prepared: Prepared) -> Written:
    """Write this rank's files: its state, and its shards if anything is sharded."""
    name = rank_file(rank)
    written = {name: catalog.store.write(folder, name, prepared.state.write)}
    own_shards = prepared.shards
    if own_shards is not None:
        name = shard_file(rank)
        written[name] = catalog.store.write(folder, name, lambda file: shards.write(own_shards, file))
    return written


def encode(rank: int, written: Optional[Written]) -> bytes:
    """Encode the receipts of a rank; the length is always the same. None = this rank could not write."""
    if written is None:
        return bytes(1 + len(_KINDS) * _RECEIPT_BYTES)
    receipts = b"".join(
        written[kind(rank)].size_bytes.to_bytes(_SIZE_BYTES, "big") + written[kind(rank)].digest
        for kind in _KINDS
        if kind(rank) in written
    )
    return bytes([len(written)]) + receipts.ljust(len(_KINDS) * _RECEIPT_BYTES, b"\0")


def decode(rank: int, data: bytes) -> Optional[Written]:
    """Return the receipts that a rank has encoded; None = it could not write."""
    if not data[0]:
        return None
    starts = range(1, 1 + data[0] * _RECEIPT_BYTES, _RECEIPT_BYTES)
    return {
        kind(rank): Receipt(
            int.from_bytes(data[start : start + _SIZE_BYTES], "big"), data[start + _SIZE_BYTES : start + _RECEIPT_BYTES]
        )
        for kind, start in zip(_KINDS, starts)
    }
